package repair

import (
	"context"
	"errors"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kernosis/kernosis/collector/display"
	"github.com/kernosis/kernosis/diagnose/api/v1alpha1"
	"github.com/kernosis/kernosis/diagnose/policy"
)

// maxRemediations is how many decisions fit in a status.
const maxRemediations = 32

// decide decides on the repair that a result awaits, and begins it if the controller makes it.
func (l *look) decide(ctx context.Context, res *v1alpha1.Result) error {
	if rem := l.d.Status.Remediation(int(res.ID)); rem != nil && rem.Outcome != nil {
		return nil // it was made, and is never made again; the node's agent reads its outcome
	}
	l.interest = interest{node: l.d.Spec.NodeName, waits: true}
	l.note(client.ObjectKeyFromObject(l.d), l.interest) // before reading anything, so that no later change is missed
	u, err := l.due(ctx, l.d, int(res.ID))
	if wrong, ok := errors.AsType[*unplanned](err); ok {
		return l.unplanned(ctx, wrong)
	}
	if err != nil {
		return err
	}
	had := l.d.Status.Remediation(u.id)
	if had != nil && had.PlanDigest != u.digest {
		had = nil
	}
	if c := l.d.Status.Checkpoint; c != nil && c.Intent != nil && int(c.Intent.ID) == u.id {
		return nil // the node's agent has begun it
	}
	v, err := l.view(ctx)
	if err != nil {
		return err
	}
	w, err := l.wantedRepair(ctx, u, had)
	if err != nil {
		return err
	}
	decision := policy.Decide(v.policies, v.cluster, w, l.now)
	if l.d.Namespace != l.config.Namespace {
		// Users who may create Diagnoses there must not be able to change nodes.
		decision = policy.Decision{Verb: v1alpha1.RemediationWithheld, Reason: v1alpha1.ReasonNotAllowed, Message: "a Diagnosis outside the namespace " + l.config.Namespace + " can't repair anything"}
	}
	if l.config.DryRun && u.builtin != nil && (decision.Verb == v1alpha1.RemediationRun || decision.Verb == v1alpha1.RemediationWait) {
		decision = policy.Decision{Verb: v1alpha1.RemediationWouldRun, Reason: v1alpha1.ReasonRepairsDisabled, Message: "the controller's repairs are disabled (--repairs, in the chart repairs.enabled)"}
	}
	if decision.Verb == v1alpha1.RemediationRun || decision.Verb == v1alpha1.RemediationWait {
		switch name, runs, err := l.runs(ctx); {
		case err != nil:
			return err
		case runs && (had == nil || had.Verb != v1alpha1.RemediationRun):
			decision = policy.Decision{Verb: v1alpha1.RemediationWait, Reason: v1alpha1.ReasonNodeUnderRepair, Message: "Diagnosis " + name + " has not ended", Again: l.now.Add(time.Minute)}
		}
	}
	if decision, err = l.check(ctx, u, had, decision); err != nil {
		return err
	}
	// A repair that was allowed earlier and still waits for its agent has no slot of a newer
	// policy.
	if decision.Verb == v1alpha1.RemediationRun && (had == nil || had.Verb != v1alpha1.RemediationRun || v.lacks(l.d)) {
		if decision, err = l.acquire(ctx, v, w); err != nil {
			return err
		}
	}
	if decision.Verb == v1alpha1.RemediationWait {
		l.at(decision.Again)
		if w.Problem == "" || !w.Seen.IsZero() {
			l.at(l.now.Add(time.Minute)) // it waits at most an hour
		}
		if decision.Reason == v1alpha1.ReasonBudgetExhausted {
			l.interest.full = decision.Policy
		}
	}
	return l.decided(ctx, u, had, v, decision)
}

// wantedRepair returns the repair as input for policies.
func (l *look) wantedRepair(ctx context.Context, u *due, had *v1alpha1.Remediation) (*policy.Want, error) {
	w := &policy.Want{
		Diagnosis: l.d.UID, Node: l.d.Spec.NodeName, Operation: u.operation,
		Digest: u.digest, Approval: l.d.Spec.Approval, Due: l.now, Later: u.later,
	}
	_, w.Again = followed(l.d)
	p, err := l.problem(ctx)
	if err != nil {
		return nil, err
	}
	if p != nil {
		w.Problem, w.Seen = p.State, seen(p)
	}
	if had != nil && had.Time.Time.Before(w.Due) {
		w.Due = had.Time.Time
	}
	w.Attempts, err = l.attempts(ctx, l.d)
	return w, err
}

// seen returns until when a problem is known to last; zero: until now.
func seen(p *v1alpha1.Problem) time.Time {
	if p.Seen == nil {
		return time.Time{}
	}
	return p.Seen.Time
}

