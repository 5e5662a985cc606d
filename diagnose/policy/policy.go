package policy

import (
	"cmp"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/labels"

	"github.com/kernosis/kernosis/diagnose/api/v1alpha1"
)

// The defaults of the schema, for policies that have not passed through an API server.
const (
	defaultMaxNodes         = 1
	defaultMaxPercent       = 10
	defaultCooldown         = time.Hour
	defaultUnhealthyPercent = 30
	defaultVerifyWithin     = 5 * time.Minute
)

// Policy is a parsed RemediationPolicy. It is immutable: a new state of the object needs a new
// Policy.
type Policy struct {
	name     string
	spec     v1alpha1.RemediationPolicySpec // defaults filled in, steps in order
	entries  map[string]*v1alpha1.Repair    // by node; entries from Cooldowns have only node and end
	selector labels.Selector
	windows  []*window
	err      error
	known    atomic.Pointer[knownUse] // of the last cluster it was asked about
}

// New parses a policy. It copies nothing: the object must no longer change. [Policy.Err] returns
// what is wrong with the policy; an invalid policy allows nothing.
func New(p *v1alpha1.RemediationPolicy) *Policy {
	out := &Policy{name: p.Name, spec: p.Spec, entries: make(map[string]*v1alpha1.Repair, len(p.Status.Repairs)+len(p.Status.Cooldowns))}
	for i := range p.Status.Cooldowns {
		c := &p.Status.Cooldowns[i]
		out.entries[c.Node] = &v1alpha1.Repair{Node: c.Node, EndTime: &c.EndTime}
	}
	for i := range p.Status.Repairs {
		out.entries[p.Status.Repairs[i].Node] = &p.Status.Repairs[i]
	}
	s := &out.spec
	s.Mode = cmp.Or(s.Mode, v1alpha1.ModeObserve)
	s.PauseWhenUnhealthyPercent = cmp.Or(s.PauseWhenUnhealthyPercent, defaultUnhealthyPercent)
	s.VerifyWithin.Duration = cmp.Or(s.VerifyWithin.Duration, defaultVerifyWithin)
	s.Escalation = slices.SortedFunc(slices.Values(s.Escalation), func(a, b v1alpha1.EscalationStep) int { return int(a.Order - b.Order) })
	for i := range s.Escalation {
		s.Escalation[i].Attempts = max(s.Escalation[i].Attempts, 1)
	}
	out.err = out.read()
	return out
}

func (p *Policy) read() error {
	var err error
	if p.selector, err = p.spec.NodeSelector.Selector(); err != nil {
		return fmt.Errorf("nodeSelector: %w", err)
	}
	switch p.spec.Mode {
	case v1alpha1.ModeObserve, v1alpha1.ModeApprove, v1alpha1.ModeEnforce:
	default:
		return fmt.Errorf("mode: %q: want one of Observe, Approve, Enforce", p.spec.Mode)
	}
	for i := range p.spec.MaintenanceWindows {
		w, err := newWindow(&p.spec.MaintenanceWindows[i])
		if err != nil {
			return fmt.Errorf("maintenanceWindows[%d].%w", i, err)
		}
		p.windows = append(p.windows, w)
	}
	return nil
}

// Name returns the object's name.
func (p *Policy) Name() string { return p.name }

// Err returns why the policy is invalid, naming the field, or nil if it is valid. For an invalid
// policy, the reason of its condition Accepted is Invalid.
func (p *Policy) Err() error { return p.err }

// VerifyWithin returns how long after a repair the problem must be gone. A step of the escalation
// may override it.
func (p *Policy) VerifyWithin(operation string) time.Duration {
	if i := p.step(operation); i >= 0 && p.spec.Escalation[i].Timeout != nil {
		return p.spec.Escalation[i].Timeout.Duration
	}
	return p.spec.VerifyWithin.Duration
}

func cooldown(s *v1alpha1.RemediationPolicySpec) time.Duration {
	if s.CooldownPerNode == nil {
		return defaultCooldown
	}
	return s.CooldownPerNode.Duration
}

// Selects reports whether the policy applies to a node. A policy with an invalid selector applies
// to all.
func (p *Policy) Selects(n *Node) bool {
	return p.selector == nil || p.selector.Matches(labels.Set(n.Labels))
}

// counts reports whether the policy repairs a node. These nodes are the base of its percentages.
func (p *Policy) counts(n *Node) bool {
	return p.Selects(n) && (p.spec.IncludeControlPlane || !n.ControlPlane)
}

// budget returns the two limits of the budget.
func (p *Policy) budget() (maxNodes, maxPercent int32) {
	maxNodes, maxPercent = defaultMaxNodes, defaultMaxPercent
	if n := p.spec.Budget.MaxNodes; n != nil {
		maxNodes = *n
	}
	if n := p.spec.Budget.MaxPercent; n != nil {
		maxPercent = *n
	}
	return maxNodes, maxPercent
}

// limit returns how many of the given number of nodes may be under repair at once. A percentage is
// rounded down, because it is an upper bound, but to at least one node unless it is 0 %. Otherwise
// small clusters would never be repaired.
func (p *Policy) limit(nodes int32) int32 {
	most, percent := p.budget()
	share := nodes * percent / 100
	if percent > 0 {
		share = max(share, 1)
	}
	return min(share, most)
}

// stamp formats a time for messages. It is absolute, so that a message does not change while its
// facts don't.
func stamp(t time.Time) string { return t.UTC().Format(time.RFC3339) }
