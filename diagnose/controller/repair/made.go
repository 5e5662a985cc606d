package repair

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kernosis/kernosis/diagnose/api/v1alpha1"
	"github.com/kernosis/kernosis/diagnose/policy"
	"github.com/kernosis/kernosis/diagnose/trigger"
)

// made is an allowed repair of a Diagnosis.
type made struct {
	id        int
	operation string
	allowed   time.Time // by the controller's clock
	// begun and ended are by the clock of the maker: the controller's if here is set, else the
	// node's.
	begun     time.Time // zero: no beginning was reported
	ended     time.Time // zero: it has not ended
	nodeEnded time.Time // when it ended, by the node's clock; zero: not reported
	state     v1alpha1.ResultState
	message   string
	here      bool // the controller makes it
}

// allowedRepairs returns the allowed repairs, sorted by when they were allowed.
func allowedRepairs(d *v1alpha1.Diagnosis) []made {
	var out []made
	for i := range d.Status.Remediations {
		rem := &d.Status.Remediations[i]
		if rem.Verb != v1alpha1.RemediationRun {
			continue
		}
		m := made{id: int(rem.ID), allowed: rem.Time.Time}
		res := d.Status.Result(m.id)
		if res != nil {
			m.operation = res.Operation
		}
		if plan := d.Status.Plan; m.operation == "" && plan != nil && len(plan.Steps) > 0 && plan.Steps[0].ID == rem.ID {
			m.operation = plan.Steps[0].Operation
		}
		if o := rem.Outcome; o != nil {
			m.here, m.begun, m.state, m.message = true, o.StartTime.Time, o.State, o.Message
			if o.CompletionTime != nil {
				m.ended = o.CompletionTime.Time
			}
			if res != nil && res.State == o.State && res.StartTime != nil {
				m.nodeEnded = endOf(res)
			}
		} else {
			m.byNode(d, res)
		}
		out = append(out, m)
	}
	slices.SortFunc(out, func(a, b made) int { return cmp.Or(a.allowed.Compare(b.allowed), cmp.Compare(a.id, b.id)) })
	return out
}

// byNode fills in what the node's agent reports about a repair that it makes.
func (m *made) byNode(d *v1alpha1.Diagnosis, res *v1alpha1.Result) {
	if c := d.Status.Checkpoint; c != nil && c.Intent != nil && int(c.Intent.ID) == m.id {
		m.begun, m.state, m.operation = c.Intent.Time.Time, v1alpha1.ResultRunning, c.Intent.Operation
	}
	if res == nil {
		return
	}
	switch res.State {
	case v1alpha1.ResultRunning, v1alpha1.ResultSucceeded, v1alpha1.ResultFailed, v1alpha1.ResultUnknown:
	default:
		return // it waits, or was never made
	}
	m.state, m.message = res.State, res.Message
	switch {
	case res.StartTime != nil:
		m.begun = res.StartTime.Time
	case m.begun.IsZero():
		m.begun = m.allowed // an agent reports it without its time
	}
	if res.State == v1alpha1.ResultRunning {
		return
	}
	m.ended = m.begun
	if res.StartTime != nil {
		m.ended = endOf(res)
	}
	m.nodeEnded = m.ended
}

// endOf returns when an operation of a node ended, by its clock.
func endOf(res *v1alpha1.Result) time.Time {
	if res.Duration == nil {
		return res.StartTime.Time
	}
	return res.StartTime.Add(res.Duration.Duration)
}

// begun returns the repairs that have begun.
func begun(all []made) []made {
	return slices.DeleteFunc(slices.Clone(all), func(m made) bool { return m.begun.IsZero() })
}

// verified returns the condition Verified if it is final for the repair that was allowed last.
func verified(d *v1alpha1.Diagnosis) *metav1.Condition {
	c := meta.FindStatusCondition(d.Status.Conditions, v1alpha1.ConditionVerified)
	if c == nil || c.Reason == v1alpha1.ReasonRepairing || c.Reason == v1alpha1.ReasonVerifying || c.Reason == v1alpha1.ReasonProblemUnknown {
		return nil
	}
	return c
}

