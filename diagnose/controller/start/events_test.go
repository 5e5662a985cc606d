package start

import (
	"fmt"
	"strconv"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kernosis/kernosis/diagnose/api/v1alpha1"
	"github.com/kernosis/kernosis/diagnose/trigger"
	"github.com/kernosis/kernosis/vmtest/testenv"
)

func TestAnEventStartsADiagnosisOnThePodsNode(t *testing.T) {
	b := newBench(t)
	node, other := b.server.Node(t), b.server.Node(t)
	pod := b.server.Pod(t, b.namespace, "db-0", node)
	b.trigger("failed-mount", b.mounts())
	r := b.control(nil)
	r.inForce(1)
	testenv.Until(t, "Events are watched", deadline, func() bool { return r.metric("kernosis_trigger_event_watch") == 1 })
	ev := b.event(pod, "FailedMount", other) // writers of Events may claim any node
	b.event(pod, "Pulled", node)
	testenv.Until(t, "a Diagnosis is made", deadline, func() bool { return len(b.diagnoses()) > 0 })
	dx := b.only()
	if dx.Spec.NodeName != node || dx.Spec.PodReference.Name != "db-0" || dx.Spec.Parameters["podUID"] != string(pod.UID) || dx.Labels[trigger.LabelSource] != "event" {
		t.Errorf("%+v", dx.Spec)
	}
	// A growing count creates nothing more, and causes no look-up.
	looked := r.podsSeen.Load()
	for i := range 5 {
		patch := fmt.Sprintf(`{"count":%d,"lastTimestamp":%q}`, i+2, time.Now().UTC().Format(time.RFC3339))
		if _, err := b.server.Client().CoreV1().Events(b.namespace).Patch(t.Context(), ev.Name, types.MergePatchType, []byte(patch), metav1.PatchOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	testenv.Until(t, "all are heard", deadline, func() bool { return r.metric("kernosis_trigger_events_matched_total") == 6 && len(r.events) == 0 })
	b.only()
	if n := r.podsSeen.Load(); n != looked || looked != 1 {
		t.Errorf("%d look-ups, then %d", looked, n)
	}
	// Nor does a restart, which continues after it.
	if err := r.stop(); err != nil {
		t.Fatal(err)
	}
	second := b.control(nil)
	testenv.Until(t, "Events are watched again", deadline, func() bool {
		return second.metric("kernosis_trigger_event_watch") == 1 && len(second.events) == 0
	})
	b.only()
}

// TestATenantsEvents checks that Events which a user of one namespace may create, and the API server
// accepts, start nothing on a node of that user's choice, or about another namespace's pod.
func TestATenantsEvents(t *testing.T) {
	b := newBench(t)
	node, victim := b.server.Node(t), b.server.Node(t)
	own, other := b.server.Pod(t, b.namespace, "db-0", node), b.server.Pod(t, b.server.Namespace(t), "db-0", victim)
	reason := "FailedMount-" + b.namespace // unlike those of other tests
	b.trigger("failed-mount", `{operationSet: s, sourceTemplate: {kubernetesEventTemplate: {regexp: {reason: ^`+reason+`$, source: {component: ^kubelet$}}}}}`)
	r := b.control(nil)
	r.inForce(1)
	testenv.Until(t, "Events are watched", deadline, func() bool { return r.metric("kernosis_trigger_event_watch") == 1 })

	user := "tenant-of-" + b.namespace
	b.server.Grant(t, user, b.namespace, rbacv1.ClusterRole{Rules: []rbacv1.PolicyRule{
		{APIGroups: []string{"", "events.k8s.io"}, Resources: []string{"events"}, Verbs: []string{"create"}}, // of the role "edit"
	}})
	tenant, err := kubernetes.NewForConfig(b.server.Config(t, user))
	if err != nil {
		t.Fatal(err)
	}
	accepted := make(map[string]int)
	for i, of := range []corev1.ObjectReference{
		{Kind: "Node", Name: victim},
		{Kind: "Node", Namespace: b.namespace, Name: victim},
		{APIVersion: "v1", Kind: "Node", Namespace: b.namespace, Name: victim},
		{APIVersion: "v1", Kind: "Node", Name: victim},
		{APIVersion: "v1", Kind: "Pod", Namespace: other.Namespace, Name: other.Name},
		{APIVersion: "v1", Kind: "Pod", Namespace: other.Namespace, Name: other.Name, UID: other.UID},
		{Kind: "Pod", Namespace: other.Namespace, Name: other.Name},
	} {
		for _, newer := range []bool{false, true} {
			now := metav1.Now()
			ev := &corev1.Event{
				ObjectMeta:     metav1.ObjectMeta{Name: fmt.Sprintf("forged.%d.%v", i, newer), Namespace: b.namespace},
				InvolvedObject: of, Reason: reason, Message: "forged", Type: "Warning",
			}
			if newer {
				ev.EventTime, ev.Action = metav1.NewMicroTime(now.Time), "Mount"
				ev.ReportingController, ev.ReportingInstance = "kubelet", victim
			} else {
				ev.FirstTimestamp, ev.LastTimestamp, ev.Count = now, now, 1
				ev.Source = corev1.EventSource{Component: "kubelet", Host: victim}
			}
			if _, err := tenant.CoreV1().Events(b.namespace).Create(t.Context(), ev, metav1.CreateOptions{}); err == nil {
				accepted[of.Kind]++
			} else if !apierrors.IsInvalid(err) {
				t.Fatal(err)
			}
		}
	}
	if accepted["Node"] == 0 || accepted["Pod"] == 0 {
		t.Errorf("the API server accepted %v: the test proves nothing", accepted)
	}
	b.event(own, reason, victim) // in kubelet's name, about the tenant's own pod
	testenv.Until(t, "a Diagnosis is made", deadline, func() bool { return len(b.diagnoses()) > 0 && len(r.events) == 0 })
	if dx := b.only(); dx.Spec.NodeName != node || dx.Spec.PodReference.Namespace != b.namespace {
		t.Errorf("%+v", dx.Spec)
	}
}

func TestEventsAreWatchedWhileATriggerAsks(t *testing.T) {
	b := newBench(t)
	pod := b.server.Pod(t, b.namespace, "db-0", b.server.Node(t))
	r := b.control(nil)
	if r.metric("kernosis_trigger_event_watch") != 0 {
		t.Error("they are watched for nobody")
	}
	for range 2 {
		tr := b.trigger("failed-mount", b.mounts())
		testenv.Until(t, "Events are watched", deadline, func() bool { return r.metric("kernosis_trigger_event_watch") == 1 })
		if err := b.objects.Delete(t.Context(), tr); err != nil {
			t.Fatal(err)
		}
		testenv.Until(t, "they are not watched", deadline, func() bool { return r.metric("kernosis_trigger_event_watch") == 0 })
	}
	b.event(pod, "FailedMount", "")
	if n := len(b.diagnoses()); n != 0 {
		t.Errorf("%d Diagnoses", n)
	}
	// The next controller handles what happened while none was running.
	if err := r.stop(); err != nil {
		t.Fatal(err)
	}
	b.trigger("failed-mount", b.mounts())
	b.control(nil)
	testenv.Until(t, "a Diagnosis is made", deadline, func() bool { return len(b.diagnoses()) == 1 })
}

func TestAnEventWhosePodCannotBeLookedUp(t *testing.T) {
	b := newBench(t)
	node := b.server.Node(t)
	pod := b.server.Pod(t, b.namespace, "db-0", node)
	b.trigger("failed-mount", b.mounts())
	r := b.control(nil)
	r.inForce(1)
	r.pods.Store(true)
	b.event(pod, "FailedMount", node)
	testenv.Until(t, "a Diagnosis is made", deadline, func() bool { return len(b.diagnoses()) == 1 })
	if n := r.podsSeen.Load(); n != podTries {
		t.Errorf("%d tries", n)
	}
}

// TestATenantsEventWhosePodCannotBeLookedUp checks that such an Event, about a pod that does not
// exist, does not choose the node and the UID.
func TestATenantsEventWhosePodCannotBeLookedUp(t *testing.T) {
	b := newBench(t)
	victim := b.server.Node(t)
	other := b.server.Pod(t, b.server.Namespace(t), "db-0", victim)
	reason := "FailedMount-" + b.namespace // unlike those of other tests
	b.trigger("failed-mount", `{operationSet: s, sourceTemplate: {kubernetesEventTemplate: {regexp: {reason: ^`+reason+`$}}}}`)
	r := b.control(nil)
	r.inForce(1)
	r.pods.Store(true)
	b.event(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: b.namespace, Name: "made-up", UID: other.UID}}, reason, victim)
	testenv.Until(t, "a Diagnosis is made", deadline, func() bool { return len(b.diagnoses()) == 1 })
	dx := b.only()
	if dx.Spec.NodeName != "" || dx.Spec.Parameters["podUID"] != "" || dx.Spec.Parameters["node"] != "" || dx.Spec.PodReference.Name != "made-up" {
		t.Errorf("%+v", dx.Spec)
	}
}

