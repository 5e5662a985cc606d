package repair

import (
	"context"
	"fmt"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/kernosis/kernosis/diagnose/api/v1alpha1"
	"github.com/kernosis/kernosis/diagnose/controller"
)

// waiters creates three waiting Diagnoses: those of nodes a and b wait for the budget, that of c
// for something else.
func waiters(t *testing.T) (r *reconciler, p *v1alpha1.RemediationPolicy) {
	t.Helper()
	one, hundred := int32(1), int32(100)
	p = &v1alpha1.RemediationPolicy{ObjectMeta: metav1.ObjectMeta{Name: "p", Generation: 1}, Spec: v1alpha1.RemediationPolicySpec{
		Mode: v1alpha1.ModeEnforce, Budget: v1alpha1.Budget{MaxNodes: &one, MaxPercent: &hundred},
	}}
	p.Status.Repairs = []v1alpha1.Repair{{Node: "d", Diagnosis: "other", Operation: "cordon", StartTime: metav1.Now()}}
	objects := fake.NewClientBuilder().WithScheme(scheme(t)).WithStatusSubresource(p).WithObjects(p)
	for _, name := range []string{"a", "b", "c", "d"} {
		objects = objects.WithObjects(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}, Status: corev1.NodeStatus{Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}}})
	}
	r = &reconciler{client: objects.Build(), interest: map[types.NamespacedName]interest{}}
	r.queue = workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[reconcile.Request]())
	t.Cleanup(r.queue.ShutDown)
	for node, i := range map[string]interest{"a": {waits: true, full: "p"}, "b": {waits: true, full: "p"}, "c": {waits: true}} {
		i.node = node
		r.note(types.NamespacedName{Name: "of-" + node}, i)
	}
	return r, p
}

// woken returns what is enqueued, sorted.
func woken(t *testing.T, r *reconciler) []string {
	t.Helper()
	if err := r.wake(t.Context()); err != nil {
		t.Fatal(err)
	}
	var names []string
	for r.queue.Len() > 0 {
		request, _ := r.queue.Get()
		names = append(names, request.Name)
		r.queue.Done(request)
	}
	slices.Sort(names)
	return names
}

// Repairs that wait for a budget are reconciled when it has room, or when their own node or the
// policy changes, but not whenever a slot or another node changes.
func TestWhoIsWoken(t *testing.T) {
	r, p := waiters(t)
	equal := func(when string, have []string, want ...string) {
		t.Helper()
		if !slices.Equal(have, want) {
			t.Errorf("%s: %q, want %q", when, have, want)
		}
	}
	equal("the budget is used up", woken(t, r), "of-c")
	asked := func(of func(q controller.Queue)) []string {
		t.Helper()
		q := workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[reconcile.Request]())
		defer q.ShutDown()
		of(q)
		var names []string
		for q.Len() > 0 {
			request, _ := q.Get()
			names = append(names, request.Name)
			q.Done(request)
		}
		slices.Sort(names)
		return names
	}
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "b"}}
	equal("their own node", asked(func(q controller.Queue) {
		r.onNode(r.about, wakeAll()).Create(t.Context(), event.TypedCreateEvent[*corev1.Node]{Object: node}, q)
	}), "of-b")
	before := r.views.changes.Load()
	other := p.DeepCopy()
	other.Generation++
	equal("the policy's spec", asked(func(q controller.Queue) {
		r.onPolicy(t.Context(), q, p, other)
	}), "of-a", "of-b", "of-c")
	if r.views.changes.Load() == before {
		t.Error("the view is not made anew")
	}

	// It was deleted and created again while the watch was interrupted.
	before = r.views.changes.Load()
	was, is := p.DeepCopy(), p.DeepCopy()
	was.UID, was.Spec.Mode, is.UID = "1", v1alpha1.ModeObserve, "2"
	was.Status, is.Status = v1alpha1.RemediationPolicyStatus{}, v1alpha1.RemediationPolicyStatus{}
	equal("another policy of its name", asked(func(q controller.Queue) {
		r.onPolicy(t.Context(), q, was, is)
	}), "of-a", "of-b", "of-c")
	if r.views.changes.Load() == before {
		t.Error("the view is not made anew after the policy was created again")
	}

	equal("that other nodes use", woken(t, r), "of-c")
	// The repair of d ends.
	ended := p.DeepCopy()
	if err := r.client.Get(t.Context(), types.NamespacedName{Name: "p"}, ended); err != nil {
		t.Fatal(err)
	}
	now := metav1.Now()
	ended.Status.Repairs[0].EndTime = &now
	if err := r.client.Status().Update(t.Context(), ended); err != nil {
		t.Fatal(err)
	}
	equal("nobody has heard of it", woken(t, r), "of-c")
	equal("at once", asked(func(q controller.Queue) {
		r.onPolicy(t.Context(), q, p, ended)
	}))
	equal("there is room", woken(t, r), "of-a", "of-b", "of-c")
	r.note(types.NamespacedName{Name: "of-c"}, interest{})
	equal("one waits no more", woken(t, r), "of-a", "of-b")
}

// Waking waiting repairs is cheap while the budget is exhausted, however many nodes there are.
func BenchmarkWake(b *testing.B) {
	const nodes = 5000
	one, hundred := int32(1), int32(100)
	p := &v1alpha1.RemediationPolicy{ObjectMeta: metav1.ObjectMeta{Name: "p"}, Spec: v1alpha1.RemediationPolicySpec{Mode: v1alpha1.ModeEnforce, Budget: v1alpha1.Budget{MaxNodes: &one, MaxPercent: &hundred}}}
	p.Status.Repairs = []v1alpha1.Repair{{Node: "node-0", Diagnosis: "other", Operation: "cordon", StartTime: metav1.Now()}}
	objects := fake.NewClientBuilder().WithScheme(scheme(b)).WithObjects(p)
	r := &reconciler{interest: map[types.NamespacedName]interest{}}
	for n := range nodes {
		name := fmt.Sprint("node-", n)
		objects = objects.WithObjects(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}, Status: corev1.NodeStatus{Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}}})
		if n > 0 {
			r.note(types.NamespacedName{Name: name}, interest{node: name, waits: true, full: "p"})
		}
	}
	r.client = objects.Build()
	r.queue = workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[reconcile.Request]())
	defer r.queue.ShutDown()
	for b.Loop() {
		if err := r.wake(context.Background()); err != nil || r.queue.Len() > 0 {
			b.Fatal(err, r.queue.Len())
		}
	}
}
