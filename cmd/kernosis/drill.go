package main

import (
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/kernosis/kernosis/collector/event"
	"github.com/kernosis/kernosis/detector/problem"
	"github.com/kernosis/kernosis/reporter/journal"
)

// drill is one fault of the demo and the expected detection.
type drill struct {
	fault string
	lasts time.Duration                // at least; 0: the fault's default
	count int                          // exactly; 0: until it is diagnosed
	rule  string                       // the rule that must fire
	match func(ev *event.Event) bool   // whether an event is of this fault
	cause func(ev *event.Event) string // the cause shown in the table
}

// drills returns the faults of the demo, with their files below dir. They must not match other faults of
// the machine.
func drills(dir string) []drill {
	onOurLoop := func(ev *event.Event) bool {
		return ev.Device != nil && len(ev.Device.Mounts) > 0 && strings.HasPrefix(ev.Device.Mounts[0].Path, dir)
	}
	target := func(name string) func(*event.Event) bool {
		return func(ev *event.Event) bool { return ev.SockFail != nil && ev.SockFail.Target == "inject "+name }
	}
	verdict := func(ev *event.Event) string {
		d := ev.SockFail
		switch d.Verdict {
		case event.VerdictAcceptQueueFull:
			return fmt.Sprintf("accept queue %d/%d", d.QueueLen, d.QueueMax)
		case event.VerdictTimeout:
			return fmt.Sprintf("SYN unanswered, sent %d×", d.Retransmits+1)
		case event.VerdictRefused:
			return "nothing listens"
		case event.VerdictReset:
			return "reset after connect"
		}
		return d.Verdict
	}
	return []drill{
		{
			fault: "oom", rule: "oom-kill",
			match: func(ev *event.Event) bool {
				return ev.Task.Comm == "kn-oom-child" && ev.Cgroup != nil && strings.Contains(ev.Cgroup.Path, fmt.Sprintf("-%d-", os.Getpid()))
			},
			cause: func(ev *event.Event) string { return fmt.Sprintf("limit %d MiB", ev.OOMKill.Limit>>20) },
		},
		{
			// The duration separates these failures from the next drill's, which uses the same loop device.
			fault: "disk-error", lasts: 3 * time.Second, rule: "disk-io-error",
			match: onOurLoop,
			cause: func(ev *event.Event) string {
				return fmt.Sprintf("%s, %s @%d", ev.DiskIO.Error, ev.DiskIO.Op, ev.DiskIO.Sector)
			},
		},
		{
			fault: "readonly-fs", lasts: 3 * time.Second, rule: "readonly-filesystem",
			match: onOurLoop,
			cause: func(ev *event.Event) string { return ev.Mount.FSType + " " + ev.Mount.Reason },
		},
		{
			fault: "hung-task", lasts: 9 * time.Second, rule: "task-hung",
			match: func(ev *event.Event) bool { return strings.HasPrefix(ev.Task.Comm, "kn-hang") },
			cause: func(ev *event.Event) string {
				if ev.HungTask.Holder == nil {
					return ev.HungTask.Wait
				}
				return ev.HungTask.Lock + " held by " + ev.HungTask.Holder.String()
			},
		},
		{fault: "probe-refused", rule: "probe-target-refused", match: target("probe-refused"), cause: verdict},
		// Its Diagnosis finds nothing: new connections succeed.
		{fault: "probe-reset", count: 6, rule: "probe-target-reset", match: target("probe-reset"), cause: verdict},
		{fault: "accept-queue-full", rule: "probe-target-accept-queue-full", match: target("accept-queue-full"), cause: verdict},
		{fault: "probe-timeout", rule: "probe-target-timeout", match: target("probe-timeout"), cause: verdict},
	}
}

type outcome struct {
	drill
	refused string // why this machine can't have the fault
	err     error
	event   *event.Event
	problem *problem.Problem
	after   time.Duration
	cleared bool
}

// detected records the first transition that reports the drill's fault. It reports whether e has one.
func (o *outcome) detected(e journal.Entry, fsErrors map[string]time.Time) bool {
	for _, t := range e.Transitions {
		p := t.Problem
		if p == nil || p.Rule != o.rule || p.State != problem.Firing || e.Event == nil || !o.match(e.Event) {
			continue
		}
		o.event, o.problem = e.Event, p
		o.after = e.Now.Sub(e.Event.Time)
		switch {
		case e.Event.HungTask != nil:
			o.after += time.Duration(e.Event.HungTask.BlockedFor)
		case e.Event.SockFail != nil:
			o.after += time.Duration(e.Event.SockFail.Duration)
		case e.Event.Mount != nil:
			if at, ok := fsErrors[e.Event.Device.Name]; ok {
				o.after = e.Now.Sub(at)
			}
		}
		return true
	}
	return false
}

// attributedTo returns the subject of the fault and, if the subject is not a process, the process.
func attributedTo(o *outcome) string {
	if o.event.Task != nil && o.event.SockFail == nil {
		return o.event.Task.String() + " in " + o.problem.Subject
	}
	if o.event.Conn != nil {
		return o.event.Conn.Dst.String() + " (" + o.event.SockFail.Target + ")"
	}
	return o.problem.Subject
}

func roundLatency(d time.Duration) time.Duration {
	switch {
	case d < time.Millisecond:
		return d.Round(time.Microsecond)
	case d < time.Second:
		return d.Round(100 * time.Microsecond)
	}
	return d.Round(100 * time.Millisecond)
}
