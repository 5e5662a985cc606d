package repair

import (
	"log/slog"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	clientfake "sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/kernosis/kernosis/diagnose/api/v1alpha1"
	"github.com/kernosis/kernosis/diagnose/controller"
	"github.com/kernosis/kernosis/diagnose/policy"
	"github.com/kernosis/kernosis/reporter/kube/liveness"
)

// cached returns an object as the manager's cache keeps it.
func cached[T client.Object](t *testing.T, kinds map[client.Object]cache.ByObject, o T) T {
	t.Helper()
	for kind, by := range kinds {
		if _, ok := kind.(T); ok {
			out, err := by.Transform(o.DeepCopyObject())
			if err != nil {
				t.Fatal(err)
			}
			return out.(T)
		}
	}
	t.Fatalf("the cache has no %T", o)
	return o
}

// Marks of acts in force are not stale in the cache: otherwise the live node is read at each change.
func TestMarksOfACachedNode(t *testing.T) {
	kinds, err := (&liveness.Config{Namespace: "system", Annotations: policy.SetKeys}).ByObject()
	if err != nil {
		t.Fatal(err)
	}
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n", Annotations: map[string]string{"example.org/note": "x"}}}
	acts := []policy.Act{
		{Diagnosis: "d"},
		{Diagnosis: "d", Taint: &corev1.Taint{Key: "example.org/bad", Effect: corev1.TaintEffectNoSchedule}},
		{Diagnosis: "d", Kind: policy.KindLabel, Value: &policy.Value{Key: "example.org/state", Value: "bad"}},
		{Diagnosis: "d", Kind: policy.KindAnnotation, Value: &policy.Value{Key: policy.AllowedAnnotation, Value: "true"}},
	}
	for _, a := range acts {
		if _, err := policy.Do(n, a); err != nil {
			t.Fatal(err)
		}
	}
	seen := cached(t, kinds, n)
	have, stale, err := policy.Acts(seen)
	if err != nil || stale || len(have) != len(acts) {
		t.Errorf("%v, stale: %t, %v", have, stale, err)
	}
	if _, kept := seen.Annotations["example.org/note"]; kept {
		t.Error("others' annotations are kept")
	}
	delete(n.Annotations, policy.AllowedAnnotation)
	if have, stale, err = policy.Acts(cached(t, kinds, n)); err != nil || !stale || len(have) != len(acts)-1 {
		t.Errorf("somebody has reverted one: %v, stale: %t, %v", have, stale, err)
	}
}

// A follow-up has the labels that people gave the first Diagnosis, which the cache lacks.
func TestAFollowUpHasPeoplesLabels(t *testing.T) {
	d := &v1alpha1.Diagnosis{ObjectMeta: metav1.ObjectMeta{Name: "d", Namespace: "system", UID: "d", Labels: map[string]string{"team": "db"}}}
	d.Spec = v1alpha1.DiagnosisSpec{NodeName: "n", OperationSet: "s"}
	of := func(o ...client.Object) client.Client {
		return clientfake.NewClientBuilder().WithScheme(scheme(t)).WithObjects(o...).Build()
	}
	l := &look{reconciler: &reconciler{client: of(), live: of(d), config: &Config{Log: slog.New(slog.DiscardHandler)}}}
	l.d = cached(t, controller.ByObject(), d)
	f, err := l.follow(t.Context(), &made{id: 1, operation: "cordon"})
	if err != nil {
		t.Fatal(err)
	}
	if f.Labels["team"] != "db" || f.Name != following(l.d, 1).Name {
		t.Errorf("%+v", f.ObjectMeta)
	}
	l.live, l.client = of(), of()
	if _, err := l.follow(t.Context(), &made{id: 1, operation: "cordon"}); err == nil || l.client.Get(t.Context(), client.ObjectKeyFromObject(f), &v1alpha1.Diagnosis{}) == nil {
		t.Errorf("the Diagnosis was deleted meanwhile: %v", err)
	}
}
