package controller

import (
	"fmt"
	"sync"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"

	"github.com/kernosis/kernosis/diagnose/api/v1alpha1"
	"github.com/kernosis/kernosis/reporter/kube/lease"
)

// step is what to do with a Diagnosis now. The zero step does nothing.
type step struct {
	phase           v1alpha1.Phase // the final phase; empty: it has not ended
	reason, message string         // of the condition Complete
	again           time.Duration  // when to look again; 0: when something changes
}

// waits reports whether the step names what the Diagnosis waits for.
func (s *step) waits() bool { return s.phase == "" && s.reason != "" }

// ends returns the step that ends a Diagnosis which no agent will end. If it had begun a repair,
// the outcome is Unknown and a person must check it.
func ends(d *v1alpha1.Diagnosis, reason, message string) step {
	if node, ok := repairs(d); ok {
		return step{phase: v1alpha1.PhaseUnknown, reason: v1alpha1.ReasonOutcomeUnknown,
			message: fmt.Sprintf("the outcome of the repair %s (node %d) is unknown: %s", node.Operation, node.ID, message)}
	}
	return step{phase: v1alpha1.PhaseFailed, reason: reason, message: message}
}

// repairs returns the repair that a Diagnosis has begun and not finished.
func repairs(d *v1alpha1.Diagnosis) (v1alpha1.PlanStep, bool) {
	if c := d.Status.Checkpoint; c != nil && c.Intent != nil {
		return v1alpha1.PlanStep{ID: c.Intent.ID, Operation: c.Intent.Operation}, true
	}
	r := d.Status.Repairing()
	if r == nil {
		return v1alpha1.PlanStep{}, false
	}
	step := v1alpha1.PlanStep{ID: r.ID}
	if res := d.Status.Result(int(r.ID)); res != nil {
		step.Operation = res.Operation
	}
	return step, true
}

// judge returns the next step of a Diagnosis whose node exists.
func judge(d *v1alpha1.Diagnosis, a agent, c *Config, now time.Time) step {
	switch {
	case d.Status.Phase == "" || d.Status.Phase == v1alpha1.PhasePending:
		return judgePending(d, a, c, now)
	case !a.alive:
		return judgeSilent(d, a, c, c.RunningSilent, later(lastReported(d, now), a.last), now)
	}
	return judgeLeft(d, a, c, now, "has reported no progress for")
}

func judgePending(d *v1alpha1.Diagnosis, a agent, c *Config, now time.Time) step {
	full := waitsFor(d) == v1alpha1.ReasonQueueFull
	switch {
	case d.Spec.Cancel && (full || !a.alive):
		return step{phase: v1alpha1.PhaseCancelled, reason: v1alpha1.ReasonCancelled, message: "cancelled before it began"}
	case a.alive && full:
		return step{again: again(c.RunningSilent, c.RunningSilent)} // the agent has reported the full queue, and begins it later
	case a.alive:
		return judgeLeft(d, a, c, now, "has not started it within")
	}
	return judgeSilent(d, a, c, c.PendingSilent, later(d.CreationTimestamp.Time, a.last), now)
}

// judgeLeft handles a Diagnosis whose node has an agent that reports. The agent that runs the
// Diagnosis writes nothing while nothing changes, even for days if nobody approves a repair. So the
// Diagnosis is left to that agent while its Lease shows that it is alive. If the agent is gone,
// another one has RunningSilent to take the Diagnosis over. After an outage of the API, an agent
// has the same time again to report what it did meanwhile.
func judgeLeft(d *v1alpha1.Diagnosis, a agent, c *Config, now time.Time, what string) step {
	if a.runs {
		return step{again: again(c.RunningSilent, c.RunningSilent)}
	}
	left := later(later(lastReported(d, now), a.since), a.holder).Add(c.RunningSilent).Sub(now)
	if left <= 0 {
		return ends(d, v1alpha1.ReasonNodeSilent, fmt.Sprintf("the agent of node %s is alive but %s %s", d.Spec.NodeName, what, c.RunningSilent))
	}
	return step{again: again(left, min(c.PendingSilent, c.RunningSilent))}
}

// judgeSilent handles a Diagnosis whose agent has been silent for some time. It ends the Diagnosis
// only after the status has been AgentSilent for c.Silent: this proves that the API server was
// reachable, so the agent could have reported.
func judgeSilent(d *v1alpha1.Diagnosis, a agent, c *Config, wait time.Duration, since, now time.Time) step {
	why, said := fmt.Sprintf("no agent of node %s is reporting", d.Spec.NodeName), time.Duration(0)
	if a.known {
		last := a.last.UTC().Format(time.RFC3339)
		why = fmt.Sprintf("the agent of node %s has not reported since %s", d.Spec.NodeName, last)
	}
	if c := apimeta.FindStatusCondition(d.Status.Conditions, v1alpha1.ConditionComplete); c != nil && c.Reason == v1alpha1.ReasonAgentSilent {
		said = now.Sub(c.LastTransitionTime.Time)
	}
	left := max(since.Add(wait).Sub(now), c.Silent-said)
	if left <= 0 {
		return ends(d, v1alpha1.ReasonNodeSilent, fmt.Sprintf("%s; waited for %s", why, wait))
	}
	return step{reason: v1alpha1.ReasonAgentSilent, message: why, again: again(left, wait)}
}

