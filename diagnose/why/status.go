package why

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/kernosis/kernosis/detector/problem"
)

// ready is the only condition that is healthy while it is True.
const ready = "Ready"

// crashLoop is the waiting reason of a container that keeps ending.
const crashLoop = "CrashLoopBackOff"

// endings adds the ends of containers as effects of a candidate that explains them, or else as
// candidates.
func (b *builder) endings() {
	for _, c := range b.containers {
		for _, e := range []*Ending{c.Ended, c.Before} {
			if e == nil || e.Code == 0 || !b.recent(e.At) {
				continue
			}
			how := "container " + c.Name + " ended " + b.how(e)
			by := &candidate{
				rank: byStatus, pod: b.in.Subject.UID, container: c.Name,
				Cause: Cause{Reason: cmp.Or(e.Reason, "Error"), Message: b.text(how), First: e.At, Last: e.At, Severity: problem.Warning},
			}
			if text := b.text(e.Message); text != "" {
				by.Why = []string{"its message: " + text}
			}
			by.do = []string{b.logs(c)}
			if e == c.Before {
				by.do[0] += " --previous"
			}
			at := slices.IndexFunc(b.list, func(o *candidate) bool {
				return o.problem != nil && o.touches(by) && (within(o.Last, e.At, endsWithin) || o.Lasts && !e.At.Before(o.First))
			})
			if at < 0 {
				b.list = append(b.list, by)
				continue
			}
			b.list[at].Effects = appendNew(b.list[at].Effects, by.Message)
		}
	}
}

// logs returns the command that prints a container's log.
func (b *builder) logs(c *Container) string {
	return fmt.Sprintf("kubectl logs -n %s %s -c %s", b.in.Subject.Namespace, b.in.Subject.Name, c.Name)
}

// how formats an ending: "with exit code 137 (SIGKILL), OOMKilled".
func (b *builder) how(e *Ending) string {
	text := fmt.Sprintf("with exit code %d", e.Code)
	// As in shells and runtimes: 128 and the signal.
	if name := map[int]string{131: "SIGQUIT", 132: "SIGILL", 134: "SIGABRT", 135: "SIGBUS", 136: "SIGFPE", 137: "SIGKILL", 139: "SIGSEGV", 143: "SIGTERM"}[e.Code]; name != "" {
		text += " (" + name + ")"
	}
	if e.Reason != "" && e.Reason != "Error" {
		text += ", " + b.text(e.Reason)
	}
	return text
}

// conditions adds candidates for a node's conditions that nothing else explains.
func (b *builder) conditions() {
	if b.in.Subject.Kind != KindNode {
		return
	}
	for i := range b.in.Conditions {
		c := &b.in.Conditions[i]
		bad := c.Status == problem.True
		if c.Type == ready {
			bad = c.Status != problem.True
		}
		if !bad || c.Status == problem.Unknown && c.Type != ready {
			continue
		}
		if slices.ContainsFunc(b.problems, func(p *Problem) bool { return p.Condition == c.Type || p.Reason == c.Reason }) {
			continue
		}
		by := &candidate{rank: byProblem, Cause: Cause{
			Reason: c.Reason, Message: strings.TrimSuffix(b.text(c.Type)+" is "+b.text(string(c.Status))+": "+b.text(c.Message), ": "), Lasts: true, First: c.LastTransition, Last: c.LastTransition, Severity: problem.Warning,
		}}
		if c.Type == ready {
			by.rank = byStatus
		}
		by.advise(b, c.Reason, c.Type)
		b.list = append(b.list, by)
	}
}

// condition formats a condition: "KernelDeadlock is True since 10:41:02: TaskHung: …".
func (b *builder) condition(c *problem.Condition) string {
	since := ""
	if !c.LastTransition.IsZero() {
		since = " since " + b.clock(c.LastTransition)
	}
	return strings.TrimSuffix(fmt.Sprintf("%s is %s%s: %s: %s", b.text(c.Type), c.Status, since, b.text(c.Reason), b.text(c.Message)), ": ")
}

// statuses adds candidates from the pod's status in the API, if there are no others.
func (b *builder) statuses() {
	s := &b.in.Subject
	if s.Kind != KindPod || len(b.list) > 0 {
		return
	}
	if s.Phase == "Failed" || s.Phase == "Pending" && s.Reason != "" {
		b.list = append(b.list, &candidate{rank: byStatus, pod: s.UID, Cause: Cause{
			Reason: cmp.Or(s.Reason, s.Phase), Message: b.text(cmp.Or(s.Message, "the pod is "+s.Phase)), Lasts: true,
		}})
	}
	for _, c := range b.containers {
		if c.Waiting == "" || c.Waiting == "ContainerCreating" || c.Waiting == "PodInitializing" {
			continue
		}
		by := &candidate{rank: byStatus, pod: s.UID, container: c.Name, Cause: Cause{
			Reason: c.Waiting, Message: b.text(strings.TrimSuffix("container "+c.Name+" is waiting: "+c.Waiting+": "+c.Message, ": ")), Lasts: true,
		}}
		if c.Waiting == crashLoop {
			by.do = []string{b.logs(c) + " --previous"}
		}
		b.list = append(b.list, by)
	}
	if len(b.list) > 0 {
		return
	}
	for i := range b.in.Events {
		e := &b.in.Events[i]
		if !e.Warning || !b.recent(e.Last) || s.Container != "" && e.Container != "" && s.Container != e.Container {
			continue
		}
		b.list = append(b.list, &candidate{rank: byStatus, pod: s.UID, container: e.Container, Cause: Cause{
			Reason: b.text(e.Reason), Message: b.text(e.By) + ": " + b.text(e.Message), First: e.Last, Last: e.Last,
			Count: uint64(max(e.Count, 0)), Severity: problem.Warning, //nolint:gosec // not negative
		}})
	}
}
