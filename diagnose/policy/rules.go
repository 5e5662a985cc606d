package policy

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/kernosis/kernosis/collector/display"
	"github.com/kernosis/kernosis/diagnose/api/v1alpha1"
)

// decide applies one policy to a node that it selects.
func (p *Policy) decide(c *Cluster, n *Node, w *Want, now time.Time) Decision {
	d := p.never(n)
	if d.Verb == "" && p.spec.Mode == v1alpha1.ModeObserve {
		d = Decision{Verb: v1alpha1.RemediationWouldRun, Reason: v1alpha1.ReasonObserveOnly, Message: "Observe"}
		if held := p.limits(c, w, now); held.Verb != "" {
			d.Message += fmt.Sprintf("; Enforce would not make it now: %s: %s", held.Reason, held.Message)
		}
	}
	if d.Verb == "" && p.spec.Mode == v1alpha1.ModeApprove && !approved(w) {
		// Checked before the limits, so that the approval need not wait for them.
		d = wait(v1alpha1.ReasonAwaitingApproval, "plan %s awaits approval", w.Digest)
		if w.Approval != nil {
			d.Message += fmt.Sprintf("; another plan is approved, %s", w.Approval.PlanDigest)
		}
		if held := p.turn(w, now); held.Verb == v1alpha1.RemediationWithheld {
			d = held // an approval would not help
		}
	}
	if d.Verb == "" {
		d = p.limits(c, w, now)
	}
	if d.Verb == "" {
		d = Decision{Verb: v1alpha1.RemediationRun, Reason: v1alpha1.ReasonAllowed, Message: string(p.spec.Mode)}
	}
	d.Policy, d.Message = p.name, display.Bounded(fmt.Sprintf("policy %s: %s", p.name, d.Message), v1alpha1.MaxMessageBytes)
	return d
}

// never returns why the policy never allows repairs of the node.
func (p *Policy) never(n *Node) Decision {
	switch {
	case p.err != nil:
		return withheld(v1alpha1.ReasonInvalid, "%s", p.err)
	case n.ControlPlane && !p.spec.IncludeControlPlane:
		return withheld(v1alpha1.ReasonControlPlaneSkipped, "node %s belongs to the control plane", n.Name)
	}
	return Decision{}
}

// limits returns why the repair can't be made now.
func (p *Policy) limits(c *Cluster, w *Want, now time.Time) Decision {
	u := p.useOfOthers(c, w.Node)
	// The budget comes before the storm check: nodes that are not ready use the budget too, so a
	// few nodes that flap around the storm's threshold don't change the answer.
	d := cmp.Or(p.turn(w, now), p.pause(), p.outside(now), p.busy(w, now), p.used(&u), p.storm(&u))
	if d.Verb != "" || p.entries[w.Node] != nil {
		return d
	}
	return p.full(c, now)
}

// Paused returns why the policy currently allows no repairs, for its condition Paused, or the zero
// Decision if it does.
func (p *Policy) Paused(c *Cluster, now time.Time) Decision {
	u := p.Use(c)
	return cmp.Or(p.pause(), p.storm(&u), p.outside(now), p.full(c, now))
}

func (p *Policy) pause() Decision {
	if p.spec.Pause {
		return wait(v1alpha1.ReasonPaused, "paused")
	}
	return Decision{}
}

// maxUsers is how many of the nodes that use up a budget the status lists, and maxUser how long
// each text may be.
const maxUsers, maxUser = 16, 640

// useOfOthers returns how much of the budget all other nodes use.
func (p *Policy) useOfOthers(c *Cluster, node string) v1alpha1.BudgetUse {
	u := p.Use(c)
	if r := p.entries[node]; r != nil && r.EndTime == nil {
		u.Used--
	} else if n := c.Node(node); n != nil && p.counts(n) && !n.InService() {
		u.Used--
	}
	return u
}

// Use returns how much of the budget is used. The result is cached per cluster. Its numbers change
// with each node: they belong in the policy's status and metrics, but not in messages.
func (p *Policy) Use(c *Cluster) v1alpha1.BudgetUse {
	if known := p.known.Load(); known != nil && known.of == c {
		return known.use
	}
	u := p.use(c)
	p.known.Store(&knownUse{of: c, use: u})
	return u
}

// knownUse is a policy's cached use in a cluster.
type knownUse struct {
	of  *Cluster
	use v1alpha1.BudgetUse
}

