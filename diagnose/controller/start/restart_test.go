package start

import (
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kernosis/kernosis/diagnose/api/v1alpha1"
	"github.com/kernosis/kernosis/diagnose/trigger"
	"github.com/kernosis/kernosis/reporter/kube/leader"
	"github.com/kernosis/kernosis/vmtest/testenv"
)

func TestRestarts(t *testing.T) {
	for name, end := range map[string]func(*running){
		"in order": func(r *running) {
			if err := r.stop(); err != nil {
				r.t.Error(err)
			}
		},
		"killed": (*running).kill,
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t)
			node := b.server.Node(t)
			b.trigger("disk", onNode)
			first := b.control(func(c *Config) { c.SaveEvery = time.Hour }) // saved at the end, or never
			first.inForce(1)
			a := alert(time.Now(), "node", node)
			if err := first.take(a); err != nil {
				t.Fatal(err)
			}
			end(first)
			second := b.control(nil)
			second.inForce(1)
			if err := second.take(a); err != nil {
				t.Fatal(err)
			}
			b.only()
			exists := second.metric("kernosis_trigger_diagnoses_total", "outcome", outcomeExists)
			if wanted := second.metric("kernosis_trigger_wanted_total"); wanted != exists || (wanted == 0) != (name == "in order") {
				t.Errorf("%v are wanted again, %v exist", wanted, exists)
			}
		})
	}
}

func TestCooldownAndRateLimitOutlastTheProcess(t *testing.T) {
	b := newBench(t)
	node := b.server.Node(t)
	b.trigger("disk", "{cooldown: 1h, rateLimit: {count: 2, within: 24h}, "+onNode[1:])
	first := b.control(nil)
	first.inForce(1)
	now := time.Now()
	if err := first.take(alert(now, "node", node), alert(now, "node", node, "i", "1")); err != nil {
		t.Fatal(err)
	}
	if err := first.stop(); err != nil {
		t.Fatal(err)
	}
	second := b.control(nil)
	second.inForce(1)
	if err := second.take(alert(now.Add(time.Minute), "node", node), alert(now, "node", node, "i", "2")); err != nil {
		t.Fatal(err)
	}
	if n := len(b.diagnoses()); n != 2 {
		t.Errorf("%d Diagnoses", n)
	}
	for _, reason := range []string{trigger.WithheldCooldown, trigger.WithheldRateLimit} {
		if n := second.metric("kernosis_trigger_withheld_total", "reason", reason); n != 1 {
			t.Errorf("%s: %v", reason, n)
		}
	}
	testenv.Until(t, "the size that is counted is the one that is saved", deadline, func() bool { // a save may be under way
		m, err := b.server.Client().CoreV1().ConfigMaps(b.namespace).Get(t.Context(), StateName, metav1.GetOptions{})
		return err == nil && float64(len(m.BinaryData[stateKey])) == second.metric("kernosis_trigger_state_bytes")
	})
}

// elected returns an election that is not lost while the API server stalls for seconds. After a
// kill, the next one must wait for the whole lease.
func elected(identity string) leader.Election {
	return leader.Election{Enabled: true, Identity: identity, Lease: 15 * time.Second, Renew: 12 * time.Second, Retry: 250 * time.Millisecond}
}

func TestAnotherComesToLead(t *testing.T) {
	testenv.OnlyInTestAll(t)
	b := newBench(t)
	node := b.server.Node(t)
	b.trigger("disk", onNode)
	first := b.controlIn(elected("first"), nil)
	testenv.Until(t, "the first leads", deadline, func() bool { return first.Ready() == nil })
	first.inForce(1)
	second := b.controlIn(elected("second"), nil)
	a := alert(time.Now(), "node", node)
	u := (*notNow)(nil)
	if err := second.take(a); !errors.As(err, &u) || !strings.Contains(u.why, "is not the leader") {
		t.Fatal(err)
	}
	if err := first.take(a); err != nil {
		t.Fatal(err)
	}
	first.all.Store(true) // it is partitioned, and does not know yet that another leads
	testenv.Until(t, "the second leads", deadline, func() bool { return second.Ready() == nil })
	second.inForce(1)
	if err := second.take(a, alert(time.Now(), "node", node, "i", "1")); err != nil {
		t.Fatal(err)
	}
	if n := len(b.diagnoses()); n != 2 {
		t.Errorf("%d Diagnoses", n)
	}
	if err := <-first.ended; err == nil {
		t.Error("the first has not ended with an error")
	}
}

