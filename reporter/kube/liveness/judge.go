package liveness

import (
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kernosis/kernosis/reporter/kube/lease"
)

// periods are how long the controller waits. All are more than zero.
type periods struct {
	silent   time.Duration // without a renewal
	draining time.Duration // without a renewal after one marked as draining
	startUp  time.Duration // a pod without a Lease
	// patience is how many periods an agent that is not draining has, more than one during a crowd of
	// late agents; 0: one.
	patience int
}

// patient returns the periods during a crowd of late agents.
func (p periods) patient(times int) periods {
	p.patience = times
	return p
}

// observation has the observed facts about one node. Times are by the controller's clock, except
// renewTime.
type observation struct {
	node      bool // the Node exists
	nodeUID   types.UID
	nodeSince time.Time
	zone      string

	lease     bool          // the Lease exists now
	heard     bool          // the Lease has existed during the Node's life
	owner     types.UID     // the Node that the Lease belongs to; empty: unknown
	renewed   time.Time     // when the Lease was last seen to change
	renewTime time.Time     // spec.renewTime of the Lease
	patience  time.Duration // how long the agent may be quiet according to the Lease
	draining  bool
	types     []string // never changed in place
	spokenFor []string // condition types that the controller has set to Unknown, as last seen

	pods map[types.UID]time.Time // pods of the agent, with the time since they are on the node

	object   *corev1.Node // as last seen in the cache
	unwanted bool         // the agent has DaemonSets, but none wants a pod on the node
}

type state string

const (
	stateNone      state = "none"      // no agent is expected
	stateStarting  state = "starting"  // its pod is new
	stateReporting state = "reporting" //
	stateDraining  state = "draining"  // it is shutting down
	stateLate      state = "late"      // renewals are missing
	stateSilent    state = "silent"    // the controller must act for it
	stateNever     state = "never"     // its pod has been there for long, but there never was a Lease
)

// judge returns the state of an agent, and when it changes if nothing more is observed; zero: it
// does not.
func judge(o *observation, now time.Time, p periods) (state, time.Time) {
	if !o.node {
		return stateNone, time.Time{}
	}
	if o.reports() {
		quiet, period, left := now.Sub(o.renewed), o.period(p), o.left()
		until := o.renewed.Add(period)
		switch {
		case quiet >= period && left:
			return stateNone, time.Time{}
		case quiet >= period:
			return stateSilent, time.Time{}
		case lease.Late(quiet, period) && !left:
			// The outage of a zone must be detected before its first agent counts as silent, not
			// after most of its Nodes have been written.
			return stateLate, until
		case o.draining:
			return stateDraining, until
		}
		return stateReporting, until
	}
	since, ok := o.podSince()
	if !ok {
		// The watch may deliver the pod a moment after the Node.
		if until := o.nodeSince.Add(p.silent); now.Before(until) {
			return stateStarting, until
		}
		return stateNone, time.Time{}
	}
	if until := since.Add(p.startUp); now.Before(until) {
		return stateStarting, until
	}
	return stateNever, time.Time{}
}

// period returns how long the agent may be quiet. If its Lease has a longer duration because it
// renews less often, that is used, plus a quarter, as 50 s are to the usual 40.
func (o *observation) period(p periods) time.Duration {
	if o.draining {
		return max(p.draining, o.patience)
	}
	return max(p.silent, o.patience) * time.Duration(max(p.patience, 1))
}

// reports says whether an agent of this Node has ever renewed a Lease, as far as observed. The
// Lease of an earlier Node of the same name does not count.
func (o *observation) reports() bool {
	return o.heard && (o.owner == "" || o.owner == o.nodeUID)
}

// left reports whether the agent has ended for good: it was draining or its Lease was deleted,
// and no DaemonSet wants a pod on the node.
func (o *observation) left() bool {
	return o.unwanted && len(o.pods) == 0 && (o.draining || !o.lease)
}

// podSince returns since when the oldest of the agent's pods has been on the node.
func (o *observation) podSince() (since time.Time, ok bool) {
	for _, at := range o.pods {
		if !ok || at.Before(since) {
			since, ok = at, true
		}
	}
	return since, ok
}