func TestTooManyEventsAreReportedOf(t *testing.T) {
	b := newBench(t)
	b.trigger("failed-mount", b.mounts())
	r := b.control(nil)
	r.inForce(1)
	r.creates.Store(true)
	ev := &corev1.Event{ObjectMeta: metav1.ObjectMeta{Namespace: b.namespace}, Reason: "FailedMount"}
	// Nobody takes the Events while the workers wait for a full queue.
	for range maxQueue {
		r.queue.add("test", []*v1alpha1.Diagnosis{{ObjectMeta: metav1.ObjectMeta{Name: strconv.FormatUint(r.queue.tail(), 10)}}}, time.Now())
	}
	for range maxEvents + eventWorkers + 50 {
		r.hear(ev)
	}
	if n := r.metric("kernosis_trigger_events_dropped_total"); n < 50 || n > 50+eventWorkers {
		t.Errorf("%v are dropped", n)
	}
}

// TestATenantsEventsLeaveRoomForOthers checks that one namespace's Events don't fill the queue.
func TestATenantsEventsLeaveRoomForOthers(t *testing.T) {
	b := newBench(t)
	reason := "FailedMount-" + b.namespace
	b.trigger("failed-mount", `{operationSet: s, sourceTemplate: {kubernetesEventTemplate: {regexp: {reason: ^`+reason+`$}}}}`)
	r := b.control(nil)
	r.inForce(1)
	r.creates.Store(true)
	// Nobody takes the Events while the workers wait for a full queue.
	for range maxQueue {
		r.queue.add("test", []*v1alpha1.Diagnosis{{ObjectMeta: metav1.ObjectMeta{Name: strconv.FormatUint(r.queue.tail(), 10)}}}, time.Now())
	}
	dropped := 0.0
	for i, step := range []struct {
		in         string
		send, drop int
	}{
		{"shop", maxEvents, maxEvents / 2},
		{"bank", maxEvents, maxEvents * 3 / 4},
		{"farm", 10, 10},
		{metav1.NamespaceDefault, maxEvents / 4, 0},
	} {
		for range step.send {
			r.hear(&corev1.Event{ObjectMeta: metav1.ObjectMeta{Namespace: step.in}, Reason: reason})
		}
		now := r.metric("kernosis_trigger_events_dropped_total")
		if now-dropped != float64(step.drop) {
			t.Errorf("step %d, in %s: %v are dropped, want %d", i, step.in, now-dropped, step.drop)
		}
		dropped = now
	}
}

