package controller

import (
	"sync"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"

	"github.com/kernosis/kernosis/reporter/kube/lease"
)

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
		// This Lease has not been seen to change yet. Its agent counts as alive for one period; the
		// Lease's renewTime is the best guess at its last sign of life.
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

// nodeOf returns the node whose agent a Lease belongs to, or "" if it is not an agent's Lease.
func nodeOf(l *coordinationv1.Lease) string {
	node, ok := lease.NodeOf(l)
	if !ok {
		return ""
	}
	return node
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
