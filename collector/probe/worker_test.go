package probe_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/kernosis/kernosis/collector/event"
	"github.com/kernosis/kernosis/collector/probe"
)

// run returns the reported events, as "8a1f 2/3" or "8a1f over".
func (s *reported) run() (out []string) {
	for _, ev := range s.events {
		if ev.Kind == event.Probe {
			out = append(out, fmt.Sprintf("%s %d/%d", ev.Container.ID, ev.Probe.Failures, ev.Probe.Threshold))
		} else {
			out = append(out, ev.Container.ID+" over")
		}
	}
	s.events = nil
	return out
}

// Failures that arrive when there is a new container belong to the previous one, up to the
// threshold.
func TestALateFailureIsOfTheFormerContainer(t *testing.T) {
	var said reported
	m := probe.New(probe.Config{Report: said.take})
	p := observed("u1", "web-0")
	p.Containers[0].ID = "x://a"
	m.AddPod(p)
	fail := func(id string) bool { return m.Observe(liveness("u1"), probe.Outcome{Container: id}) }
	m.Observe(liveness("u1"), probe.Outcome{OK: true}) // the run begins after this success
	if !fail("x://a") || !fail("") {
		t.Fatal("not taken")
	}
	if fail("x://b") {
		t.Error("taken for a container that is not there")
	}
	next := observed("u1", "web-0")
	next.Containers[0].ID, next.Containers[0].StartedAt = "x://b", time.Now()
	m.AddPod(next)
	if !fail("x://a") {
		t.Error("the last one is lost")
	}
	if fail("x://a") {
		t.Error("more than the threshold")
	}
	if got, want := said.run(), []string{"a 1/3", "a 2/3", "a over", "a 3/3", "a over"}; !slices.Equal(got, want) {
		t.Errorf("reported %q, want %q", got, want)
	}
	if !fail("") {
		t.Error("not taken")
	}
	if got, want := said.run(), []string{"b 1/3"}; !slices.Equal(got, want) {
		t.Errorf("reported %q, want %q", got, want)
	}
	if w := m.Workers()[liveness("u1")]; w.Failures != 1 || w.OnHold {
		t.Errorf("%+v", w)
	}
}

// A container that has ended and has no successor yet had its last failure before its end.
func TestALateFailureOfAContainerThatHasEnded(t *testing.T) {
	var said reported
	m := probe.New(probe.Config{Report: said.take})
	p := observed("u1", "web-0")
	p.Containers[0].ID = "x://a"
	m.AddPod(p)
	m.Observe(liveness("u1"), probe.Outcome{})
	next := observed("u1", "web-0")
	next.Containers[0].ID, next.Containers[0].State = "x://a", probe.Ended
	m.AddPod(next)
	if m.Observe(liveness("u1"), probe.Outcome{}) {
		t.Error("a container that does not run is not probed")
	}
	if !m.Observe(liveness("u1"), probe.Outcome{Container: "x://a"}) {
		t.Error("not taken")
	}
	if got, want := said.run(), []string{"a 1/3", "a 2/3"}; !slices.Equal(got, want) {
		t.Errorf("reported %q, want %q", got, want)
	}
}

// A failure that kubelet may not count is reported, but does not count towards a threshold.
func TestAnUnsureFailure(t *testing.T) {
	var said reported
	m := probe.New(probe.Config{Report: said.take})
	p := observed("u1", "web-0")
	p.Containers[0].ID = "x://a"
	m.AddPod(p)
	for range 4 {
		m.Observe(liveness("u1"), probe.Outcome{Unsure: true})
	}
	m.Observe(liveness("u1"), probe.Outcome{})
	m.Observe(liveness("u1"), probe.Outcome{OK: true})
	if got, want := said.run(), []string{"a 0/3", "a 0/3", "a 0/3", "a 0/3", "a 1/3", "a over"}; !slices.Equal(got, want) {
		t.Errorf("reported %q, want %q", got, want)
	}
}