func TestTimes(t *testing.T) {
	b := newBench(t)
	node := b.server.Node(t)
	b.trigger("nightly", `{operationSet: s, nodeName: `+node+`, sourceTemplate: {cronTemplate: {schedule: "CRON_TZ=Asia/Kathmandu 0 2 * * *"}}}`)
	r := b.control(nil)
	r.inForce(1)
	if n := len(b.diagnoses()); n != 0 {
		t.Fatalf("%d Diagnoses before the time", n)
	}
	if err := r.stop(); err != nil {
		t.Fatal(err)
	}
	// Three nights pass without a controller: the last is made up for.
	b.control(func(c *Config) { c.Now = func() time.Time { return time.Now().Add(72 * time.Hour) } })
	testenv.Until(t, "a Diagnosis is made", deadline, func() bool { return len(b.diagnoses()) > 0 })
	zone, err := time.LoadLocation("Asia/Kathmandu")
	if err != nil {
		t.Fatal(err)
	}
	due, err := time.Parse(time.RFC3339, b.only().Annotations[trigger.AnnotationEpisode])
	if local := due.In(zone); err != nil || local.Hour() != 2 || local.Minute() != 0 || time.Until(due) < 47*time.Hour {
		t.Errorf("%s %v", local, err)
	}
	tr := &v1alpha1.Trigger{}
	testenv.Until(t, "the Trigger says when", deadline, func() bool {
		return b.objects.Get(t.Context(), client.ObjectKey{Name: "nightly"}, tr) == nil && tr.Status.LastScheduleTime != nil
	})
	if !tr.Status.LastScheduleTime.Time.Equal(due) {
		t.Errorf("%s, want %s", tr.Status.LastScheduleTime, due)
	}
	// The status has the time in case the state is lost.
	if err := b.server.Client().CoreV1().ConfigMaps(b.namespace).Delete(t.Context(), StateName, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
}

func TestEverySecond(t *testing.T) {
	b := newBench(t)
	b.trigger("often", `{operationSet: s, nodeName: `+b.server.Node(t)+`, rateLimit: {count: 2, within: 1h}, sourceTemplate: {cronTemplate: {schedule: "@every 1s"}}}`)
	r := b.control(nil)
	testenv.Until(t, "the third is withheld", deadline, func() bool {
		return r.metric("kernosis_trigger_withheld_total", "trigger", "often", "reason", trigger.WithheldRateLimit) > 0
	})
	if n := len(b.diagnoses()); n != 2 {
		t.Errorf("%d Diagnoses", n)
	}
}
