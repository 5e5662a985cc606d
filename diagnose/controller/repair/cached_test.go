package repair

import (
	"log/slog"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	clientfake "sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/kernosis/kernosis/diagnose/api/v1alpha1"
	"github.com/kernosis/kernosis/diagnose/controller"
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
