package start

import (
	"errors"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/kernosis/kernosis/diagnose/trigger"
	"github.com/kernosis/kernosis/vmtest/testenv"
)

func TestAnAlertStartsOneDiagnosis(t *testing.T) {
	b := newBench(t)
	node := b.server.Node(t)
	b.trigger("disk", onNode)
	r := b.control(nil)
	r.inForce(1)
	began := time.Now().Add(-time.Minute)
	// Two Prometheus servers, and an Alertmanager that repeats itself.
	var all sync.WaitGroup
	for range 6 {
		all.Go(func() {
			if err := r.take(alert(began, "node", node)); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	dx := b.only() // created before the request is answered
	if dx.Spec.NodeName != node || dx.Spec.OperationSet != "s" || dx.Labels["kernosis.io/trigger"] != "disk" || dx.Labels[trigger.LabelSource] != "alert" {
		t.Errorf("%+v", dx)
	}
	if n := r.metric("kernosis_trigger_diagnoses_total", "trigger", "disk", "outcome", outcomeMade); n != 1 {
		t.Errorf("%v are counted as made", n)
	}
	if wrong, err := testutil.GatherAndLint(r.registry); err != nil || len(wrong) > 0 {
		t.Error(wrong, err)
	}
}

func TestPodsAndNodesOfAlerts(t *testing.T) {
	b := newBench(t)
	node := b.server.Node(t)
	pod := b.server.Pod(t, b.namespace, "db-0", node)
	b.trigger("pod", ofPod)
	b.trigger("node", strings.Replace(onNode, "^A$", "^B$", 1))
	r := b.control(nil)
	r.inForce(2)
	now := time.Now()
	if err := r.take(
		alert(now, "namespace", b.namespace, "pod", "db-0"), alert(now, "namespace", b.namespace, "pod", "none"),
		alert(now, "alertname", "B", "node", "none"), alert(now, "alertname", "C"),
	); err != nil {
		t.Fatal(err)
	}
	dx := b.only()
	if dx.Spec.NodeName != node || dx.Spec.PodReference.Name != "db-0" || dx.Spec.Parameters["podUID"] != string(pod.UID) {
		t.Errorf("%+v", dx.Spec)
	}
	for _, want := range [][2]string{{"pod", trigger.WithheldUnknownPod}, {"node", trigger.WithheldUnknownNode}} {
		if n := r.metric("kernosis_trigger_withheld_total", "trigger", want[0], "reason", want[1]); n != 1 {
			t.Errorf("%s: %v withheld", want, n)
		}
	}
	// The pods of an alert that is already decided on are not looked up again.
	before := r.podsSeen.Load()
	if err := r.take(alert(now, "namespace", b.namespace, "pod", "db-0")); err != nil || r.podsSeen.Load() != before {
		t.Errorf("%v, %d look-ups more", err, r.podsSeen.Load()-before)
	}
	// While pods can't be looked up, nothing is decided.
	r.pods.Store(true)
	later := alert(now.Add(time.Hour), "namespace", b.namespace, "pod", "web-0")
	later.StartsAt = now.Add(time.Second)
	b.server.Pod(t, b.namespace, "web-0", node)
	if u := (*notNow)(nil); !errors.As(r.take(later), &u) || u.after == 0 {
		t.Errorf("%v", u)
	}
	r.pods.Store(false)
	if err := r.take(later); err != nil || len(b.diagnoses()) != 2 {
		t.Errorf("%v, %d Diagnoses", err, len(b.diagnoses()))
	}
}

// A flood creates no more than the rate limit allows.
func TestManyAlerts(t *testing.T) {
	b := newBench(t)
	node := b.server.Node(t)
	b.server.Pod(t, b.namespace, "db-0", node)
	b.trigger("flood", "{rateLimit: {count: 25, within: 1h}, "+ofPod[1:])
	r := b.control(nil)
	r.inForce(1)
	list := make([]*trigger.Alert, 4096)
	for i := range list {
		list[i] = alert(time.Now(), "i", strconv.Itoa(i), "namespace", b.namespace, "pod", "db-0")
	}
	began := time.Now()
	if err := r.take(list...); err != nil {
		t.Fatal(err)
	}
	t.Logf("4096 alerts in %s", time.Since(began))
	if n := len(b.diagnoses()); n != 25 {
		t.Errorf("%d Diagnoses", n)
	}
	if n := r.podsSeen.Load(); n != 25 {
		t.Errorf("%d pods are looked up", n)
	}
	if n := r.metric("kernosis_trigger_withheld_total", "reason", trigger.WithheldRateLimit); n != 4096-25 {
		t.Errorf("%v are withheld", n)
	}
}

// While no Diagnosis can be created, senders are asked to retry, and nothing is lost.
func TestWhatCannotBeMadeIsNotAnswered(t *testing.T) {
	testenv.OnlyInTestAll(t)
	b := newBench(t)
	node := b.server.Node(t)
	b.trigger("disk", onNode)
	b.trigger("pod", strings.Replace(ofPod, "^A$", "^B$", 1))
	r := b.control(nil)
	r.inForce(2)
	r.creates.Store(true)
	first := alert(time.Now(), "node", node)
	u := (*notNow)(nil)
	if err := r.take(first); !errors.As(err, &u) || !strings.Contains(u.why, "1 Diagnoses are not created yet") {
		t.Fatal(err)
	}
	// The second time too: the engine's decision is not enough.
	if err := r.take(first); !errors.As(err, &u) {
		t.Fatal(err)
	}
	// Other alerts are not blocked.
	if err := r.take(alert(time.Now(), "alertname", "C")); err != nil {
		t.Fatal(err)
	}
	if n := r.metric("kernosis_trigger_queue_length"); n != 1 {
		t.Errorf("%v wait", n)
	}
	if r.writes.Load() > 1 { // one takes the state over
		t.Error("the state is saved before what it tells of is made")
	}
	r.creates.Store(false)
	if err := r.take(first); err != nil {
		t.Fatal(err)
	}
	b.only()
	testenv.Until(t, "the state is saved", deadline, func() bool { return r.metric("kernosis_trigger_state_saves_total", "outcome", "saved") == 1 })
}

func TestTheQueueIsBounded(t *testing.T) {
	b := newBench(t)
	b.trigger("all", `{operationSet: s, nodeName: `+b.server.Node(t)+`, cooldown: 0s, rateLimit: {count: 1000}, sourceTemplate: {prometheusAlertTemplate: {regexp: {alertName: ^A$}}}}`)
	b.trigger("too", `{operationSet: s, nodeName: `+b.server.Node(t)+`, cooldown: 0s, rateLimit: {count: 1000}, sourceTemplate: {prometheusAlertTemplate: {regexp: {alertName: ^A$}}}}`)
	r := b.control(nil)
	r.inForce(2)
	r.creates.Store(true)
	list := make([]*trigger.Alert, 2000)
	for i := range list {
		list[i] = alert(time.Now(), "i", strconv.Itoa(i))
	}
	u := (*notNow)(nil)
	if err := r.take(list...); !errors.As(err, &u) || !strings.Contains(u.why, "1024 Diagnoses are waiting") {
		t.Fatal(err)
	}
	if n := r.queue.length(); n != maxQueue {
		t.Errorf("%d wait", n)
	}
}

func TestWhatTheAPIServerRefusesIsReportedAndLeft(t *testing.T) {
	b := newBench(t)
	node := b.server.Node(t)
	b.trigger("disk", onNode)
	r := b.control(nil)
	r.inForce(1)
	// Somebody else has already created a Diagnosis of this name: it counts as made.
	if err := r.take(alert(time.Now(), "node", node)); err != nil {
		t.Fatal(err)
	}
	bad := b.only().DeepCopy()
	bad.Name, bad.Spec.NodeName = "bad", "Not_A_Node"
	bad.ResourceVersion, bad.UID = "", ""
	again := bad.DeepCopy()
	again.Name = b.only().Name
	for _, dx := range []*item{{dx: bad}, {dx: again}} {
		outcome, err := r.make(t.Context(), dx)
		if want := map[string]string{"bad": outcomeRefused}[dx.dx.Name]; want != "" && (outcome != want || err == nil) {
			t.Errorf("%s: %s %v", dx.dx.Name, outcome, err)
		}
	}
	again.Spec.NodeName = node
	if outcome, err := r.make(t.Context(), &item{dx: again}); outcome != outcomeExists || err != nil {
		t.Errorf("%s %v", outcome, err)
	}
	r.creates.Store(true)
	if outcome, err := r.make(t.Context(), &item{dx: again, since: time.Now().Add(-2 * giveUpAfter)}); outcome != outcomeGivenUp || err == nil {
		t.Errorf("%s %v", outcome, err)
	}
	if outcome, err := r.make(t.Context(), &item{dx: again, since: time.Now()}); outcome != "" || err == nil {
		t.Errorf("%s %v", outcome, err)
	}
}

// BenchmarkAlert measures how long a sender waits for the answer that confirms a created Diagnosis.
func BenchmarkAlert(b *testing.B) {
	s := newBench(b)
	node := s.server.Node(b)
	s.trigger("all", "{cooldown: 0s, rateLimit: {count: 1000, within: 1s}, "+onNode[1:])
	r := s.control(nil)
	r.inForce(1)
	began, i := time.Now(), 0
	for b.Loop() {
		i++
		if err := r.take(alert(began, "node", node, "i", strconv.Itoa(i))); err != nil {
			b.Fatal(err)
		}
	}
	if n := int(r.metric("kernosis_trigger_diagnoses_total", "outcome", outcomeMade)); n != i {
		b.Errorf("%d are made, of %d", n, i)
	}
}