// lastReported returns when an agent last wrote the Diagnosis' status, or else when it was created.
// An agent's clock may be wrong: times in the future are ignored.
func lastReported(d *v1alpha1.Diagnosis, now time.Time) time.Time {
	last := earlier(d.CreationTimestamp.Time, now)
	if s := d.Status.StartTime; s != nil && !s.After(now) {
		last = later(last, s.Time)
	}
	if c := d.Status.Checkpoint; c != nil && !c.Time.After(now) {
		last = later(last, c.Time.Time)
	}
	return last
}

// waitsFor returns the reason of the condition Complete, or "".
func waitsFor(d *v1alpha1.Diagnosis) string {
	if c := apimeta.FindStatusCondition(d.Status.Conditions, v1alpha1.ConditionComplete); c != nil {
		return c.Reason
	}
	return ""
}

// again returns when to check again something that ends in some time. Polling is needed because no
// watch event says that an agent went silent or is back.
func again(left, period time.Duration) time.Duration {
	return min(left, max(period/20, 100*time.Millisecond))
}

// agents tracks by their Leases which nodes' agents report. Its methods may be called by several
// goroutines.
type agents struct {
	silent time.Duration

	mu     sync.Mutex
	heard  map[string]*sign
	crowd  lease.Crowd
	looked time.Time // when the crowd was last updated
}

// sign is what has been observed of a Lease.
type sign struct {
	renewTime time.Time     // the Lease's renewTime, by the node's clock
	seen      time.Time     // when it was first seen, or last seen to change, by our clock
	last      time.Time     // the agent's last sign of life, as far as known
	since     time.Time     // when it was first heard, or heard again after a silence
	patience  time.Duration // how long the agent may stay quiet, according to the Lease
	holders   lease.Holders // which agents of the node run Diagnoses
}

// agent is the known state of a node's agent.
type agent struct {
	known bool      // it has, or had, a Lease
	alive bool      // it renews the Lease
	last  time.Time // sign of life
	since time.Time // since when it has reported without a pause, by our clock
	// holder is when the agent that runs the Diagnosis was last seen to renew the Lease, by our
	// clock; runs is whether it is alive. Of two agents of a node only one may run a Diagnosis.
	holder time.Time
	runs   bool
}

func newAgents(silent time.Duration) *agents {
	return &agents{silent: silent, heard: map[string]*sign{}}
}

// see records the current state of a Lease. It reports whether its agent was silent before.
func (a *agents) see(node string, l *coordinationv1.Lease, now time.Time) (back bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	says := time.Time{}
	if l.Spec.RenewTime != nil {
		says = l.Spec.RenewTime.Time
	}
	s := a.heard[node]
	switch {
	case s == nil:
		// No change of this Lease has been observed yet. Its agent counts as alive for one period;
		// the Lease's renewTime is the best estimate of its last sign of life.
		s = &sign{renewTime: says, seen: now, last: earlier(says, now), since: now}
		a.heard[node] = s
		back = true
	case !says.Equal(s.renewTime):
		if back = now.Sub(s.seen) >= max(a.silent, s.patience); back {
			s.since = now
		}
		s.renewTime, s.seen, s.last = says, now, now
	}
	s.holders.See(l, now)
	s.patience = lease.Patience(l)
	return back
}

// of returns the state of a node's agent, and of the agent named holder, which holds a Diagnosis'
// checkpoint. A deleted Lease needs no special case: it is simply no longer renewed.
func (a *agents) of(node, holder string, now time.Time) agent {
	a.mu.Lock()
	defer a.mu.Unlock()
	s := a.heard[node]
	if s == nil {
		return agent{}
	}
	a.look(now)
	patience := time.Duration(a.crowd.Patience(now)) * max(a.silent, s.patience)
	out := agent{known: true, alive: now.Sub(s.seen) < patience, last: s.last, since: s.since, holder: s.holders.Heard(holder)}
	out.runs = !out.holder.IsZero() && now.Sub(out.holder) < patience
	return out
}

// look checks at most once a second whether many agents are late together. The lock is held.
func (a *agents) look(now time.Time) {
	if now.Sub(a.looked) < time.Second && !a.looked.IsZero() {
		return
	}
	a.looked = now
	late := 0
	for _, s := range a.heard {
		if lease.InCrowd(now.Sub(s.seen), max(a.silent, s.patience)) {
			late++
		}
	}
	a.crowd.See(len(a.heard), late, now, a.silent)
}

// forget drops a node that was deleted.
func (a *agents) forget(node string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	delete(a.heard, node)
}

func earlier(a, b time.Time) time.Time {
	if a.Before(b) {
		return a
	}
	return b
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}
