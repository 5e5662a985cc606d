package worker

import (
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/resourceversion"

	"github.com/kernosis/kernosis/diagnose/api/v1alpha1"
	"github.com/kernosis/kernosis/diagnose/operation"
	"github.com/kernosis/kernosis/diagnose/resolve"
	"github.com/kernosis/kernosis/diagnose/runner"
)

// saved is the ledger's record of a Diagnosis that was taken.
type saved struct {
	ID  string `json:"id"`            // of the run
	Own bool   `json:"own,omitempty"` // created by this node's own trigger
	// Diagnosis has metadata and spec, without a status.
	Diagnosis *v1alpha1.Diagnosis `json:"diagnosis"`
	Taken     time.Time           `json:"taken"`
	// Parameters are the run's parameters, including looked-up values, which must stay the same
	// however often the run is resumed. nil: it has not begun.
	Parameters map[string]string `json:"parameters,omitempty"`
	Problem    *problemRef       `json:"problem,omitempty"`
	Claimed    bool              `json:"claimed,omitempty"` // the status in the store names us as the runner
	Local      bool              `json:"local,omitempty"`   // the store has rejected it for good
	End        *end              `json:"end,omitempty"`     // nil: it has not ended
	Reported   bool              `json:"told,omitempty"`    // the store has the end
	Shown      bool              `json:"shown,omitempty"`   // Ended was called
	Gone       bool              `json:"gone,omitempty"`    // it was deleted
	// Repaired: a repair may have been made. Its verification continues after the end.
	Repaired bool `json:"repaired,omitempty"`
	// MayRepair: the OperationSet had a repair when the run began or was resumed.
	MayRepair bool `json:"mayRepair,omitempty"`
}

// valid reports whether it may be an entry, as far as one can see: its ID names files.
func (s *saved) valid() bool {
	return runner.ValidID(s.ID) && s.Diagnosis != nil && s.Diagnosis.Name != ""
}

// end is how a Diagnosis ended.
type end struct {
	runner.End
	// Ran: the runner has a report of it. Otherwise the Diagnosis was refused, or ended elsewhere.
	Ran bool `json:"ran,omitempty"`
}

// problemRef is the detector's problem that a Diagnosis was made for.
type problemRef struct {
	Rule  string                `json:"rule"`
	Group string                `json:"group"`
	State v1alpha1.ProblemState `json:"state"`
	Since time.Time             `json:"since"`
	// Reported is the state that the store has.
	Reported v1alpha1.ProblemState `json:"told,omitempty"`
}

// problemKey identifies a problem in the detector.
type problemKey struct{ rule, group string }