// check tests, if the decision is new, whether the repair is possible: an impossible repair must
// not be approved and must not take a slot.
func (l *look) check(ctx context.Context, u *due, had *v1alpha1.Remediation, decision policy.Decision) (policy.Decision, error) {
	if u.builtin == nil || decision.Verb == v1alpha1.RemediationWithheld || had != nil && same(had, decision) {
		return decision, nil
	}
	err := u.invalid
	if err == nil {
		err = l.actions.Check(ctx, u.call(l.d, nil, nil))
		if _, refused := errors.AsType[*Refused](err); err != nil && !refused {
			return decision, fmt.Errorf("%s: %w", u.operation, err)
		}
	}
	if err != nil {
		decision = policy.Decision{Verb: v1alpha1.RemediationWithheld, Reason: v1alpha1.ReasonRefused, Message: err.Error()}
	}
	return decision, nil
}

// same reports whether a decision is already recorded, ignoring its message.
func same(had *v1alpha1.Remediation, d policy.Decision) bool {
	return had.Verb == d.Verb && had.Reason == d.Reason
}

// acquire takes the slots of an allowed repair. It reads the current cordons, which the cache may
// not show yet, before taking the slots and again afterwards. So two repairs that take slots at
// once can't together exceed the limit on cordoned nodes.
func (l *look) acquire(ctx context.Context, v *view, w *policy.Want) (policy.Decision, error) {
	cluster, err := l.cordoned(ctx, v.cluster)
	if err != nil {
		return policy.Decision{}, err
	}
	l.took.Store(l.d.UID, true)
	d, err := l.budget.Acquire(ctx, v.names, cluster, w)
	if apierrors.IsForbidden(err) { // until somebody grants the right
		return policy.Decision{Verb: v1alpha1.RemediationWait, Reason: v1alpha1.ReasonRefused, Message: err.Error(), Again: l.now.Add(time.Minute)}, nil
	}
	if err != nil || d.Verb != v1alpha1.RemediationRun {
		return d, err
	}
	if cluster, err = l.cordoned(ctx, v.cluster); err != nil {
		return policy.Decision{}, err
	}
	var now []*policy.Policy
	for _, name := range v.names {
		p := &v1alpha1.RemediationPolicy{}
		err := l.live.Get(ctx, client.ObjectKey{Name: name}, p)
		if apierrors.IsNotFound(err) {
			continue
		}
		if err != nil {
			return policy.Decision{}, fmt.Errorf("policy %s: %w", name, err)
		}
		now = append(now, policy.New(p))
	}
	if again := policy.Decide(now, cluster, w, l.config.Now()); again.Verb != v1alpha1.RemediationRun {
		return again, nil // decided releases the slots
	}
	return d, l.budget.Verify(ctx, v.names, v.cluster.Node(w.Node), w.Diagnosis)
}

// tookNone records that the Diagnosis holds no slot any more.
func (l *look) tookNone() {
	l.took.Delete(l.d.UID)
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.contests, l.d.UID)
}

// contest describes a slot that another controller holds, or that was taken over from another
// controller.
type contest struct {
	ours  bool
	since time.Time
}

// takenOver records that a slot was taken over from another controller.
func (r *reconciler) takenOver(diagnosis types.UID) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.contests[diagnosis] = contest{ours: true, since: r.config.Now()}
}

// contested returns when another controller was first seen to hold the slot of a Diagnosis, or when
// the slot was taken over from it; zero: neither.
func (r *reconciler) contested(diagnosis types.UID, others bool) time.Time {
	r.mu.Lock()
	defer r.mu.Unlock()
	c, known := r.contests[diagnosis]
	if others && (!known || c.ours) {
		c = contest{since: r.config.Now()}
		r.contests[diagnosis] = c
	}
	return c.since
}

// decided records a decision, reports it if it is new, and begins the repair.
func (l *look) decided(ctx context.Context, u *due, had *v1alpha1.Remediation, v *view, decision policy.Decision) error {
	begins := decision.Verb == v1alpha1.RemediationRun && u.builtin != nil
	changed := had == nil || !same(had, decision)
	before := l.d
	if err := l.write(ctx, func(s *v1alpha1.DiagnosisStatus) { l.put(s, u, had, decision, begins) }); err != nil {
		return err
	}
	if changed {
		l.counts.decisions.WithLabelValues(decision.Policy, string(decision.Verb), decision.Reason).Inc()
		if !begins && decision.Reason != v1alpha1.ReasonMadeBefore {
			l.reporter.decided(l.d, l.nodeOf(ctx), u, decision)
		}
		l.config.Log.Info("decided on a repair", "diagnosis", l.d.Namespace+"/"+l.d.Name, "node", l.d.Spec.NodeName, "operation", u.operation, "verb", string(decision.Verb), "reason", decision.Reason, "policy", decision.Policy)
	}
	if begins {
		return l.pass(ctx, u, nil)
	}
	if decision.Verb != v1alpha1.RemediationRun {
		return l.giveBack(ctx, before, v)
	}
	return nil
}

