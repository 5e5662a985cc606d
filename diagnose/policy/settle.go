package policy

import (
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kernosis/kernosis/diagnose/api/v1alpha1"
)

// Holder is the state of the Diagnosis that holds a slot.
type Holder string

// Values of Holder.
const (
	HolderRuns      Holder = "Runs"      // it has not ended
	HolderIdle      Holder = "Idle"      // it has ended without beginning a repair
	HolderHelped    Holder = "Helped"    // its repair was verified
	HolderNotHelped Holder = "NotHelped" // its problem was not gone within the time
	// HolderLost: the Diagnosis is gone, or has ended in a way that is never verified: failed,
	// cancelled, or with an unknown outcome.
	HolderLost Holder = "Lost"
)

// HolderOf returns the state of a Diagnosis; nil: there is none with the UID. repaired says whether
// it has begun an operation with effect Remediate.
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

// Facts is the input of [Settle].
type Facts struct {
	Now    time.Time
	Node   *Node // nil: there is no node of the name
	Holder Holder
	// HolderEnded is when the Diagnosis ended; zero: unknown, or not yet.
	HolderEnded time.Time
	// Gentle means that the operation does not affect the pods of the node, like a cordon. Any
	// other operation, such as a drain, a reboot or a script, may take the node out of service for
	// longer than any timeout.
	Gentle bool
}

// Settlement is what happens to a slot.
type Settlement string

// Values of Settlement.
const (
	Keep   Settlement = "Keep"   // it stays held
	End    Settlement = "End"    // it is released, and the node's cooldown begins
	Remove Settlement = "Remove" // it is released as if it had never been taken; the entry that it replaced is restored
)

// Settle decides what happens to a held slot.
//
// The slot of a repair that is not gentle and has not helped is not released by a timeout: its node
// must be in service again, or gone. Still no slot leaks. Once its holder has ended or is gone, the
// slot is released after verifyWithin if the node is in service; a node that is out of service
// counts against the budget even without a slot.
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

// take adds an entry for a repair. If the diagnosis continues with its next repair, the entry keeps
// its start. If it continues from another diagnosis' entry, that is kept in Before, for [give].
func take(p *v1alpha1.RemediationPolicy, w *Want, holder string, now time.Time) {
	entry := v1alpha1.Repair{Node: w.Node, Diagnosis: w.Diagnosis, Operation: w.Operation, Holder: holder, StartTime: metav1.NewTime(now.Truncate(time.Second))}
	i := indexOf(p, w.Node)
	if i < 0 {
		enter(p, entry)
		return
	}
	if old := &p.Status.Repairs[i]; slotOf(p, w.Node, w.Diagnosis) != nil {
		entry.StartTime, entry.Before = old.StartTime, old.Before
	} else {
		entry.Before = &v1alpha1.RepairBefore{Diagnosis: old.Diagnosis, Operation: old.Operation, StartTime: old.StartTime, EndTime: old.EndTime}
	}
	p.Status.Repairs[i] = entry
}

// give releases a node's entry if the diagnosis holds it, and reports whether it did.
func give(p *v1alpha1.RemediationPolicy, node string, diagnosis types.UID, s Settlement, now time.Time) bool {
	r := slotOf(p, node, diagnosis)
	if r == nil || s == Keep {
		return false
	}
	switch before := r.Before; {
	case s == Remove && before == nil:
		p.Status.Repairs = slices.DeleteFunc(p.Status.Repairs, func(r v1alpha1.Repair) bool { return r.Node == node })
		return true
	case s == Remove:
		*r = v1alpha1.Repair{Node: node, Diagnosis: before.Diagnosis, Operation: before.Operation, StartTime: before.StartTime, EndTime: before.EndTime}
		return true
	}
	// The API keeps whole seconds. Round up, so that no cooldown is cut short.
	r.EndTime, r.Before = new(metav1.NewTime(now.Add(time.Second-1).Truncate(time.Second))), nil
	return true
}

// enter adds an entry. If the list is full, the repair that ended first moves to the cooldowns,
// which keep only its node and its end. An escalation that would continue from it must then wait
// for its cooldown.
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

// forget removes entries whose cooldown is over, and returns how many.
func forget(p *v1alpha1.RemediationPolicy, now time.Time) int {
	return forgetEnded(p, func(_ string, end *metav1.Time) bool { return !now.Before(end.Add(cooldown(&p.Spec))) })
}

// forgetGone removes the cooldowns of deleted nodes, but only if the policy is full, because a node
// may come back under its name.
func forgetGone(p *v1alpha1.RemediationPolicy, c *Cluster) {
	if len(p.Status.Repairs)+len(p.Status.Cooldowns) < maxEntries {
		return
	}
	forgetEnded(p, func(node string, _ *metav1.Time) bool { return c.Node(node) == nil })
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

// slotOf returns the slot of a node if the diagnosis holds it, or nil.
func slotOf(p *v1alpha1.RemediationPolicy, node string, diagnosis types.UID) *v1alpha1.Repair {
	i := indexOf(p, node)
	if i < 0 || p.Status.Repairs[i].EndTime != nil || p.Status.Repairs[i].Diagnosis != diagnosis {
		return nil
	}
	return &p.Status.Repairs[i]
}
