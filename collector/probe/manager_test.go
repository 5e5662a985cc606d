package probe_test

import (
	"sync"
	"testing"
	"time"

	"github.com/kernosis/kernosis/collector/event"
	"github.com/kernosis/kernosis/collector/probe"
)

// reported collects the events of a Manager.
type reported struct {
	mu     sync.Mutex
	events []*event.Event
}

func (t *reported) take(ev *event.Event) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.events = append(t.events, ev.Clone())
}

func TestFailuresAreReportedWithTheirCount(t *testing.T) {
	var said reported
	m := probe.New(probe.Config{Report: said.take, Start: time.Now()})
	spec := &probe.Spec{Handler: probe.HTTP, Port: 8080, Path: "/healthz", Timeout: time.Second, Period: 10 * time.Second, SuccessThreshold: 1, FailureThreshold: 3}
	m.AddPod(&probe.Pod{
		UID: "u1", Namespace: "shop", Name: "web-0",
		Containers: []probe.Container{{Name: "web", ID: "containerd://c1", State: probe.Running, Started: true, Liveness: spec}},
	})
	k := probe.Key{PodUID: "u1", Container: "web", Kind: probe.Liveness}
	for range 3 {
		if !m.Observe(k, probe.Outcome{Detail: event.ProbeOutcome{Verdict: event.VerdictSilent, Cause: "no byte back in 1s"}}) {
			t.Fatal("not taken")
		}
	}
	if m.Observe(k, probe.Outcome{}) {
		t.Error("taken on hold")
	}
	if len(said.events) != 3 {
		t.Fatalf("%d events, want 3", len(said.events))
	}
	for i, ev := range said.events {
		d := ev.Probe
		if ev.Kind != event.Probe || int(d.Failures) != i+1 || d.Threshold != 3 || d.Name != "shop/web-0 web" || d.Verdict != event.VerdictSilent ||
			d.Feed != event.ProbeObserved || ev.Container.ID != "c1" || ev.Container.Runtime != "containerd" || ev.Container.PodUID != "u1" || ev.CPU != event.NoCPU {
			t.Errorf("%d: %+v %+v", i, ev, d)
		}
	}
}
