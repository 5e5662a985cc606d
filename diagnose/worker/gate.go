package worker

import (
	"context"
	"errors"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kernosis/kernosis/diagnose/api/v1alpha1"
	"github.com/kernosis/kernosis/diagnose/policy"
	"github.com/kernosis/kernosis/diagnose/runner"
)

// gate reads the controller's decision on a repair from the Diagnosis' status.
type gate struct{ w *Worker }

// Reasons to wait that come from the node itself.
const (
	reasonAway    = "APIServerAway"     // without an API server, only operations that change nothing are run
	reasonUndone  = "AwaitingDecision"  // the controller has not decided on this plan yet
	reasonRepairs = "ControllerRepairs" // the controller makes the repair itself
	reasonHeld    = "HeldByAnother"     // another agent runs the Diagnosis
)

// Allow implements runner.Gate.
func (g *gate) Allow(_ context.Context, a *runner.Action) (runner.Decision, error) {
	w := g.w
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.c.Observe {
		return runner.Decision{Verb: v1alpha1.RemediationWouldRun, Reason: v1alpha1.ReasonObserveOnly, Message: "without a cluster repairs are only reported"}, nil
	}
	e := w.entries[a.Diagnosis]
	switch {
	case e == nil || e.Gone || e.End != nil:
		return runner.Decision{}, errors.New("the Diagnosis is no longer active")
	case e.Local:
		return runner.Decision{Verb: v1alpha1.RemediationWithheld, Reason: "NotStored", Message: "the API server has refused the Diagnosis, so its repairs can't be decided"}, nil
	case e.Diagnosis.UID == "" || e.latest == nil:
		return runner.Decision{Verb: v1alpha1.RemediationWait, Reason: reasonAway, Message: "the API server does not have the Diagnosis yet"}, nil
	case w.hold().another(&e.latest.Status):
		return runner.Decision{Verb: v1alpha1.RemediationWait, Reason: reasonHeld, Message: "it is run by " + e.latest.Status.Checkpoint.Holder}, nil
	case begunBefore(&e.latest.Status, a.ID, a.Started):
		return runner.Decision{Verb: v1alpha1.RemediationRun, Elsewhere: true, Outcome: &v1alpha1.RemediationOutcome{
			State: v1alpha1.ResultUnknown, Message: "an earlier run of this diagnosis has begun this repair, but its checkpoint is gone; not repeated",
		}}, nil
	}
	digest, wait := e.digest(a.ID, a.Operation)
	if wait != nil {
		return *wait, nil
	}
	decided := e.latest.Status.Remediation(a.ID)
	if decided == nil || decided.PlanDigest != digest {
		return undecided(), nil
	}
	out := runner.Decision{
		Verb: decided.Verb, Reason: decided.Reason, Message: decided.Message,
		Elsewhere: slices.Contains(e.plan.ByController, a.ID), Outcome: decided.Outcome,
	}
	if out.Verb == v1alpha1.RemediationRun && out.Elsewhere {
		out.Reason = reasonRepairs
	}
	return out, nil
}

// undecided returns a wait for the controller's decision. Its text never changes, so that the
// status is written once.
func undecided() runner.Decision {
	return runner.Decision{Verb: v1alpha1.RemediationWait, Reason: reasonUndone, Message: "the controller has not decided about this repair yet"}
}

// digest returns the digest of a repair's plan, made only from data that the API has. The lock is
// held.
func (e *entry) digest(id int, operation string) (v1alpha1.Digest, *runner.Decision) {
	dependences := e.plan.Graph.Node(id).Dependences
	for _, dependence := range dependences {
		if r := e.latest.Status.Result(dependence); r == nil || r.State == v1alpha1.ResultRunning {
			return "", new(undecided()) // the API server does not have the results yet
		}
	}
	spec := e.specs[operation]
	if spec == nil {
		return "", &runner.Decision{Verb: v1alpha1.RemediationWithheld, Reason: v1alpha1.ReasonInvalid, Message: "unknown operation " + operation}
	}
	plan, err := policy.PlanOf(e.latest, id, operation, spec, dependences)
	var digest v1alpha1.Digest
	if err == nil {
		digest, err = plan.Digest()
	}
	if err != nil { // permanent: truncated results stay truncated
		return "", &runner.Decision{Verb: v1alpha1.RemediationWithheld, Reason: v1alpha1.ReasonInvalid, Message: err.Error()}
	}
	return digest, nil
}

// intent writes to the API server that a repair of this node begins. If the write fails, the repair
// must not begin.
func (g *gate) intent(ctx context.Context, a *runner.Action) error {
	w := g.w
	w.mu.Lock()
	e := w.entries[a.Diagnosis]
	if e == nil || e.Gone || e.latest == nil {
		w.mu.Unlock()
		return errors.New("the Diagnosis is no longer active")
	}
	key := e.key()
	digest, wait := e.digest(a.ID, a.Operation)
	hold := w.hold()
	w.mu.Unlock()
	if wait != nil {
		return errors.New(wait.Message)
	}
	var refused error
	d, err := w.c.Store.Write(ctx, key, func(s *v1alpha1.DiagnosisStatus) {
		now := time.Now()
		decided := s.Remediation(a.ID)
		switch refused = nil; {
		case s.Completed():
			refused = errors.New("the Diagnosis has ended meanwhile")
		case hold.another(s):
			refused = errors.New("another agent runs the Diagnosis")
		case begunBefore(s, a.ID, a.Started):
			refused = errors.New("an earlier run of the Diagnosis has begun the repair")
		case decided == nil || decided.PlanDigest != digest || decided.Verb != v1alpha1.RemediationRun:
			refused = errors.New("the repair is no longer allowed")
		default:
			id := int32(a.ID) //nolint:gosec // a node of a graph of 256
			at := metav1.NewMicroTime(now)
			s.Checkpoint = &v1alpha1.Checkpoint{
				Holder: hold.holder, Time: at, Running: &id,
				Intent: &v1alpha1.Intent{ID: id, Operation: a.Operation, Time: at},
			}
		}
	})
	w.mu.Lock()
	defer w.mu.Unlock()
	w.wrote(e, d, err)
	if err != nil {
		return err
	}
	return refused
}

// hold identifies this agent among those of its node.
type hold struct {
	holder string
	gone   func(holder string) bool
}

// hold must be called with the lock held.
func (w *Worker) hold() hold { return hold{w.holder, w.c.Gone} }

// has reports whether a status says that this agent runs the Diagnosis.
func (h hold) has(s *v1alpha1.DiagnosisStatus) bool {
	return s.Checkpoint != nil && s.Checkpoint.Holder == h.holder
}

// another reports whether another agent runs it, as far as is known. The time of that agent's last
// write is irrelevant: it writes only changes, and its clock may be wrong.
func (h hold) another(s *v1alpha1.DiagnosisStatus) bool {
	return s.Checkpoint != nil && !h.has(s) && !h.gone(s.Checkpoint.Holder)
}
