package events_test

import (
	"encoding/json"
	"errors"
	"os"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kernosis/kernosis/collector/event"
	"github.com/kernosis/kernosis/detector/problem"
	"github.com/kernosis/kernosis/reporter/journal"
	"github.com/kernosis/kernosis/reporter/kube/events"
	"github.com/kernosis/kernosis/vmtest/testenv"
)

// oomEvent returns an OOM kill with evidence.
func oomEvent(limit uint64) *event.Event {
	return &event.Event{
		Kind: event.OOMKill, Time: time.Now(), CPU: 1, Task: &event.Task{PID: 7, Comm: "java"},
		Container: &event.Container{ID: strings.Repeat("8a", 32)},
		OOMKill:   &event.OOMKillData{Scope: "memcg", Limit: limit, Usage: limit, AnonRSS: limit / 2},
	}
}

// reportOf reports a problem that an event has made fire, and then reuses the event's memory.
func (a *agent) reportOf(ev *event.Event, uid string) {
	a.tb.Helper()
	tr := kill(uid)
	tr.Problem.Doc = "problems/OOMKilling"
	e := journal.Entry{Now: time.Now(), Event: ev, Transitions: []problem.Transition{tr}}
	if ev != nil {
		tr.Problem.LastSeen = ev.Time
	}
	seq, _, err := a.journal.Add(e)
	if err = errors.Join(err, a.journal.Flush()); err != nil {
		a.tb.Fatal(err)
	}
	e.Seq = seq
	a.sink.Add(e)
	a.sink.Flush(e.Seq)
	if ev != nil {
		*ev.OOMKill = event.OOMKillData{Scope: "overwritten"}
	}
}

func (a *agent) factsOn(p *corev1.Pod) event.Facts {
	a.tb.Helper()
	list := a.onPod(p)
	if len(list) != 1 {
		a.tb.Fatalf("%d Events", len(list))
	}
	return event.FactsOf(list[0].Annotations)
}

