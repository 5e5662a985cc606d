package liveness

import (
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kernosis/kernosis/reporter/kube/lease"
)

// periods are how long is waited. All are more than zero.
type periods struct {
	silent   time.Duration // without a renewal
	draining time.Duration // without a renewal after one that said draining
	startUp  time.Duration // of a pod without a Lease
}

// patient returns the periods beside a crowd of late agents.
func (p periods) patient(times int) periods {
	p.silent *= time.Duration(times)
	return p
}

// observation is what was seen of one node. Times are of the controller's clock, but
// for renewTime.
type observation struct {
	node      bool // the Node exists
	nodeUID   types.UID
	nodeSince time.Time
	zone      string

	lease     bool          // there is a Lease now
	heard     bool          // there was one while the Node existed
	owner     types.UID     // the Node that it belongs to; empty: it does not say
	renewed   time.Time     // when it was last seen to change
	renewTime time.Time     // what it says
	patience  time.Duration // how long the agent may be quiet by what it says
	draining  bool
	types     []string // never changed in place
	spokenFor []string // condition types that the controller has made Unknown, as last seen

	pods map[types.UID]time.Time // of the agent, since when they are on the node

	object   *corev1.Node // as it was last seen, of the cache
	unwanted bool         // there are DaemonSets of the agent, and none wants a pod on the node
}

// state is what is to be thought of a node's agent.
type state string

const (
	stateNone      state = "none"      // no agent is meant to be there
	stateStarting  state = "starting"  // its pod is new
	stateReporting state = "reporting" //
	stateDraining  state = "draining"  // it has said that it ends
	stateLate      state = "late"      // renewals are missing
	stateSilent    state = "silent"    // it is to be spoken for
	stateNever     state = "never"     // its pod is there for long, and no Lease ever was
)

// judge returns the state of an agent, and when that changes if nothing more is seen;
// zero: it does not.
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
			// Whether a zone is in an outage has to be known before its first agent is
			// silent, and not when most of them were written down.
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

// period returns for how long the agent may be quiet. One that renews less often than
// others says so in its Lease: that is waited for, and a quarter more, as 50 s are to
// the usual 40.
func (o *observation) period(p periods) time.Duration {
	if o.draining {
		return max(p.draining, o.patience)
	}
	return max(p.silent, o.patience)
}

// reports says whether an agent of this Node has ever renewed a Lease, as far as
// seen. The Lease of an earlier Node of that name does not count.
func (o *observation) reports() bool {
	return o.heard && (o.owner == "" || o.owner == o.nodeUID)
}

// left says whether the agent has ended and none is to follow: it said so, or somebody deleted its
// Lease, and the node was taken out of the DaemonSet.
func (o *observation) left() bool {
	return o.unwanted && len(o.pods) == 0 && (o.draining || !o.lease)
}

// podSince returns since when the oldest of the agent's pods is on the node.
func (o *observation) podSince() (since time.Time, ok bool) {
	for _, at := range o.pods {
		if !ok || at.Before(since) {
			since, ok = at, true
		}
	}
	return since, ok
}
