package start

import (
	"testing"
	"time"

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
