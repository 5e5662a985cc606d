package worker

import (
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/resourceversion"

	"github.com/kernosis/kernosis/detector/problem"
	"github.com/kernosis/kernosis/diagnose/api/v1alpha1"
	"github.com/kernosis/kernosis/diagnose/operation"
	"github.com/kernosis/kernosis/diagnose/resolve"
	"github.com/kernosis/kernosis/diagnose/runner"
)

// saved is what the ledger has of a Diagnosis that was taken.
type saved struct {
	ID  string `json:"id"`            // of the run
	Own bool   `json:"own,omitempty"` // this node's own trigger has made it
	// Diagnosis has metadata and spec, without a status.
	Diagnosis *v1alpha1.Diagnosis `json:"diagnosis"`
	Taken     time.Time           `json:"taken"`
	// Parameters are those of the run, with what was filled in: what was looked up for it
	// stays the same however often it goes on. nil: it has not begun.
	Parameters map[string]string `json:"parameters,omitempty"`
	Problem    *problemRef       `json:"problem,omitempty"`
	Claimed    bool              `json:"claimed,omitempty"` // the store has our word that we run it
	Local      bool              `json:"local,omitempty"`   // the store has refused it, for good
	End        *end              `json:"end,omitempty"`     // nil: it goes on
	Reported   bool              `json:"told,omitempty"`    // the store has the end
	Shown      bool              `json:"shown,omitempty"`   // Ended was reported
	Gone       bool              `json:"gone,omitempty"`    // it was deleted
	// Repaired: a repair of it may have been made. Its verification goes on behind the end.
	Repaired bool `json:"repaired,omitempty"`
}

// end is how it ended.
type end struct {
	runner.End
	// Ran: the runner has a report of it. Else it was refused, or ended by another.
	Ran bool `json:"ran,omitempty"`
}

// problemRef is the detector's problem that a Diagnosis was made for.
type problemRef struct {
	Rule  string                `json:"rule"`
	Group string                `json:"group"`
	State v1alpha1.ProblemState `json:"state"`
	Since time.Time             `json:"since"`
	// Reported is what the store has.
	Reported v1alpha1.ProblemState `json:"told,omitempty"`
}

// problemKey is what the detector knows a problem by.
type problemKey struct{ rule, group string }

func keyOf(p *problem.Problem) problemKey { return problemKey{p.Rule, p.Group} }

// entry is a Diagnosis that was taken. The worker's lock guards it.
type entry struct {
	saved
	// unsaved: the ledger does not have what saved has; never: it never had any of it.
	unsaved, never bool
	saveAt         time.Time // a write has failed: not before

	latest *v1alpha1.Diagnosis // as the store has it; nil: not known
	report *runner.Report
	plan   *resolve.Plan
	specs  map[string]*v1alpha1.OperationSpec // of the plan's repairs, by operation
	active bool                               // it waits or runs in the pool
	cancel string                             // why it is to be ended; empty: it is not
	// cancelled: the pool knows of that.
	cancelled bool
	held      time.Time // until then what it is made of may come to be known
	again     bool      // what it waits for may have changed
	askAt     time.Time // when it is executed again though nothing has changed
	swept     bool      // checkpoint and artifacts are removed
	closed    bool      // the checkpoint has an end that the run itself has not come to

	version   uint64 // of what there is to report
	written   uint64 // of what was reported last
	urgent    bool
	stored    time.Time // when the store was first known to have it; zero: in an earlier process
	lastWrite time.Time
	retryAt   time.Time
	pause     time.Duration
}

func (e *entry) name() types.NamespacedName {
	return types.NamespacedName{Namespace: e.Diagnosis.Namespace, Name: e.Diagnosis.Name}
}

func (e *entry) key() Key { return Key{e.name(), e.Diagnosis.UID} }

// open reports whether something is still to be done or reported.
func (e *entry) open() bool { return !e.Gone && (e.End == nil || !e.Reported && !e.Local) }

// changed notes that there is something to report.
func (e *entry) changed(urgent bool) {
	e.version++
	e.urgent = e.urgent || urgent
}

// take takes over what the store has.
func (e *entry) take(d *v1alpha1.Diagnosis) {
	if d.Spec.OperationSet == "" { // the status alone
		whole := e.Diagnosis.DeepCopy()
		whole.Status = d.Status
		d = whole
	}
	if e.latest != nil && !decidedAlike(e.latest, d) {
		e.again = true
	}
	e.latest = d
	if e.Diagnosis.UID != d.UID || e.Diagnosis.Generation != d.Generation {
		e.Diagnosis = slim(d)
		e.unsaved = true
	}
	if d.Spec.Cancel && e.cancel == "" {
		e.cancel = "spec.cancel is set"
	}
}

// knowsNewer reports whether the watch has brought what came behind an answer of the store
// before the answer itself: it has the answer's change too, and is not brought again.
func (e *entry) knowsNewer(d *v1alpha1.Diagnosis) bool {
	if e.latest == nil || e.latest.UID != d.UID {
		return false
	}
	order, err := resourceversion.CompareResourceVersion(d.ResourceVersion, e.latest.ResourceVersion)
	return err == nil && order < 0
}

// finish ends it, whatever still runs.
func (e *entry) finish(phase v1alpha1.Phase, reason, message string) {
	e.End = &end{End: runner.End{Phase: phase, Reason: reason, Message: message, At: time.Now()}}
	e.unsaved = true
	e.changed(true)
}

// mayHaveRepaired reports whether a repair of the run may have been made.
func mayHaveRepaired(rep *runner.Report) bool {
	return slices.ContainsFunc(rep.Records, func(r runner.Record) bool {
		return r.Repairs && (r.State == v1alpha1.ResultSucceeded || r.State == v1alpha1.ResultUnknown)
	})
}

// verified reports whether nothing more depends on the end of its problem: the repair has
// helped, or nothing is to be proven. One that has not may be made once more, by another
// Diagnosis.
func (e *entry) verified() bool {
	if e.latest == nil {
		return false
	}
	c := meta.FindStatusCondition(e.latest.Status.Conditions, v1alpha1.ConditionVerified)
	return c != nil && (c.Status == metav1.ConditionTrue || c.Reason == v1alpha1.ReasonMoot)
}

// decidedAlike reports whether the controller's part of two states is the same.
func decidedAlike(a, b *v1alpha1.Diagnosis) bool {
	return slices.EqualFunc(a.Status.Remediations, b.Status.Remediations, func(x, y v1alpha1.Remediation) bool {
		return x.ID == y.ID && x.PlanDigest == y.PlanDigest && x.Verb == y.Verb && x.Reason == y.Reason &&
			outcomeState(&x) == outcomeState(&y)
	})
}

func outcomeState(r *v1alpha1.Remediation) v1alpha1.ResultState {
	if r.Outcome == nil {
		return ""
	}
	return r.Outcome.State
}

// slim returns a Diagnosis as the ledger has it.
func slim(d *v1alpha1.Diagnosis) *v1alpha1.Diagnosis {
	c := &v1alpha1.Diagnosis{TypeMeta: d.TypeMeta, ObjectMeta: *d.ObjectMeta.DeepCopy(), Spec: *d.Spec.DeepCopy()}
	c.ManagedFields, c.ResourceVersion = nil, ""
	return c
}

// repairs reports whether a node of the plan changes something.
func repairs(p *resolve.Plan, id int) bool { return p.Effect(id) == operation.Remediate }
