package repair

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/fake"
	k8stesting "k8s.io/client-go/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	clientfake "sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/kernosis/kernosis/diagnose/api/v1alpha1"
	"github.com/kernosis/kernosis/diagnose/operation"
	"github.com/kernosis/kernosis/diagnose/operation/catalog"
	"github.com/kernosis/kernosis/diagnose/trigger"
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

// A pod's eviction is no attempt for another pod of the same selector; what is done to their node is.
func TestAttemptsOfThePodsOfASelector(t *testing.T) {
	now := metav1.NowMicro()
	evict := &v1alpha1.Operation{ObjectMeta: metav1.ObjectMeta{Name: "move"}}
	evict.Spec.Processor.Builtin = &v1alpha1.Builtin{Name: "evict-pod"}
	objects := []client.Object{evict}
	of := func(name, pod string) *v1alpha1.Diagnosis {
		d := &v1alpha1.Diagnosis{ObjectMeta: metav1.ObjectMeta{
			Name: name, Namespace: "system", UID: types.UID(name), Labels: map[string]string{trigger.LabelSource: "event"},
			Annotations: map[string]string{trigger.AnnotationSubject: "s", trigger.AnnotationEpisode: "2026-11-21T12:00:00Z"},
		}}
		d.Spec = v1alpha1.DiagnosisSpec{NodeName: "n", PodReference: &v1alpha1.PodReference{Namespace: "shop", Name: pod}}
		for i, o := range []string{"move", "delete-pod", "cordon", "restart-unit"} {
			d.Status.Results = append(d.Status.Results, v1alpha1.Result{ID: int32(i + 1), Operation: o, State: v1alpha1.ResultSucceeded, StartTime: &now})
			d.Status.Remediations = append(d.Status.Remediations, v1alpha1.Remediation{ID: int32(i + 1), Verb: v1alpha1.RemediationRun, Time: now})
		}
		objects = append(objects, d)
		return d
	}
	d := of("d", "web-0")
	of("again", "web-0")
	of("other", "web-1")
	node := func(o client.Object) []string { return []string{o.(*v1alpha1.Diagnosis).Spec.NodeName} }
	c := clientfake.NewClientBuilder().WithScheme(scheme(t)).WithObjects(objects...).WithIndex(d, byNode, node).Build()
	all, err := (&reconciler{client: c, builtins: catalog.All(operation.Host{})}).attempts(t.Context(), d)
	if err != nil {
		t.Fatal(err)
	}
	counts := map[string]int{}
	for _, a := range all {
		counts[string(a.Diagnosis)+" "+a.Operation]++
	}
	want := map[string]int{"other cordon": 1, "other restart-unit": 1}
	for _, name := range []string{"d ", "again "} {
		for _, o := range []string{"move", "delete-pod", "cordon", "restart-unit"} {
			want[name+o] = 1
		}
	}
	if !maps.Equal(counts, want) {
		t.Errorf("%v, want %v", counts, want)
	}
}

// A repair that waits keeps the results it depends on, not the others of its Diagnosis, which take up
// to some 200 KiB.
func TestInputsOfAWaitingRepair(t *testing.T) {
	d := &v1alpha1.Diagnosis{ObjectMeta: metav1.ObjectMeta{Name: "d", Namespace: "system", UID: "d"}}
	for id := range int32(3) {
		d.Status.Results = append(d.Status.Results, v1alpha1.Result{ID: id + 1, Values: map[string]v1alpha1.ResultValue{"a": "b"}})
	}
	var read []*v1alpha1.Diagnosis
	live := clientfake.NewClientBuilder().WithScheme(scheme(t)).WithObjects(d).WithInterceptorFuncs(interceptor.Funcs{
		Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, o client.Object, _ ...client.GetOption) error {
			read = append(read, o.(*v1alpha1.Diagnosis))
			return c.Get(ctx, key, o)
		},
	}).Build()
	key := client.ObjectKeyFromObject(d)
	r := &reconciler{live: live, interest: map[types.NamespacedName]interest{key: {waits: true}}, inputs: map[types.NamespacedName]inputs{}}
	cached := d.DeepCopy()
	for i := range cached.Status.Results {
		cached.Status.Results[i].Values = nil
	}
	for range 2 {
		got, err := r.withInputs(t.Context(), cached, []int{2})
		if err != nil || got.Status.Result(2).Values["a"] != "b" || got.Status.Result(1).Values != nil {
			t.Fatalf("%v: %+v", err, got.Status.Results)
		}
	}
	kept := r.inputs[key].results
	if len(read) != 1 || len(kept) != 1 || kept[2] == nil || kept[2] == read[0].Status.Result(2) {
		t.Errorf("read %d times; kept %v, which must not be part of the %d results read", len(read), kept, len(read[0].Status.Results))
	}
}