// attemptsOf returns the repairs that a Diagnosis has begun, with times of the controller's clock:
// a repair's start is when it was allowed. A repair followed by another allowed one has not helped.
func attemptsOf(d *v1alpha1.Diagnosis) []policy.Attempt {
	all := allowedRepairs(d)
	var out []policy.Attempt
	for i := range all {
		if all[i].begun.IsZero() {
			continue
		}
		a := policy.Attempt{
			Diagnosis: d.UID, Operation: all[i].operation, Started: all[i].allowed, State: policy.NotHelped,
			Failed: all[i].state != v1alpha1.ResultSucceeded,
		}
		if i+1 == len(all) {
			a.State = stateOf(d, &all[i])
			a.Over = d.Status.Phase.Ended() && d.Status.Phase != v1alpha1.PhaseUnknown
		}
		out = append(out, a)
	}
	return out
}

// stateOf returns the verification state of the repair that was allowed last.
func stateOf(d *v1alpha1.Diagnosis, last *made) policy.VerifyState {
	c := meta.FindStatusCondition(d.Status.Conditions, v1alpha1.ConditionVerified)
	switch {
	case c != nil && c.Status == metav1.ConditionTrue:
		return policy.Helped
	case c != nil && c.Status == metav1.ConditionFalse:
		return policy.NotHelped
	case c != nil && c.Reason == v1alpha1.ReasonMoot:
		return policy.Moot
	case c != nil && c.Reason == v1alpha1.ReasonProblemUnknown:
		return policy.Unknown
	case last.ended.IsZero() && !last.here && d.Status.Phase.Ended():
		return "" // its end will never be reported
	}
	return policy.Verifying
}

// attempts returns the repairs that were begun on the Diagnosis' node in the same episode of the
// problem, by any Diagnosis, and those of its chain of follow-ups. Repairs of another pod are not
// attempts for this one.
func (r *reconciler) attempts(ctx context.Context, d *v1alpha1.Diagnosis) ([]policy.Attempt, error) {
	out := attemptsOf(d)
	var list v1alpha1.DiagnosisList
	err := r.client.List(ctx, &list, client.InNamespace(d.Namespace), client.MatchingFields{byNode: d.Spec.NodeName}, client.UnsafeDisableDeepCopy)
	if err != nil {
		return nil, fmt.Errorf("diagnoses of node %s: %w", d.Spec.NodeName, err)
	}
	for i := range list.Items {
		other := &list.Items[i]
		same := episode(d) != (problemKey{}) && episode(other) == episode(d)
		if other.UID == d.UID || !same && root(other) != root(d) {
			continue
		}
		for _, a := range attemptsOf(other) {
			if other.Pod() == d.Pod() || !r.ofPod(ctx, a.Operation) {
				out = append(out, a)
			}
		}
	}
	slices.SortFunc(out, func(a, b policy.Attempt) int { return a.Started.Compare(b.Started) })
	return out, nil
}

// ofPod reports whether an operation changes a pod, not the node.
func (r *reconciler) ofPod(ctx context.Context, name string) bool {
	b, _, _ := r.builtinOf(ctx, name)
	return actionKinds()[b].pod
}

// problemKey identifies an episode of a problem. It is empty if a person created the Diagnosis. The
// pods of one selector share it.
type problemKey struct{ source, subject, episode string }

func episode(d *v1alpha1.Diagnosis) problemKey {
	k := problemKey{d.Labels[trigger.LabelSource], d.Annotations[trigger.AnnotationSubject], d.Annotations[trigger.AnnotationEpisode]}
	if k.episode == "" {
		return problemKey{}
	}
	switch trigger.Source(k.source) {
	case trigger.SourceAlert:
		k.subject = d.Annotations[trigger.AnnotationTriggeredBy] // alerts of one name differ in it
	case trigger.SourceCron:
		k.subject = d.Labels[v1alpha1.LabelTrigger]
	}
	return k
}
