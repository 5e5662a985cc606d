package policy

import (
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/labels"

	"github.com/kernosis/kernosis/diagnose/api/v1alpha1"
)

// Defaults are the schema's, for policies that no API server has completed.
const (
	defaultMaxNodes         = 1
	defaultMaxPercent       = 10
	defaultCooldown         = time.Hour
	defaultUnhealthyPercent = 30
	defaultVerifyWithin     = 5 * time.Minute
)

// Policy is a RemediationPolicy that has been read. It is not changed: what has the
// object's next state is another one.
type Policy struct {
	name     string
	spec     v1alpha1.RemediationPolicySpec // defaults filled in, steps in order
	entries  map[string]*v1alpha1.Repair    // by node; of a cooldown that is kept in brief only its node and end
	selector labels.Selector
	windows  []*window
	err      error
	known    atomic.Pointer[knownUse] // of the cluster that it was asked about last
}

// New reads a policy. It copies nothing: the object must not be changed any more. What is
// wrong with it is said by [Policy.Err]; such a policy allows nothing.
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
	if s.Mode == "" {
		s.Mode = v1alpha1.ModeObserve
	}
	if s.PauseWhenUnhealthyPercent == 0 {
		s.PauseWhenUnhealthyPercent = defaultUnhealthyPercent
	}
	if s.VerifyWithin.Duration == 0 {
		s.VerifyWithin.Duration = defaultVerifyWithin
	}
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
		return fmt.Errorf("mode: %q is unknown", p.spec.Mode)
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

// Err returns why the policy is not valid, with the field; nil: it is. The reason of its
// condition Accepted is then Invalid.
func (p *Policy) Err() error { return p.err }

// VerifyWithin returns the time in which the problem must be gone after a repair: a step of
// the escalation may have its own.
func (p *Policy) VerifyWithin(operation string) time.Duration {
	if i := p.step(operation); i >= 0 && p.spec.Escalation[i].Timeout != nil {
		return p.spec.Escalation[i].Timeout.Duration
	}
	return p.spec.VerifyWithin.Duration
}

func (p *Policy) cooldown() time.Duration { return cooldown(&p.spec) }

func cooldown(s *v1alpha1.RemediationPolicySpec) time.Duration {
	if s.CooldownPerNode == nil {
		return defaultCooldown
	}
	return s.CooldownPerNode.Duration
}

// Selects reports whether the policy has a say on a node. One whose selector can't be read
// has a say on all.
func (p *Policy) Selects(n *Node) bool {
	return p.selector == nil || p.selector.Matches(labels.Set(n.Labels))
}

// counts reports whether a node is one that the policy repairs: the base of its percents.
func (p *Policy) counts(n *Node) bool {
	return p.Selects(n) && (p.spec.IncludeControlPlane || !n.ControlPlane)
}

// budget returns the budget's two numbers.
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

// limit returns how many of so many nodes may be under repair at once. A percent is
// rounded down, for it is a bound; but it is at least one node where it isn't 0 %, else no
// small cluster would ever be repaired.
func (p *Policy) limit(nodes int32) int32 {
	most, percent := p.budget()
	share := nodes * percent / 100
	if percent > 0 {
		share = max(share, 1)
	}
	return min(share, most)
}

// stamp writes a time as messages have it: a fixed one, so that a message stays the same
// while what it says does.
func stamp(t time.Time) string { return t.UTC().Format(time.RFC3339) }