// An Event has the evidence of its latest occurrence only; annotations of other clients stay.
func TestEventsCarryTheirEvidence(t *testing.T) {
	a := newAgent(t, nil)
	p := a.pod(a.server.Namespace(t), "web-1")
	uid := string(p.UID)
	a.reportOf(oomEvent(32<<20), uid)
	a.sent(1)
	f := a.factsOn(p)
	if f.Kind != event.OOMKill || f.Verdict != "memcg" || f.Doc != "problems/OOMKilling" || f.Container != "8a8a8a8a8a8a" ||
		len(f.Evidence) < 2 || !strings.Contains(f.Evidence[0], "32 MiB") || len(f.Excluded) != 1 {
		t.Errorf("%+v", f)
	}
	if onNode := a.onNode(); len(onNode) != 1 || onNode[0].Annotations[event.AnnotationVerdict] != "memcg" {
		t.Errorf("%+v", onNode)
	}
	e := a.onPod(p)[0]
	e.Annotations["example.com/seen"] = "yes"
	if _, err := a.client.CoreV1().Events(e.Namespace).Update(t.Context(), &e, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	before, _ := requests(a.sink.Stats())
	a.reportOf(oomEvent(64<<20), uid)
	a.sent(2)
	if f = a.factsOn(p); !strings.Contains(f.Evidence[0], "64 MiB") {
		t.Errorf("%+v", f)
	}
	if after, _ := requests(a.sink.Stats()); after-before != 2 { // the pod's and the Node's counts
		t.Errorf("%d writes", after-before)
	}
	if a.onPod(p)[0].Annotations["example.com/seen"] != "yes" {
		t.Error("another's annotation is gone")
	}
	// A transition caused by a timer has no evidence.
	a.reportOf(nil, uid)
	a.sent(3)
	if f = a.factsOn(p); f.Doc == "" || f.Kind != "" || f.Evidence != nil || f.Excluded != nil || f.Verdict != "" {
		t.Errorf("%+v", f)
	}
	if a.onPod(p)[0].Annotations["example.com/seen"] != "yes" {
		t.Error("another's annotation is gone")
	}
}

// The number of occurrences that are not reported on their pods changes without a new occurrence:
// the Node's Event keeps its evidence.
func TestEvidenceOutlastsAPodThatIsGivenUp(t *testing.T) {
	a := newAgent(t, func(c *events.Config) { c.PodWait = 300 * time.Millisecond })
	a.reportOf(oomEvent(32<<20), "f00")
	var on []corev1.Event
	testenv.Until(t, "the Node's Event says so", time.Minute, func() bool {
		on = a.onNode()
		return len(on) == 1 && strings.HasSuffix(on[0].Message, "(1 of 1 not reported on their pods)")
	})
	if f := event.FactsOf(on[0].Annotations); f.Verdict != "memcg" || f.Doc != "problems/OOMKilling" || len(f.Evidence) < 2 || len(f.Excluded) != 1 {
		t.Errorf("%+v", f)
	}
	if got := a.sink.Stats().Requests[events.Patched]; got != 1 {
		t.Errorf("%d patches: the Event must be created before its pod is given up", got)
	}
}

// Evidence that the API server does not have survives a restart; other evidence is not kept.
func TestEvidenceOutlastsARestart(t *testing.T) {
	a := newAgent(t, func(c *events.Config) { c.PodWait = time.Minute })
	p := a.server.Pod(t, a.server.Namespace(t), "web-1", a.node) // not known yet
	a.reportOf(oomEvent(32<<20), string(p.UID))
	testenv.Until(t, "the Event on the Node", time.Minute, func() bool { return len(a.onNode()) == 1 })
	a.stop()
	a.journal.Close()
	var saved struct {
		Series []struct {
			Pod   string
			Event json.RawMessage
		}
	}
	a.saved(&saved)
	for _, s := range saved.Series {
		if has := len(s.Event) > 0; has != (s.Pod != "") {
			t.Errorf("series of pod %q: evidence %s", s.Pod, s.Event)
		}
	}
	a.pods.add(p)
	a.start()
	a.sent(1)
	if f := a.factsOn(p); f.Verdict != "memcg" || len(f.Evidence) < 2 {
		t.Errorf("%+v", f)
	}
}

// The change of a condition has the evidence of the problem that caused it.
func TestConditionsCarryTheirEvidence(t *testing.T) {
	a := newAgent(t, nil)
	ev := oomEvent(32 << 20)
	now := time.Now()
	tr := kill("")
	tr.Problem.Condition, tr.Problem.Doc, tr.Problem.LastSeen = "FrequentOOMKilling", "problems/FrequentOOMKilling", ev.Time
	e := journal.Entry{Now: now, Event: ev, Transitions: []problem.Transition{tr, {Condition: &problem.Condition{
		Type: "FrequentOOMKilling", Status: problem.True, Reason: tr.Problem.Reason, Message: tr.Problem.Message, LastTransition: now,
	}}}}
	var err error
	e.Seq, _, err = a.journal.Add(e)
	if err = errors.Join(err, a.journal.Flush()); err != nil {
		t.Fatal(err)
	}
	a.sink.Add(e)
	a.sink.Flush(e.Seq)
	a.sent(1)
	list := a.onNode()
	if len(list) != 1 || list[0].Annotations[event.AnnotationVerdict] != "memcg" || list[0].Annotations[event.AnnotationDoc] != "problems/FrequentOOMKilling" {
		t.Errorf("%+v", list)
	}
}

func (a *agent) saved(into any) {
	a.tb.Helper()
	raw := readFile(a.tb, a.dir+"/"+events.StateFile)
	if err := json.Unmarshal(raw, into); err != nil {
		a.tb.Fatal(err)
	}
}

func readFile(tb testing.TB, path string) []byte {
	tb.Helper()
	raw, err := os.ReadFile(path)
	if err != nil {
		tb.Fatal(err)
	}
	return raw
}
