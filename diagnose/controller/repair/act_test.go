package repair

import (
	"context"
	"errors"
	"log/slog"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	k8stesting "k8s.io/client-go/testing"

	"github.com/kernosis/kernosis/diagnose/api/v1alpha1"
)

// An action that retries until its context ends leaves the pass time to record the outcome.
func TestAnActionLeavesTimeToRecordItsOutcome(t *testing.T) {
	api := fake.NewClientset(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n", ResourceVersion: "1"}})
	api.PrependReactor("patch", "nodes", func(k8stesting.Action) (bool, runtime.Object, error) {
		return true, nil, apierrors.NewInternalError(errors.New("webhook"))
	})
	actions, err := NewActions(api, Config{Namespace: "system"})
	if err != nil {
		t.Fatal(err)
	}
	l := &look{reconciler: &reconciler{actions: actions, config: &Config{Log: slog.New(slog.DiscardHandler)}}}
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	d := &v1alpha1.Diagnosis{ObjectMeta: metav1.ObjectMeta{Namespace: "system", UID: "d", CreationTimestamp: metav1.Now()}, Spec: v1alpha1.DiagnosisSpec{NodeName: "n"}}
	_, err = l.act(ctx, &Call{Builtin: "cordon", Diagnosis: d, Began: time.Now()})
	if err == nil || ctx.Err() != nil {
		t.Errorf("%v, the pass's context: %v", err, ctx.Err())
	}
}

func TestProblemsOfTheSameTextAndTime(t *testing.T) {
	of := func(source, cause, by string) *v1alpha1.Diagnosis {
		d := &v1alpha1.Diagnosis{ObjectMeta: metav1.ObjectMeta{
			Labels:      map[string]string{"kernosis.io/trigger-source": source, v1alpha1.LabelTrigger: by},
			Annotations: map[string]string{"kernosis.io/triggered-by": cause, "kernosis.io/trigger-subject": "x", "kernosis.io/trigger-episode": "2026-11-21T12:00:00Z"},
		}}
		return d
	}
	for name, test := range map[string]struct {
		a, b *v1alpha1.Diagnosis
		same bool
	}{
		"one alert, two Triggers":   {of("alert", "fingerprint 1", "t"), of("alert", "fingerprint 1", "u"), true},
		"two alerts of one name":    {of("alert", "fingerprint 1", "t"), of("alert", "fingerprint 2", "t"), false},
		"one schedule":              {of("cron", "schedule", "t"), of("cron", "schedule", "t"), true},
		"two schedules":             {of("cron", "schedule", "t"), of("cron", "schedule", "u"), false},
		"one problem, two Triggers": {of("problem", "a", "t"), of("problem", "a", "u"), true},
	} {
		if got := episode(test.a) == episode(test.b); got != test.same {
			t.Errorf("%s: the same problem: %t", name, got)
		}
	}
}