func (p *Policy) use(c *Cluster) v1alpha1.BudgetUse {
	var u v1alpha1.BudgetUse
	add := func(node, why string, r *v1alpha1.Repair) {
		u.Used++
		if len(u.By) >= maxUsers {
			return
		}
		if r != nil {
			why = fmt.Sprintf("%s by diagnosis %s", r.Operation, r.Diagnosis)
		}
		u.By = append(u.By, display.Bounded(node+": "+why, maxUser))
	}
	for i := range c.Nodes {
		n := &c.Nodes[i]
		counts := p.counts(n)
		if counts {
			u.Nodes++
			if !n.Ready {
				u.NotReady++
			}
		}
		r := p.entries[n.Name]
		switch {
		case r != nil && r.EndTime == nil:
			add(n.Name, "", r)
		case counts && !n.Ready:
			add(n.Name, "not ready", nil)
		case counts && n.Cordoned:
			add(n.Name, "cordoned", nil)
		}
	}
	for _, node := range slices.Sorted(maps.Keys(p.entries)) {
		// The caller does not know the node: it is too new, or gone. [Settle] decides.
		if r := p.entries[node]; r.EndTime == nil && c.Node(node) == nil {
			add(node, "", r)
		}
	}
	u.Limit = p.limit(u.Nodes)
	return u
}

// storm holds back repairs while many nodes are not ready. A single node never counts as many: in a
// cluster of three it would be 33 %.
func (p *Policy) storm(u *v1alpha1.BudgetUse) Decision {
	percent := p.spec.PauseWhenUnhealthyPercent
	if u.NotReady < 2 || u.NotReady*100 < percent*u.Nodes {
		return Decision{}
	}
	return wait(v1alpha1.ReasonTooManyUnhealthy,
		"at least %d %% of the nodes are not ready (pauseWhenUnhealthyPercent); see status.budget of the policy", percent)
}

// maxEntries is how many nodes with repairs and cooldowns a policy stores.
const maxEntries = maxRepairs + maxCooldowns

// Exhausts reports whether other nodes use up the budget, so that a waiting repair of the node must
// continue to wait.
func (p *Policy) Exhausts(c *Cluster, node string) bool {
	u := p.useOfOthers(c, node)
	return p.err == nil && p.entries[node] == nil && p.used(&u).Verb != ""
}

// full holds back repairs of further nodes while there is no room for another entry.
func (p *Policy) full(c *Cluster, now time.Time) Decision {
	if len(p.entries) < maxEntries {
		return Decision{}
	}
	n := 0
	for node, r := range p.entries {
		if r.EndTime == nil || c.Node(node) != nil && now.Before(r.EndTime.Add(cooldown(&p.spec))) {
			n++
		}
	}
	if n < maxEntries {
		return Decision{}
	}
	return wait(v1alpha1.ReasonCooldownsFull,
		"%d nodes are under repair or in their cooldown, and a policy can track no more; shorten cooldownPerNode to make room", maxEntries)
}

// outside holds back repairs outside all maintenance windows.
func (p *Policy) outside(now time.Time) Decision {
	var first time.Time
	for _, w := range p.windows {
		open, next := w.open(now)
		if open {
			return Decision{}
		}
		if !next.IsZero() && (first.IsZero() || next.Before(first)) {
			first = next
		}
	}
	switch {
	case len(p.windows) == 0:
		return Decision{}
	case first.IsZero():
		return withheld(v1alpha1.ReasonOutsideWindow, "no maintenance window ever opens")
	}
	return waitUntil(first, v1alpha1.ReasonOutsideWindow,
		"the next maintenance window opens %s", first.Format(time.RFC3339))
}

// busy holds back a repair while another diagnosis repairs the node, and during its cooldown.
func (p *Policy) busy(w *Want, now time.Time) Decision {
	r := p.entries[w.Node]
	switch {
	case r == nil || r.Diagnosis == w.Diagnosis && r.EndTime == nil || p.escalates(r, w):
		return Decision{}
	case r.EndTime == nil:
		return wait(v1alpha1.ReasonNodeUnderRepair,
			"%s by diagnosis %s is under way on node %s since %s", r.Operation, r.Diagnosis, r.Node, stamp(r.StartTime.Time))
	}
	if until := r.EndTime.Add(cooldown(&p.spec)); now.Before(until) {
		return waitUntil(until, v1alpha1.ReasonCooldown,
			"node %s had %s, which ended %s; cooldown %s, until %s",
			r.Node, cmp.Or(r.Operation, "a repair"), stamp(r.EndTime.Time), cooldown(&p.spec), stamp(until))
	}
	return Decision{}
}

// used holds back a repair while other nodes exhaust the budget: nodes under repair, and nodes that
// are out of service for another reason. The node itself does not count against its own repair.
func (p *Policy) used(u *v1alpha1.BudgetUse) Decision {
	maxNodes, maxPercent := p.budget()
	switch {
	case u.Used < u.Limit:
		return Decision{}
	case maxNodes == 0:
		return wait(v1alpha1.ReasonBudgetExhausted, "no node may be under repair (maxNodes 0)")
	case maxPercent == 0:
		return wait(v1alpha1.ReasonBudgetExhausted, "no node may be under repair (maxPercent 0)")
	}
	return wait(v1alpha1.ReasonBudgetExhausted,
		"the budget is used up (maxNodes %d, maxPercent %d); see status.budget of the policy", maxNodes, maxPercent)
}
