package policy

import (
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kernosis/kernosis/diagnose/api/v1alpha1"
)

// Holder is what has become of the Diagnosis that holds a slot.
type Holder string

// Holders.
const (
	HolderRuns      Holder = "Runs"      // it has not ended
	HolderIdle      Holder = "Idle"      // it has ended, and no repair of it had begun
	HolderHelped    Holder = "Helped"    // its repair was verified
	HolderNotHelped Holder = "NotHelped" // its problem was not gone in time
	// HolderLost: it is gone, or has ended in a way that nobody verifies: failed,
	// cancelled, or with an outcome that isn't known.
	HolderLost Holder = "Lost"
)

// HolderOf says what has become of a Diagnosis; nil: there is none of the UID. repaired
// says whether it has an operation begun whose effect is Remediate.
func HolderOf(d *v1alpha1.Diagnosis, repaired bool) Holder {
	switch {
	case d == nil:
		return HolderLost
	case !d.Status.Phase.Ended():
		return HolderRuns
	}
	switch c := meta.FindStatusCondition(d.Status.Conditions, v1alpha1.ConditionVerified); {
	case c != nil && c.Status == metav1.ConditionTrue:
		return HolderHelped
	case c != nil && c.Status == metav1.ConditionFalse:
		return HolderNotHelped
	case !repaired && d.Status.Phase != v1alpha1.PhaseUnknown:
		return HolderIdle
	}
	return HolderLost
}

// Facts are what [Settle] goes by.
type Facts struct {
	Now    time.Time
	Node   *Node // nil: there is none of the name
	Holder Holder
	// HolderEnded is when the Diagnosis ended; zero: not known, or not yet.
	HolderEnded time.Time
	// Gentle: the operation leaves the pods of the node alone, as a cordon does. All that
	// is not known to be gentle may take the node out of service for longer than anybody
	// waits: a drain, a reboot, a script.
	Gentle bool
}

// Settlement is what becomes of a slot.
type Settlement string

// Settlements.
const (
	Keep   Settlement = "Keep"   // it is held on
	End    Settlement = "End"    // it is given back, and the node's cooldown begins
	Remove Settlement = "Remove" // it is given back as if it had never been taken: so is what it was taken from
)

// Settle says what becomes of a slot that is held.
//
// Time alone never gives back the slot of a repair that isn't gentle and has not helped:
// its node must be in service again, or gone. Nor is a slot ever lost: where its holder
// has ended or is gone, each node is either in service, and the slot is given back after
// verifyWithin, or out of service, and would use up the budget without a slot as well.
func Settle(r *v1alpha1.Repair, f *Facts, verifyWithin time.Duration) Settlement {
	inService := f.Node != nil && f.Node.InService()
	overdue := !f.Now.Before(later(r.StartTime.Time, f.HolderEnded).Add(verifyWithin))
	switch {
	case f.Node == nil || f.Holder == HolderIdle:
		return Remove
	case f.Holder == HolderHelped,
		f.Holder == HolderNotHelped && (f.Gentle || inService),
		f.Holder == HolderLost && overdue && (f.Gentle || inService):
		return End
	default:
		return Keep
	}
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// take enters a repair. A diagnosis that goes on with its next repair keeps its entry's
// start; one that goes on from another's keeps that entry, for [give].
func take(p *v1alpha1.RemediationPolicy, w *Want, holder string, now time.Time) {
	entry := v1alpha1.Repair{Node: w.Node, Diagnosis: w.Diagnosis, Operation: w.Operation, Holder: holder, StartTime: metav1.NewTime(now.Truncate(time.Second))}
	i := indexOf(p, w.Node)
	if i < 0 {
		enter(p, entry)
		return
	}
	if old := &p.Status.Repairs[i]; holds(old, w.Diagnosis) {
		entry.StartTime, entry.Before = old.StartTime, old.Before
	} else {
		entry.Before = &v1alpha1.RepairBefore{Diagnosis: old.Diagnosis, Operation: old.Operation, StartTime: old.StartTime, EndTime: old.EndTime}
	}
	p.Status.Repairs[i] = entry
}

// give gives a node's entry back, if the diagnosis holds it. It returns whether it did.
func give(p *v1alpha1.RemediationPolicy, node string, diagnosis types.UID, s Settlement, now time.Time) bool {
	i := indexOf(p, node)
	if i < 0 || s == Keep || !holds(&p.Status.Repairs[i], diagnosis) {
		return false
	}
	r := &p.Status.Repairs[i]
	switch before := r.Before; {
	case s == Remove && before == nil:
		p.Status.Repairs = slices.Delete(p.Status.Repairs, i, i+1)
		return true
	case s == Remove:
		*r = v1alpha1.Repair{Node: node, Diagnosis: before.Diagnosis, Operation: before.Operation, StartTime: before.StartTime, EndTime: before.EndTime}
		return true
	}
	// The API keeps whole seconds: up, so that no cooldown is cut.
	end := metav1.NewTime(now.Add(time.Second - 1).Truncate(time.Second))
	r.EndTime, r.Before = &end, nil
	return true
}

// enter adds an entry. Where the list is full, the repair that ended first goes among the
// cooldowns, where only its node and its end are kept: an escalation that would go on from
// it waits for its cooldown then.
func enter(p *v1alpha1.RemediationPolicy, r v1alpha1.Repair) {
	s := &p.Status
	if len(s.Repairs) >= maxRepairs {
		first := -1
		for i := range s.Repairs {
			if end := s.Repairs[i].EndTime; end != nil && (first < 0 || end.Before(s.Repairs[first].EndTime)) {
				first = i
			}
		}
		if first >= 0 {
			s.Cooldowns = append(s.Cooldowns, v1alpha1.Cooldown{Node: s.Repairs[first].Node, EndTime: *s.Repairs[first].EndTime})
			s.Repairs = slices.Delete(s.Repairs, first, first+1)
		}
	}
	s.Repairs = append(s.Repairs, r)
}

// forget takes away entries whose cooldown is over. It returns how many.
func forget(p *v1alpha1.RemediationPolicy, now time.Time) int {
	return forgetEnded(p, func(_ string, end *metav1.Time) bool { return !now.Before(end.Add(cooldown(&p.Spec))) })
}

// forgetGone takes away the cooldowns of nodes that are gone, where the policy is full:
// else that of a node that comes back under its name still counts.
func forgetGone(p *v1alpha1.RemediationPolicy, c *Cluster) {
	if len(p.Status.Repairs)+len(p.Status.Cooldowns) < maxEntries {
		return
	}
	known := c.names()
	forgetEnded(p, func(node string, _ *metav1.Time) bool { return !known[node] })
}

func forgetEnded(p *v1alpha1.RemediationPolicy, gone func(node string, end *metav1.Time) bool) int {
	s := &p.Status
	before := len(s.Repairs) + len(s.Cooldowns)
	s.Repairs = slices.DeleteFunc(s.Repairs, func(r v1alpha1.Repair) bool { return r.EndTime != nil && gone(r.Node, r.EndTime) })
	s.Cooldowns = slices.DeleteFunc(s.Cooldowns, func(c v1alpha1.Cooldown) bool { return gone(c.Node, &c.EndTime) })
	return before - len(s.Repairs) - len(s.Cooldowns)
}

func indexOf(p *v1alpha1.RemediationPolicy, node string) int {
	return slices.IndexFunc(p.Status.Repairs, func(r v1alpha1.Repair) bool { return r.Node == node })
}

func holds(r *v1alpha1.Repair, diagnosis types.UID) bool {
	return r.EndTime == nil && r.Diagnosis == diagnosis
}
