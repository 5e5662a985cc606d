package start

import (
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kernosis/kernosis/diagnose/api/v1alpha1"
	"github.com/kernosis/kernosis/diagnose/trigger"
)

// An alert that was resolved by mistake, and fires again with the same start, lasts again.
func TestAnAlertFiresAgainWithTheSameStart(t *testing.T) {
	now := time.Now()
	began := now.Add(-time.Hour)
	d := &v1alpha1.Diagnosis{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{trigger.LabelSource: string(trigger.SourceAlert)}}}
	d.Status.Problem = problemOf(d, &trigger.Reported{Gone: true, Since: now}, now)
	if p := problemOf(d, &trigger.Reported{Gone: true, Since: now}, now); p != nil {
		t.Errorf("resolved twice: %+v", p)
	}
	if p := problemOf(d, &trigger.Reported{Since: began}, now); p == nil || p.State != v1alpha1.ProblemLasts || !p.Since.Time.Equal(began) {
		t.Errorf("%+v", p)
	}
	end := metav1.NewMicroTime(now)
	d.Status.CompletionTime = &end
	if p := problemOf(d, &trigger.Reported{Since: began}, now); p != nil {
		t.Errorf("nothing depends on it: %+v", p)
	}
}

// That an alert lasts is written only as often as repairs need it, although its senders repeat it
// each minute.
func TestHowOftenItIsWrittenThatAnAlertLasts(t *testing.T) {
	condition := func(kind string, status metav1.ConditionStatus, reason string) func(*v1alpha1.Diagnosis) {
		return func(d *v1alpha1.Diagnosis) {
			meta.SetStatusCondition(&d.Status.Conditions, metav1.Condition{Type: kind, Status: status, Reason: reason})
		}
	}
	began := time.Now()
	for name, c := range map[string]struct {
		change func(*v1alpha1.Diagnosis)
		want   int
	}{
		"it runs":          {func(*v1alpha1.Diagnosis) {}, 6},
		"a repair waits":   {condition(v1alpha1.ConditionRemediationAllowed, metav1.ConditionFalse, v1alpha1.ReasonAwaitingApproval), 6},
		"for what is seen": {condition(v1alpha1.ConditionRemediationAllowed, metav1.ConditionFalse, v1alpha1.ReasonProblemUnknown), 60},
		"it is verified":   {condition(v1alpha1.ConditionVerified, metav1.ConditionUnknown, v1alpha1.ReasonVerifying), 60},
		"a follow-up runs": {condition(v1alpha1.ConditionVerified, metav1.ConditionFalse, v1alpha1.ReasonNotHelped), 60},
		"it was moot":      {condition(v1alpha1.ConditionVerified, metav1.ConditionUnknown, v1alpha1.ReasonMoot), 6},
		"it has helped":    {condition(v1alpha1.ConditionVerified, metav1.ConditionTrue, v1alpha1.ReasonHelped), 6},
		"has targets":      {func(d *v1alpha1.Diagnosis) { d.Spec.TargetSelector = &v1alpha1.TargetSelector{} }, 60},
	} {
		t.Run(name, func(t *testing.T) {
			d := &v1alpha1.Diagnosis{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{trigger.LabelSource: string(trigger.SourceAlert)}}}
			c.change(d)
			now, writes := began, 0
			for range 60 {
				if p := problemOf(d, &trigger.Reported{Since: began}, now); p != nil {
					d.Status.Problem = p
					writes++
				}
				now = now.Add(time.Minute)
			}
			if writes != c.want {
				t.Errorf("%d writes in an hour, want %d", writes, c.want)
			}
			if p := problemOf(d, &trigger.Reported{Gone: true, Since: now}, now); p == nil || p.State != v1alpha1.ProblemGone {
				t.Errorf("its end is not written at once: %+v", p)
			}
		})
	}
}