// A former leader that does not know yet that it lost can't overwrite what the next one saves.
func TestAnEarlierLeaderSavesNoMore(t *testing.T) {
	b := newBench(t)
	node := b.server.Node(t)
	b.trigger("disk", "{rateLimit: {count: 1000, within: 1h}, "+onNode[1:])
	first := b.control(nil)
	second := b.control(nil)
	first.inForce(1)
	second.inForce(1)
	for i := range 3 {
		if err := first.take(alert(time.Now(), "node", node, "i", strconv.Itoa(i))); err != nil {
			t.Fatal(err)
		}
	}
	testenv.Until(t, "the first is superseded", deadline, func() bool { return first.metric("kernosis_trigger_state_saves_total", "outcome", "superseded") == 1 })
	if err := second.take(alert(time.Now(), "node", node)); err != nil {
		t.Fatal(err)
	}
	testenv.Until(t, "the second saves", deadline, func() bool { return second.metric("kernosis_trigger_state_saves_total", "outcome", "saved") == 1 })
	// A person may delete or edit it: it still belongs to the leader.
	maps := b.server.Client().CoreV1().ConfigMaps(b.namespace)
	for i, harm := range []func() error{
		func() error { return maps.Delete(t.Context(), StateName, metav1.DeleteOptions{}) },
		func() error {
			m, err := maps.Get(t.Context(), StateName, metav1.GetOptions{})
			if err != nil {
				return err
			}
			m.BinaryData = nil
			_, err = maps.Update(t.Context(), m, metav1.UpdateOptions{})
			return err
		},
	} {
		if err := harm(); err != nil {
			t.Fatal(err)
		}
		if err := second.take(alert(time.Now(), "node", node, "more", strconv.Itoa(i))); err != nil {
			t.Fatal(err)
		}
		testenv.Until(t, "the second saves again", deadline, func() bool {
			return second.metric("kernosis_trigger_state_saves_total", "outcome", "saved") == float64(2+i)
		})
	}
	m, err := maps.Get(t.Context(), StateName, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	s, err := decodeState(m.BinaryData[stateKey])
	if err != nil || len(s.Streams) != 3 {
		t.Errorf("%v, %d streams", err, len(s.Streams))
	}
}

// The state of an earlier version is restored, without an API server.
func TestStateOfAnEarlierVersion(t *testing.T) {
	data, err := os.ReadFile("testdata/earlier.json.gz")
	if err != nil {
		t.Fatal(err)
	}
	s, err := decodeState(data)
	if err != nil {
		t.Fatal(err)
	}
	e, err := trigger.NewEngine(trigger.Config{Namespace: "n"})
	if err == nil {
		err = e.Restore(s)
	}
	if err != nil {
		t.Fatal(err)
	}
	if s := e.State(); len(s.Streams) != 1 || len(s.Subjects) != 1 || len(s.Triggers) != 1 || len(s.Triggers[0].Started) != 1 {
		t.Errorf("%+v", s)
	}
}

func TestADamagedStateIsBegunAnew(t *testing.T) {
	testenv.OnlyInTestAll(t)
	var bomb, version bytes.Buffer
	for text, to := range map[string]*bytes.Buffer{strings.Repeat(" ", maxStateText+1): &bomb, `{"version":99}`: &version} {
		z := gzip.NewWriter(to)
		if _, err := z.Write([]byte(text)); err != nil {
			t.Fatal(err)
		}
		if err := z.Close(); err != nil {
			t.Fatal(err)
		}
	}
	for name, data := range map[string][]byte{"garbage": []byte("garbage"), "bomb": bomb.Bytes(), "version": version.Bytes(), "cut": version.Bytes()[:20], "large": make([]byte, maxState)} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t)
			node := b.server.Node(t)
			b.trigger("disk", onNode)
			if _, err := b.server.Client().CoreV1().ConfigMaps(b.namespace).Create(t.Context(), &corev1.ConfigMap{
				ObjectMeta: metav1.ObjectMeta{Name: StateName}, BinaryData: map[string][]byte{stateKey: data}, Data: map[string]string{"later": "x"},
			}, metav1.CreateOptions{}); err != nil {
				t.Fatal(err)
			}
			r := b.control(nil)
			r.inForce(1)
			if r.metric("kernosis_trigger_state_damaged_total") != 1 || !strings.Contains(r.log.String(), "can't read the saved trigger state") {
				t.Error("it is not reported")
			}
			if err := r.take(alert(time.Now(), "node", node)); err != nil {
				t.Fatal(err)
			}
			b.only()
			testenv.Until(t, "a good one is saved", deadline, func() bool { return r.metric("kernosis_trigger_state_saves_total", "outcome", "saved") == 1 })
			m, err := b.server.Client().CoreV1().ConfigMaps(b.namespace).Get(t.Context(), StateName, metav1.GetOptions{})
			if err != nil {
				t.Fatal(err)
			}
			if kept := m.BinaryData[unreadKey]; bytes.Equal(kept, data) != (name != "large") {
				t.Errorf("%d bytes of %d are kept", len(kept), len(data))
			}
			if m.Data["later"] != "x" {
				t.Error("what a newer version has added is lost")
			}
		})
	}
}

