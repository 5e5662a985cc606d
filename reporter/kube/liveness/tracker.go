package liveness

import (
	"iter"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	corev1helpers "k8s.io/component-helpers/scheduling/corev1"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"
	"k8s.io/klog/v2"
	"k8s.io/utils/ptr"

	"github.com/kernosis/kernosis/reporter/kube/lease"
)

// tracker has the observations of all nodes. It is safe for concurrent use.
type tracker struct {
	periods periods
	types   []string // from the configuration; nil: those that most agents list
	// stale is the age after which the view of all nodes is computed again.
	stale time.Duration

	mu    sync.Mutex
	nodes map[string]*observation
	sets  map[string]*appsv1.DaemonSet // of the agents, by name
	view  view
	crowd map[string]*lease.Crowd // by zone
}

func newTracker(p periods, types []string) *tracker {
	return &tracker{
		periods: p, types: slices.Sorted(slices.Values(types)), nodes: map[string]*observation{}, sets: map[string]*appsv1.DaemonSet{}, crowd: map[string]*lease.Crowd{},
		// Fine enough for the smallest period, and at most once a second, because it goes over
		// all nodes.
		stale: min(time.Second, p.silent/20),
	}
}

func (t *tracker) of(node string) *observation {
	o := t.nodes[node]
	if o == nil {
		o = &observation{}
		t.nodes[node] = o
	}
	return o
}

// lose records that the Node, Lease or pod of a node is gone. It removes the node once none of them
// exists.
func (t *tracker) lose(node string, gone func(o *observation)) {
	t.mu.Lock()
	defer t.mu.Unlock()
	o := t.nodes[node]
	if o == nil {
		return
	}
	gone(o)
	if !o.node && !o.lease && len(o.pods) == 0 {
		delete(t.nodes, node)
	}
}

// seeNode records a Node, which may be a new one of the same name.
func (t *tracker) seeNode(n *corev1.Node, now time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	o := t.of(n.Name)
	if !o.node || o.nodeUID != n.UID {
		o.nodeSince, o.spokenFor = now, nil
		o.heard = o.lease
	}
	o.node, o.nodeUID, o.zone, o.object, o.unwanted = true, n.UID, zoneOf(n), n, t.unwanted(n)
	// A returning agent may write its conditions before its Lease. The controller must not
	// overwrite them in between, so the Lease has a full period to follow.
	if takenBack(o.spokenFor, n) {
		o.renewed = now
	}
	o.spokenFor = nil
	for _, c := range n.Status.Conditions {
		if c.Reason == lease.ReasonUnknown {
			o.spokenFor = append(o.spokenFor, string(c.Type))
		}
	}
}

// takenBack reports whether another client has overwritten a condition that the controller has set.
func takenBack(spokenFor []string, n *corev1.Node) bool {
	return slices.ContainsFunc(spokenFor, func(t string) bool {
		c := find(n.Status.Conditions, t)
		return c != nil && c.Reason != lease.ReasonUnknown && c.Reason != lease.ReasonNeverUpdated
	})
}

// zoneOf returns a name for a Node's zone, which is unique only within its region. It returns ""
// if the Node has no zone.
func zoneOf(n *corev1.Node) string {
	return strings.TrimPrefix(n.Labels[corev1.LabelTopologyRegion]+"/"+n.Labels[corev1.LabelTopologyZone], "/")
}

// seeLease records a Lease. It returns whether to reconcile the Node: a mere renewal is expected
// and needs no action, and a timer fires if the next one is missing.
func (t *tracker) seeLease(node string, l *coordinationv1.Lease, now time.Time) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	o := t.of(node)
	before, _ := judge(o, now, t.periods)
	says := ptr.Deref(l.Spec.RenewTime, metav1.MicroTime{}).Time
	if !o.heard || !says.Equal(o.renewTime) {
		o.renewed, o.renewTime = now, says
	}
	o.patience = lease.Patience(l)
	draining, list := !lease.DrainingSince(l).IsZero(), lease.TypesOf(l)
	changed := draining != o.draining || !slices.Equal(list, o.types)
	o.lease, o.heard, o.draining, o.types, o.owner = true, true, draining, list, ownerOf(l)
	return changed || before != stateReporting && before != stateDraining
}

// ownerOf returns the UID of the Node that owns a Lease, or "".
func ownerOf(l *coordinationv1.Lease) types.UID {
	for _, r := range l.OwnerReferences {
		if r.Kind == "Node" && r.APIVersion == corev1.SchemeGroupVersion.String() {
			return r.UID
		}
	}
	return ""
}

func (t *tracker) seePod(p *corev1.Pod, now time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	o := t.of(p.Spec.NodeName)
	if o.pods == nil {
		o.pods = map[types.UID]time.Time{}
	}
	if _, ok := o.pods[p.UID]; !ok {
		o.pods[p.UID] = now
	}
}