// entry is a Diagnosis that was taken. The worker's lock protects it.
type entry struct {
	saved
	// unsaved: the ledger lacks changes of saved; never: it has no record of it at all.
	unsaved, never bool
	saveAt         time.Time // no earlier than this after a failed write

	latest *v1alpha1.Diagnosis // as in the store; nil: not known
	report *runner.Report
	plan   *resolve.Plan
	specs  map[string]*v1alpha1.OperationSpec // of the plan's repairs, by operation
	active bool                               // it waits or runs in the pool
	cancel string                             // why it must be cancelled; empty: it need not
	// cancelled: the pool was told.
	cancelled bool
	held      time.Time // until then, missing input may still arrive
	again     bool      // what it waits for may have changed
	askAt     time.Time // when it is executed again even without a change
	swept     bool      // checkpoint and artifacts are removed
	closed    bool      // the checkpoint was given an end that the run itself did not reach

	version   uint64 // of what is to be reported
	written   uint64 // the version reported last
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

// changed records that there is something to report.
func (e *entry) changed(urgent bool) {
	e.version++
	e.urgent = e.urgent || urgent
}

// take adopts the store's version.
func (e *entry) take(d *v1alpha1.Diagnosis) {
	if d.Spec.OperationSet == "" { // only the status was returned
		whole := e.Diagnosis.DeepCopy()
		whole.Status = d.Status
		d = whole
	}
	if e.latest != nil && !decidedAlike(e.latest, d) {
		e.again = true
	}
	e.latest = d
	if e.End != nil && !e.Repaired && e.mayHaveRepaired() { // it was not known at the end
		e.Repaired, e.unsaved = true, true
	}
	if e.Diagnosis.UID != d.UID || e.Diagnosis.Generation != d.Generation {
		e.Diagnosis = slim(d)
		e.unsaved = true
	}
	if d.Spec.Cancel && e.cancel == "" {
		e.cancel = "spec.cancel is set"
	}
}

// knowsNewer reports whether the watch has already delivered a newer version than the store's
// response d. That version includes the response's change, and is not delivered again.
func (e *entry) knowsNewer(d *v1alpha1.Diagnosis) bool {
	if e.latest == nil || e.latest.UID != d.UID {
		return false
	}
	order, err := resourceversion.CompareResourceVersion(d.ResourceVersion, e.latest.ResourceVersion)
	return err == nil && order < 0
}

// finish records the end, even if something still runs.
func (e *entry) finish(phase v1alpha1.Phase, reason, message string) {
	e.End = &end{End: runner.End{Phase: phase, Reason: reason, Message: message, At: time.Now()}}
	e.Repaired = e.mayHaveRepaired()
	e.unsaved = true
	e.changed(true)
}

// adopt records the end that the runner reports.
func (e *entry) adopt(rep *runner.Report) {
	e.report = rep
	e.finish(rep.Phase, rep.Reason, rep.Message)
	e.End.Ran = true
	if !rep.Ended.IsZero() {
		e.End.At = rep.Ended
	}
}

// mayHaveRepaired reports whether a repair of the run may have been made, here or by the
// controller. For repairs made here it uses the run's report or, if that is not known, the
// Diagnosis in the store.
func (e *entry) mayHaveRepaired() bool {
	if e.report != nil && slices.ContainsFunc(e.report.Records, func(r runner.Record) bool { return r.Repairs && mayBeMade(r.State) }) {
		return true
	}
	if e.latest == nil {
		return false
	}
	s := &e.latest.Status
	return e.report == nil && e.intent() != nil || slices.ContainsFunc(s.Remediations, func(r v1alpha1.Remediation) bool {
		if r.Outcome != nil {
			return mayBeMade(r.Outcome.State)
		}
		res := s.Result(int(r.ID))
		return e.report == nil && r.Verb == v1alpha1.RemediationRun && res != nil && mayBeMade(res.State)
	})
}

// mayBeMade reports whether a repair with a state may have been made.
func mayBeMade(s v1alpha1.ResultState) bool {
	return s == v1alpha1.ResultRunning || s == v1alpha1.ResultSucceeded || s == v1alpha1.ResultUnknown
}

// intent returns the repair that the store has as begun and not as ended, or nil.
func (e *entry) intent() *v1alpha1.Intent {
	if e.latest == nil || e.latest.Status.Checkpoint == nil {
		return nil
	}
	return e.latest.Status.Checkpoint.Intent
}

// verified reports whether the end of the problem no longer matters: the repair has helped, or
// there is nothing to verify. A repair that has not helped may be repeated by another Diagnosis.
func (e *entry) verified() bool {
	if e.latest == nil {
		return false
	}
	c := meta.FindStatusCondition(e.latest.Status.Conditions, v1alpha1.ConditionVerified)
	return c != nil && (c.Status == metav1.ConditionTrue || c.Reason == v1alpha1.ReasonMoot)
}

// decidedAlike reports whether the controller's decisions in two versions are the same.
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

// slim returns the form of a Diagnosis that the ledger stores.
func slim(d *v1alpha1.Diagnosis) *v1alpha1.Diagnosis {
	c := &v1alpha1.Diagnosis{TypeMeta: d.TypeMeta, ObjectMeta: *d.ObjectMeta.DeepCopy(), Spec: *d.Spec.DeepCopy()}
	c.ManagedFields, c.ResourceVersion = nil, ""
	return c
}

// repairs reports whether a node of the plan is a repair.
func repairs(p *resolve.Plan, id int) bool { return p.Effect(id) == operation.Remediate }
