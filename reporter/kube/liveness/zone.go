package liveness

import (
	"iter"
	"slices"
	"time"

	"github.com/kernosis/kernosis/reporter/kube/lease"
)

const (
	// A zone is slowed when more than minOutage of its agents, and more than shareOutage of all,
	// are silent: the node lifecycle controller's numbers.
	minOutage   = 2
	shareOutage = 0.55
)

// zoneView counts the agents of one zone.
type zoneView struct {
	agents int // with a Lease
	quiet  int // of these, those that are late or silent
	crowd  int // of these, those in a crowd: see lease.InCrowd
	// longest is the longest period of these that are not draining.
	longest time.Duration
	// patience is the number of periods without a renewal after which an agent is silent.
	patience int
}

func (z zoneView) slowed() bool {
	return z.quiet > minOutage && float64(z.quiet) > shareOutage*float64(z.agents)
}

// view summarizes all agents at one time.
type view struct {
	at     time.Time
	zones  map[string]zoneView
	states map[state]int
	halted bool // all agents of all zones are quiet
	// common are the types that more than half of the reporting agents list; sorted.
	common []string
}

// assess computes the view of all nodes.
func assess(all iter.Seq[*observation], now time.Time, p periods) view {
	v := view{at: now, zones: map[string]zoneView{}, states: map[state]int{}}
	listed := map[string]int{}
	agents, quiet, reporting := 0, 0, 0
	for o := range all {
		s, _ := judge(o, now, p)
		if !o.node {
			continue
		}
		v.states[s]++
		z := v.zones[o.zone]
		switch s {
		case stateLate, stateSilent:
			z.agents, z.quiet = z.agents+1, z.quiet+1
			agents, quiet = agents+1, quiet+1
			if period := o.period(p); lease.InCrowd(now.Sub(o.renewed), period) {
				z.crowd++
				if !o.draining {
					z.longest = max(z.longest, period)
				}
			}
		case stateReporting, stateDraining:
			z.agents++
			agents, reporting = agents+1, reporting+1
			for _, t := range o.types {
				listed[t]++
			}
		case stateNone, stateStarting, stateNever:
		}
		v.zones[o.zone] = z
	}
	// One or two agents that are silent together are not an outage.
	v.halted = quiet == agents && quiet > minOutage
	for t, n := range listed {
		if 2*n > reporting {
			v.common = append(v.common, t)
		}
	}
	slices.Sort(v.common)
	return v
}