func (t *tracker) seeSet(d *appsv1.DaemonSet) {
	t.mu.Lock()
	defer t.mu.Unlock()
	old := t.sets[d.Name]
	t.sets[d.Name] = d
	if old == nil || old.UID != d.UID || old.Generation != d.Generation {
		t.wantAnew()
	}
}

func (t *tracker) loseSet(name string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.sets, name)
	t.wantAnew()
}

// wantAnew updates which nodes should have an agent; mu is held.
func (t *tracker) wantAnew() {
	for _, o := range t.nodes {
		o.unwanted = o.node && t.unwanted(o.object)
	}
}

// unwanted reports whether there are DaemonSets, but none wants a pod on a Node; mu is held.
func (t *tracker) unwanted(n *corev1.Node) bool {
	for _, d := range t.sets {
		if Wants(d, n) {
			return false
		}
	}
	return len(t.sets) > 0
}

// Wants reports whether a DaemonSet would create a pod on a Node: its node selector and required
// affinity match the Node, and it tolerates the Node's taints. Pods of DaemonSets tolerate
// Kubernetes' own taints, such as those of cordoned Nodes.
func Wants(d *appsv1.DaemonSet, n *corev1.Node) bool {
	pod := &corev1.Pod{Spec: d.Spec.Template.Spec}
	if selected, _ := nodeaffinity.GetRequiredNodeAffinity(pod).Match(n); !selected { // the API server has checked the terms
		return false
	}
	_, repelled := corev1helpers.FindMatchingUntoleratedTaint(klog.Background(), n.Spec.Taints, pod.Spec.Tolerations, func(t *corev1.Taint) bool {
		return t.Effect != corev1.TaintEffectPreferNoSchedule && !strings.HasPrefix(t.Key, "node.kubernetes.io/")
	}, true)
	return !repelled
}

// runs reports whether a pod belongs to a DaemonSet, is on a node, and is not ending.
func runs(p *corev1.Pod) bool {
	of := metav1.GetControllerOf(p)
	return of != nil && of.Kind == "DaemonSet" && p.Spec.NodeName != "" && p.DeletionTimestamp == nil &&
		p.Status.Phase != corev1.PodSucceeded && p.Status.Phase != corev1.PodFailed
}

// judgement is the current state of one node's agent and zone.
type judgement struct {
	observation
	state  state
	until  time.Time // when state changes; zero: it does not
	common []string  // types for an agent that has never reported
	zone   zoneView
	halted bool
}

func (t *tracker) judge(node string, now time.Time) judgement {
	t.mu.Lock()
	defer t.mu.Unlock()
	o := t.nodes[node]
	if o == nil {
		return judgement{state: stateNone}
	}
	t.look(now)
	j := judgement{observation: *o, common: t.types, zone: t.view.zones[o.zone], halted: t.view.halted}
	j.pods = nil // shared with handlers; judged below
	if len(t.types) == 0 {
		j.common = t.view.common
	}
	j.state, j.until = judge(o, now, t.periods.patient(j.zone.patience))
	return j
}

// look renews the view if it is stale. If all agents were quiet and one no longer is, an outage has
// just ended: each late or silent agent has a full period again.
func (t *tracker) look(now time.Time) {
	if !t.view.at.IsZero() && now.Sub(t.view.at) < t.stale {
		return
	}
	was := t.view.halted
	t.assess(now)
	if !was || t.view.halted {
		return
	}
	for _, o := range t.nodes {
		if s, _ := judge(o, now, t.periods); s == stateLate || s == stateSilent {
			o.renewed = now
		}
	}
	t.assess(now)
}

// assess computes the view; mu is held.
func (t *tracker) assess(now time.Time) {
	t.view = assess(maps.Values(t.nodes), now, t.periods)
	crowded := false
	for name, z := range t.view.zones {
		if t.crowd[name] == nil {
			t.crowd[name] = &lease.Crowd{}
		}
		t.crowd[name].See(z.agents, z.crowd, now, max(z.longest, t.periods.silent))
		z.patience = t.crowd[name].Patience(now)
		t.view.zones[name] = z
		crowded = crowded || z.patience > 1
	}
	if !crowded {
		return
	}
	for _, o := range t.nodes { // agents with more patience are late, not silent
		if s, _ := judge(o, now, t.periods); s != stateSilent {
			continue
		}
		if s, _ := judge(o, now, t.periods.patient(t.view.zones[o.zone].patience)); s != stateSilent {
			t.view.states[stateSilent]--
			t.view.states[stateLate]++
		}
	}
}

// all returns the view of all nodes; it must not be changed.
func (t *tracker) all(now time.Time) view {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.look(now)
	return t.view
}

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