// giveBack releases the slots of a repair that will not be made, unless the Diagnosis has made one.
func (l *look) giveBack(ctx context.Context, d *v1alpha1.Diagnosis, v *view) error {
	_, took := l.took.Load(d.UID)
	if len(begun(allowedRepairs(d))) > 0 || !took && len(held(v.objects, d)) == 0 {
		return nil
	}
	ours, others, err := l.budget.Held(ctx, v.names, d.Spec.NodeName, d.UID, "")
	if err != nil {
		return err
	}
	if len(ours)+len(others) == 0 {
		l.tookNone()
		return nil
	}
	// Another controller that believes it leads may be about to begin the repair, or will release
	// the slot itself.
	if until := l.contested(d.UID, len(others) > 0).Add(2 * passTimeout); l.now.Before(until) {
		l.at(until)
		return nil
	}
	if len(others) > 0 {
		l.at(l.now.Add(2 * passTimeout))
		return l.budget.Claim(ctx, others, d.Spec.NodeName, d.UID)
	}
	// The repair may have begun, which the cache does not show yet.
	now := &v1alpha1.Diagnosis{}
	if err := l.live.Get(ctx, client.ObjectKeyFromObject(l.d), now); err != nil {
		return client.IgnoreNotFound(err) // its slot is swept
	}
	if now.ResourceVersion != l.d.ResourceVersion {
		l.at(l.now.Add(afterConflict))
		return nil
	}
	if err := l.budget.Release(ctx, ours, d.Spec.NodeName, d.UID, policy.Remove); err != nil {
		return err
	}
	l.tookNone()
	return nil
}

// put records a decision in a status.
func (l *look) put(s *v1alpha1.DiagnosisStatus, u *due, had *v1alpha1.Remediation, decision policy.Decision, begins bool) {
	now := metav1.NewMicroTime(l.config.Now())
	s.Plan = &v1alpha1.Plan{Digest: u.digest, Steps: []v1alpha1.PlanStep{{ID: int32(u.id), Operation: u.operation, Target: u.target}}}
	rem := v1alpha1.Remediation{
		ID: int32(u.id), PlanDigest: u.digest, Verb: decision.Verb, Reason: decision.Reason,
		Message: display.Bounded(decision.Message, v1alpha1.MaxMessageBytes), Time: now,
	}
	if had != nil && had.Verb == rem.Verb {
		rem.Time = had.Time // when this verb was first decided
	}
	if begins {
		rem.Outcome = &v1alpha1.RemediationOutcome{State: v1alpha1.ResultRunning, StartTime: now, Holder: l.config.Holder}
	}
	switch before := s.Remediation(u.id); {
	case before != nil:
		*before = rem
	case len(s.Remediations) < maxRemediations:
		s.Remediations = append(s.Remediations, rem)
	}
	status := metav1.ConditionFalse
	if decision.Verb == v1alpha1.RemediationRun {
		status = metav1.ConditionTrue
	}
	l.condition(s, v1alpha1.ConditionRemediationAllowed, status, decision.Reason, rem.Message)
	switch {
	case decision.Verb == v1alpha1.RemediationRun && (had == nil || had.Verb != v1alpha1.RemediationRun):
		l.condition(s, v1alpha1.ConditionVerified, metav1.ConditionUnknown, v1alpha1.ReasonRepairing, u.operation+" is allowed")
	case decision.Verb != v1alpha1.RemediationRun && had != nil && had.Verb == v1alpha1.RemediationRun:
		// The permission is revoked before the repair has begun: there is nothing to verify.
		meta.RemoveStatusCondition(&s.Conditions, v1alpha1.ConditionVerified)
	}
}

func (l *look) condition(s *v1alpha1.DiagnosisStatus, kind string, status metav1.ConditionStatus, reason, message string) {
	meta.SetStatusCondition(&s.Conditions, metav1.Condition{
		Type: kind, Status: status, Reason: reason, Message: message, ObservedGeneration: l.d.Generation,
		LastTransitionTime: metav1.NewTime(l.config.Now()),
	})
}

// unplanned records why no decision is possible.
func (l *look) unplanned(ctx context.Context, why *unplanned) error {
	message := display.Bounded(why.Error(), v1alpha1.MaxMessageBytes)
	had := meta.FindStatusCondition(l.d.Status.Conditions, v1alpha1.ConditionRemediationAllowed)
	said := had != nil && had.Reason == v1alpha1.ReasonInvalid && had.Message == message
	err := l.write(ctx, func(s *v1alpha1.DiagnosisStatus) {
		l.condition(s, v1alpha1.ConditionRemediationAllowed, metav1.ConditionFalse, v1alpha1.ReasonInvalid, message)
	})
	if err == nil && !said {
		l.reporter.record(l.d, nil, warning, "RepairWithheld", "plan", message)
	}
	return err
}