// However much is remembered, it fits into an object, and is written only when it has changed.
func TestTheStateIsBounded(t *testing.T) {
	testenv.OnlyInTestAll(t)
	e, err := trigger.NewEngine(trigger.Config{Namespace: "n"})
	if err != nil {
		t.Fatal(err)
	}
	var all []*trigger.Matcher
	for i := range 40 {
		m, err := trigger.Compile(&v1alpha1.Trigger{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("t%d", i)}, Spec: v1alpha1.TriggerSpec{
			OperationSet: "s", NodeName: "n", RateLimit: v1alpha1.RateLimit{Count: 1000},
			SourceTemplate: v1alpha1.SourceTemplate{PrometheusAlertTemplate: &v1alpha1.PrometheusAlertTemplate{Regexp: v1alpha1.PrometheusAlertTemplateRegexp{AlertName: "A"}}},
		}})
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, m)
	}
	if err := e.Install(all); err != nil {
		t.Fatal(err)
	}
	now := time.Date(2026, 3, 1, 0, 0, 0, 0, time.UTC)
	for i := range 300 {
		now = now.Add(time.Duration(i*i) % 997 * time.Millisecond)
		e.Alert(alert(now, "i", strconv.Itoa(i)), trigger.Known{}, now)
	}
	full, forgotten, err := encodeState(e.State(), maxState)
	if err != nil || forgotten > 0 {
		t.Fatal(err, forgotten)
	}
	t.Logf("4096 alerts and subjects, 12000 starts: %d bytes", len(full))
	for limit := len(full) - 1; limit > 8<<10; limit /= 2 {
		data, forgotten, err := encodeState(e.State(), limit)
		if err != nil || forgotten == 0 || len(data) > limit {
			t.Fatal(limit, len(data), forgotten, err)
		}
		s, err := decodeState(data)
		if err != nil || e.Restore(s) != nil {
			t.Fatal(err)
		}
	}
	if _, _, err := encodeState(e.State(), 10); err == nil {
		t.Error("names can't be left out")
	}
}

func TestTriggersThatAreWrongAreLeftAside(t *testing.T) {
	b := newBench(t)
	node := b.server.Node(t)
	b.trigger("good", onNode)
	wrong := b.trigger("wrong", `{operationSet: s, nodeName: `+node+`, sourceTemplate: {cronTemplate: {schedule: "0 5-2 * * *"}}}`)
	b.trigger("problem", `{operationSet: s, sourceTemplate: {problemTemplate: {rules: [oom-kill]}}}`) // handled by agents
	r := b.control(nil)
	r.inForce(1)
	if n := r.metric("kernosis_triggers_left_out", "reason", "invalid"); n != 1 {
		t.Errorf("%v are left out", n)
	}
	if err := b.objects.Get(t.Context(), client.ObjectKeyFromObject(wrong), wrong); err != nil {
		t.Fatal(err)
	}
	wrong.Spec.SourceTemplate.CronTemplate.Schedule = "0 2-5 * * *"
	if err := b.objects.Update(t.Context(), wrong); err != nil {
		t.Fatal(err)
	}
	r.inForce(2)
	if err := b.objects.Delete(t.Context(), wrong); err != nil {
		t.Fatal(err)
	}
	r.inForce(1)
}

