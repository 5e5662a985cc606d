package start

import (
	"fmt"
	"strconv"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kernosis/kernosis/diagnose/api/v1alpha1"
	"github.com/kernosis/kernosis/diagnose/trigger"
	"github.com/kernosis/kernosis/vmtest/await"
)

func TestAnEventStartsADiagnosisOnThePodsNode(t *testing.T) {
	b := newBench(t)
	node, other := b.server.Node(t), b.server.Node(t)
	pod := b.server.Pod(t, b.namespace, "db-0", node)
	b.trigger("failed-mount", b.mounts())
	r := b.control(nil)
	r.inForce(1)
	await.Until(t, "Events are watched", deadline, func() bool { return r.metric("kernosis_trigger_event_watch") == 1 })
	ev := b.event(pod, "FailedMount", other) // writers of Events may claim any node
	b.event(pod, "Pulled", node)
	await.Until(t, "a Diagnosis is made", deadline, func() bool { return len(b.diagnoses()) > 0 })
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
	await.Until(t, "all are heard", deadline, func() bool { return r.metric("kernosis_trigger_events_matched_total") == 6 && len(r.events) == 0 })
	b.only()
	if n := r.podsSeen.Load(); n != looked || looked != 1 {
		t.Errorf("%d look-ups, then %d", looked, n)
	}
	// Nor does a restart, which continues after it.
	if err := r.stop(); err != nil {
		t.Fatal(err)
	}
	second := b.control(nil)
	await.Until(t, "Events are watched again", deadline, func() bool {
		return second.metric("kernosis_trigger_event_watch") == 1 && len(second.events) == 0
	})
	b.only()
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
		await.Until(t, "Events are watched", deadline, func() bool { return r.metric("kernosis_trigger_event_watch") == 1 })
		if err := b.objects.Delete(t.Context(), tr); err != nil {
			t.Fatal(err)
		}
		await.Until(t, "they are not watched", deadline, func() bool { return r.metric("kernosis_trigger_event_watch") == 0 })
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
	await.Until(t, "a Diagnosis is made", deadline, func() bool { return len(b.diagnoses()) == 1 })
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
	await.Until(t, "a Diagnosis is made", deadline, func() bool { return len(b.diagnoses()) == 1 })
	if n := r.podsSeen.Load(); n != podTries {
		t.Errorf("%d tries", n)
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
	await.Until(t, "a Diagnosis is made", deadline, func() bool { return len(b.diagnoses()) > 0 })
	zone, err := time.LoadLocation("Asia/Kathmandu")
	if err != nil {
		t.Fatal(err)
	}
	due, err := time.Parse(time.RFC3339, b.only().Annotations[trigger.AnnotationEpisode])
	if local := due.In(zone); err != nil || local.Hour() != 2 || local.Minute() != 0 || time.Until(due) < 47*time.Hour {
		t.Errorf("%s %v", local, err)
	}
	tr := &v1alpha1.Trigger{}
	await.Until(t, "the Trigger says when", deadline, func() bool {
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
	await.Until(t, "the third is withheld", deadline, func() bool {
		return r.metric("kernosis_trigger_withheld_total", "trigger", "often", "reason", trigger.WithheldRateLimit) > 0
	})
	if n := len(b.diagnoses()); n != 2 {
		t.Errorf("%d Diagnoses", n)
	}
}
