package policy

import (
	"fmt"
	"strings"
	"time"

	"github.com/kernosis/kernosis/diagnose/api/v1alpha1"
)

// decide applies one policy to a node that it selects.
func (p *Policy) decide(c *Cluster, n *Node, w *Want, now time.Time) Decision {
	d := p.never(n)
	if d.Verb == "" && p.spec.Mode == v1alpha1.ModeObserve {
		d = Decision{Verb: WouldRun, Reason: v1alpha1.ReasonObserveOnly, Message: "Observe"}
		if held := p.limits(c, w, now); held.Verb != "" {
			d.Message += fmt.Sprintf("; Enforce would not make it now: %s: %s", held.Reason, held.Message)
		}
	}
	if d.Verb == "" && p.spec.Mode == v1alpha1.ModeApprove && !approved(w) {
		// Before the limits: who approves need not wait for them.
		d = Decision{Verb: Wait, Reason: v1alpha1.ReasonAwaitingApproval, Message: fmt.Sprintf("plan %s awaits approval", w.Digest)}
		if w.Approval != nil {
			d.Message += fmt.Sprintf("; approved is another, %s", w.Approval.PlanDigest)
		}
		if held := p.turn(w, now); held.Verb == Withheld {
			d = held // no approval would help
		}
	}
	if d.Verb == "" {
		d = p.limits(c, w, now)
	}
	if d.Verb == "" {
		d = Decision{Verb: Run, Reason: v1alpha1.ReasonAllowed, Message: string(p.spec.Mode)}
	}
	d.Policy, d.Message = p.name, bound(fmt.Sprintf("policy %s: %s", p.name, d.Message), v1alpha1.MaxMessageBytes)
	return d
}

// never returns why the policy never lets the node be repaired.
func (p *Policy) never(n *Node) Decision {
	switch {
	case p.err != nil:
		return Decision{Verb: Withheld, Reason: v1alpha1.ReasonInvalid, Message: p.err.Error()}
	case n.ControlPlane && !p.spec.IncludeControlPlane:
		return Decision{Verb: Withheld, Reason: v1alpha1.ReasonControlPlaneSkipped, Message: fmt.Sprintf("node %s is of the control plane", n.Name)}
	default:
		return Decision{}
	}
}

// limits returns what keeps the repair from being made now.
func (p *Policy) limits(c *Cluster, w *Want, now time.Time) Decision {
	if d := p.turn(w, now); d.Verb != "" {
		return d
	}
	if d := p.Paused(c, now); d.Verb != "" {
		return d
	}
	if d := p.busy(w, now); d.Verb != "" {
		return d
	}
	return p.used(c, w)
}

// Paused returns why the policy lets no node be repaired at present, as its condition
// Paused has it; the zero Decision where it does.
func (p *Policy) Paused(c *Cluster, now time.Time) Decision {
	if p.spec.Pause {
		return Decision{Verb: Wait, Reason: v1alpha1.ReasonPaused, Message: "paused"}
	}
	if d := p.storm(c); d.Verb != "" {
		return d
	}
	return p.outside(now)
}

// storm holds repairs while many nodes are not ready. One alone is never many: in a
// cluster of three it is 33 %.
func (p *Policy) storm(c *Cluster) Decision {
	var out []string
	nodes := 0
	for i := range c.Nodes {
		n := &c.Nodes[i]
		if !p.counts(n) {
			continue
		}
		nodes++
		if !n.Ready {
			out = append(out, n.Name)
		}
	}
	if percent := int(p.spec.PauseWhenUnhealthyPercent); len(out) < 2 || len(out)*100 < percent*nodes {
		return Decision{}
	}
	return Decision{
		Verb: Wait, Reason: v1alpha1.ReasonTooManyUnhealthy,
		Message: fmt.Sprintf("%d of %s not ready, pauseWhenUnhealthyPercent %d: %s", len(out), count(nodes, "node"), p.spec.PauseWhenUnhealthyPercent, list(out)),
	}
}

// outside holds repairs outside all maintenance windows.
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
		return Decision{Verb: Withheld, Reason: v1alpha1.ReasonOutsideWindow, Message: "no maintenance window ever opens"}
	default:
		return Decision{
			Verb: Wait, Reason: v1alpha1.ReasonOutsideWindow, Again: first,
			Message: "the next maintenance window opens " + first.Format(time.RFC3339),
		}
	}
}

// busy holds a repair while another diagnosis repairs the node, and in its cooldown.
func (p *Policy) busy(w *Want, now time.Time) Decision {
	r := p.repair(w.Node)
	switch {
	case r == nil || r.Diagnosis == w.Diagnosis && r.EndTime == nil:
		return Decision{}
	case r.EndTime == nil:
		return Decision{
			Verb: Wait, Reason: v1alpha1.ReasonNodeUnderRepair,
			Message: fmt.Sprintf("%s by diagnosis %s is under way on node %s since %s", r.Operation, r.Diagnosis, r.Node, stamp(r.StartTime.Time)),
		}
	}
	if until := r.EndTime.Add(p.cooldown()); now.Before(until) && !p.escalates(r, w) {
		return Decision{
			Verb: Wait, Reason: v1alpha1.ReasonCooldown, Again: until,
			Message: fmt.Sprintf("node %s had %s, which ended %s; cooldown %s, until %s", r.Node, r.Operation, stamp(r.EndTime.Time), p.cooldown(), stamp(until)),
		}
	}
	return Decision{}
}

// used holds a repair while the budget is used up by other nodes: those under repair, and
// those that are out of service for another reason. The node itself does not count
// against its own repair.
func (p *Policy) used(c *Cluster, w *Want) Decision {
	var users []string
	nodes := 0
	for i := range c.Nodes {
		n := &c.Nodes[i]
		counts := p.counts(n)
		if counts {
			nodes++
		}
		r := p.repair(n.Name)
		switch {
		case n.Name == w.Node:
		case r != nil && r.EndTime == nil:
			users = append(users, fmt.Sprintf("%s (%s by diagnosis %s)", n.Name, r.Operation, r.Diagnosis))
		case counts && !n.Ready:
			users = append(users, n.Name+" (not ready)")
		case counts && n.Cordoned:
			users = append(users, n.Name+" (cordoned)")
		}
	}
	for i := range p.repairs {
		// A node that the caller doesn't know of: not known yet, or gone. [Settle] tells.
		if r := &p.repairs[i]; r.EndTime == nil && c.node(r.Node) == nil {
			users = append(users, fmt.Sprintf("%s (%s by diagnosis %s)", r.Node, r.Operation, r.Diagnosis))
		}
	}
	limit, why := p.limit(nodes)
	if len(users) < limit {
		return Decision{}
	}
	message := fmt.Sprintf("no node may be under repair (%s)", why)
	if limit > 0 {
		message = fmt.Sprintf("%d of %s under repair or out of service (%s): %s", len(users), count(limit, "node"), why, list(users))
	}
	return Decision{Verb: Wait, Reason: v1alpha1.ReasonBudgetExhausted, Message: message}
}

// repair returns a node's entry, nil where it has none.
func (p *Policy) repair(node string) *v1alpha1.Repair {
	for i := range p.repairs {
		if p.repairs[i].Node == node {
			return &p.repairs[i]
		}
	}
	return nil
}

// bound cuts a text to what a message may have.
func bound(s string, most int) string {
	const mark = "…"
	if len(s) <= most {
		return s
	}
	return strings.ToValidUTF8(s[:most-len(mark)], "") + mark
}