// A new leader handles exactly the Events after those that the previous one has handled. However
// many older ones there are, Events from the gap are not dropped because of them, and a Diagnosis
// that was deleted since is not created again.
func TestTheNextLeaderGoesOnBehindTheLastEvent(t *testing.T) {
	testenv.OnlyInTestAll(t)
	b := newBench(t)
	node := b.server.Node(t)
	b.trigger("failed-mount", "{cooldown: 1h, rateLimit: {count: 1000, within: 1h}, "+b.mounts()[1:])
	first := b.controlIn(elected("first"), nil)
	testenv.Until(t, "the first leads", deadline, func() bool { return first.Ready() == nil })
	first.inForce(1)
	testenv.Until(t, "Events are watched", deadline, func() bool { return first.metric("kernosis_trigger_event_watch") == 1 })
	second := b.controlIn(elected("second"), nil)
	last := ""
	const subjects, each = 200, 6 // more than may wait
	for i := range subjects {
		pod := b.server.Pod(t, b.namespace, fmt.Sprintf("old-%d", i), node)
		for range each {
			last = b.event(pod, "FailedMount", node).ResourceVersion
		}
	}
	testenv.Until(t, "all are seen to", deadline, func() bool {
		return first.metric("kernosis_trigger_events_matched_total") == subjects*each && len(first.events) == 0 && len(b.diagnoses()) == subjects
	})
	saved := func() string {
		m, err := b.server.Client().CoreV1().ConfigMaps(b.namespace).Get(t.Context(), StateName, metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		return m.Data[markKey]
	}
	testenv.Until(t, "that is saved", deadline, func() bool { return saved() != "" && !after(last, saved()) })
	if err := b.objects.DeleteAllOf(t.Context(), &v1alpha1.Diagnosis{}, client.InNamespace(b.namespace)); err != nil {
		t.Fatal(err)
	}
	first.kill()
	for i := range 3 {
		b.event(b.server.Pod(t, b.namespace, fmt.Sprintf("new-%d", i), node), "FailedMount", node)
	}
	if second.Ready() == nil {
		t.Fatal("there was no gap")
	}
	testenv.Until(t, "those of the gap are diagnosed", deadline, func() bool {
		return second.metric("kernosis_trigger_event_watch") == 1 && len(second.events) == 0 && len(b.diagnoses()) >= 3
	})
	b.event(b.server.Pod(t, b.namespace, "last", node), "FailedMount", node)
	testenv.Until(t, "what comes later is diagnosed", deadline, func() bool { return len(b.diagnoses()) >= 4 })
	if n := second.metric("kernosis_trigger_events_matched_total"); len(b.diagnoses()) != 4 || n != 4 || second.metric("kernosis_trigger_events_dropped_total") != 0 {
		t.Errorf("%d Diagnoses, %v Events are seen to", len(b.diagnoses()), n)
	}
}

// From a list, even more Events than may wait at once are all handled, and none is dropped.
func TestAListOfManyEventsWaits(t *testing.T) {
	b := newBench(t)
	b.trigger("failed-mount", b.mounts())
	r := b.control(nil)
	r.inForce(1)
	var all []any
	for i := range 3 * maxEvents {
		all = append(all, &corev1.Event{ObjectMeta: metav1.ObjectMeta{Namespace: b.namespace, Name: strconv.Itoa(i), ResourceVersion: strconv.Itoa(1 + i)}, Reason: "FailedMount"})
	}
	of := &sieve{part: r.Part, ctx: t.Context()}
	r.mark.reach("9") // from before a restored backup: the list is older
	if err := of.Replace(all, "8"); err != nil {
		t.Fatal(err)
	}
	if n := r.metric("kernosis_trigger_events_matched_total"); n < 3*maxEvents || r.metric("kernosis_trigger_events_dropped_total") != 0 {
		t.Errorf("%v of %d are seen to", n, len(all))
	}
}

func TestMark(t *testing.T) {
	m := newMark()
	a, b := &corev1.Event{}, &corev1.Event{}
	is := func(want string) {
		t.Helper()
		if got := m.version(); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
	is("")
	m.take(a, "", true) // from the first list
	m.reach("9")
	is("")
	m.done(a)
	is("9")
	m.take(a, "10", true)
	m.take(b, "11", true)
	is("9")
	m.done(a)
	is("10")
	m.done(b)
	is("11")
	if m.since("11") != "11" || m.since("10") != "" || m.since("12") != "" {
		t.Error("behind the wrong version")
	}
}
