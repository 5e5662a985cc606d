package liveness

import (
	"maps"
	"slices"
	"sync"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

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

// tidy removes a node if neither Node, Lease nor pod exist any more.
func (t *tracker) tidy(node string) {
	if o := t.nodes[node]; o != nil && !o.node && !o.lease && len(o.pods) == 0 {
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

// takenBack reports whether another client has overwritten a condition that the controller has
// set.
func takenBack(spokenFor []string, n *corev1.Node) bool {
	return slices.ContainsFunc(spokenFor, func(t string) bool {
		c := find(n.Status.Conditions, t)
		return c != nil && c.Reason != lease.ReasonUnknown && c.Reason != lease.ReasonNeverUpdated
	})
}

// zoneOf returns a name for a Node's zone, which is unique only within its region. It returns ""
// if the Node has no zone.
func zoneOf(n *corev1.Node) string {
	region, zone := n.Labels[corev1.LabelTopologyRegion], n.Labels[corev1.LabelTopologyZone]
	if region == "" {
		return zone
	}
	return region + "/" + zone
}

func (t *tracker) loseNode(name string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if o := t.nodes[name]; o != nil {
		o.node, o.nodeUID, o.object = false, "", nil
		t.tidy(name)
	}
}

// seeLease records a Lease. It returns whether to reconcile the Node: a mere renewal is expected
// and needs no action, and a timer fires if the next one is missing.
func (t *tracker) seeLease(node string, l *coordinationv1.Lease, now time.Time) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	o := t.of(node)
	before, _ := judge(o, now, t.periods)
	says := time.Time{}
	if l.Spec.RenewTime != nil {
		says = l.Spec.RenewTime.Time
	}
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

// loseLease records that a Lease was deleted. Its agent stays as silent as it was, and has left
// the conditions that it listed.
func (t *tracker) loseLease(node string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if o := t.nodes[node]; o != nil {
		o.lease = false
		t.tidy(node)
	}
}

// seePod records a pod of the agent on a node.
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

func (t *tracker) losePod(p *corev1.Pod) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if o := t.nodes[p.Spec.NodeName]; o != nil {
		delete(o.pods, p.UID)
		t.tidy(p.Spec.NodeName)
	}
}

// seeSet records a DaemonSet of the agents.
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

// judge returns the current judgement of a node.
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

// look renews the view if it is stale. If all agents were quiet and one no longer is, each late or
// silent agent has a full period again: whatever cut them off has just ended.
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
