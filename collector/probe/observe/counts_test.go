package observe

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/kernosis/kernosis/collector/event"
	"github.com/kernosis/kernosis/collector/probe"
)

// cut returns a connection that was reset after a complete header.
func (w *world) cut() *event.Event {
	ev := w.fail(event.VerdictReset, 50*time.Millisecond)
	ev.SockFail.Phase, ev.SockFail.Received = "established", 52
	return ev
}

func asked(w *world, c *Config, _ *probe.Pod) { c.Kubelet = w }

// An answer that was cut off waits for kubelet's counts, even if they were read just before. If
// kubelet does not count it, it is not reported.
func TestACutAnswerWaitsForKubeletsCounts(t *testing.T) {
	in(t, asked, func(w *world) {
		time.Sleep(time.Second)
		for range 3 { // kubelet tries three times
			w.o.Take(w.cut())
		}
		time.Sleep(20 * time.Second)
		w.wantReported()
		if s := w.o.Stats(); s.Uncounted != 3 || s.Taken != 0 {
			t.Errorf("%+v", s)
		}
		w.change(func() { w.results[key(probe.Liveness)] = Results{Failed: 1} })
		w.o.Take(w.cut())
		time.Sleep(10 * time.Second)
		w.wantReported("liveness reset 1/3")
	})
}

// kubelet's counts may have been read before it had counted the failure.
func TestACutAnswerThatKubeletCountsLate(t *testing.T) {
	in(t, asked, func(w *world) {
		time.Sleep(6 * time.Second)
		w.o.Take(w.cut())
		time.Sleep(time.Second)
		w.change(func() { w.results[key(probe.Liveness)] = Results{Failed: 1} })
		time.Sleep(15 * time.Second)
		w.wantReported("liveness reset 1/3")
		if s := w.o.Stats(); s.Uncounted != 0 || s.Counted != 1 {
			t.Errorf("%+v", s)
		}
	})
}

// If kubelet's counts are unavailable, the failure is reported, but counts towards no threshold.
func TestACutAnswerWithoutKubeletsCounts(t *testing.T) {
	in(t, nil, func(w *world) {
		for range 4 {
			w.o.Take(w.cut())
			time.Sleep(10 * time.Second)
		}
		ev := w.all()[3].Probe
		if !strings.HasSuffix(ev.Cause, "; kubelet may not count it") || !strings.Contains(strings.Join(ev.Evidence, "\n"), "its counts are unavailable") {
			t.Errorf("%+v", ev)
		}
		w.wantReported("liveness reset 0/3", "liveness reset 0/3", "liveness reset 0/3", "liveness reset 0/3")
		w.o.Take(w.fail(event.VerdictRefused, time.Millisecond))
		w.wantReported("liveness refused 1/3")
		if s := w.o.Stats(); s.Unsure != 4 {
			t.Errorf("%+v", s)
		}
	})
}

// A connection that succeeded may have had a bad status: kubelet's counts show whether the run is
// over.
func TestAnAnswerIsNoSuccessYet(t *testing.T) {
	in(t, asked, func(w *world) {
		results := func(failed, succeeded uint64) {
			w.change(func() { w.results[key(probe.Liveness)] = Results{Failed: failed, Succeeded: succeeded} })
		}
		time.Sleep(time.Second)
		results(1, 0)
		w.o.Take(w.fail(event.VerdictSilent, time.Second))
		w.wantReported("liveness connected-silent 1/3")
		time.Sleep(10 * time.Second)
		results(2, 0)
		w.o.Take(w.recovered())
		w.change(func() {
			w.counts["shop/web-1:8080"] = &Count{Name: "shop/web-1:8080", Succeeded: 1, Started: time.Now()}
		})
		time.Sleep(9 * time.Second)
		w.wantReported("liveness unexplained 2/3")
		time.Sleep(time.Second)
		results(2, 1)
		w.o.Take(w.recovered())
		time.Sleep(9 * time.Second)
		w.wantReported("liveness recovered")
	})
}

// Successes that kubelet has counted since the previous poll may be older than a failure that it
// has not counted yet.
func TestSuccessesBeforeTheFailure(t *testing.T) {
	in(t, func(w *world, c *Config, p *probe.Pod) {
		c.Kubelet = w
		p.Containers[0].Liveness.Period = time.Second
	}, func(w *world) {
		time.Sleep(6 * time.Second)
		w.change(func() { w.results[key(probe.Liveness)] = Results{Succeeded: 5} })
		w.o.Take(w.fail(event.VerdictSilent, time.Second))
		w.o.poke() // as any other held connection does
		time.Sleep(500 * time.Millisecond)
		w.change(func() { w.results[key(probe.Liveness)] = Results{Succeeded: 5, Failed: 1} })
		time.Sleep(5 * time.Second)
		w.wantReported("liveness connected-silent 1/3")
		w.change(func() { w.results[key(probe.Liveness)] = Results{Succeeded: 6, Failed: 1} })
		time.Sleep(10 * time.Second)
		w.wantReported("liveness recovered")
	})
}

// now changes the container's current state.
func (w *world) now(change func(c *probe.Container)) {
	p, _ := w.manager.Pod("u1")
	next := *p
	next.Containers = slices.Clone(p.Containers)
	change(&next.Containers[0])
	w.manager.AddPod(&next)
	w.o.Listed()
}

// restarted gives the container a new ID.
func (w *world) restarted(id string) {
	w.now(func(c *probe.Container) {
		c.ID, c.State, c.StartedAt = "containerd://"+id, probe.Running, time.Now()
	})
}

// ids returns the container IDs of the failures reported since the last call of reported.
func (w *world) ids() (ids []string) {
	for _, ev := range w.all() {
		if ev.Kind == event.Probe {
			ids = append(ids, ev.Container.ID)
		}
	}
	return ids
}

// The failure that makes kubelet restart a container belongs to that container, even if it is
// reported when the next one runs.
func TestTheLastFailureIsOfTheContainerThatHadIt(t *testing.T) {
	in(t, asked, func(w *world) {
		fails := func(n uint64) {
			w.change(func() { w.results[key(probe.Liveness)] = Results{Failed: n} })
		}
		time.Sleep(time.Second)
		fails(1)
		time.Sleep(10 * time.Second)
		fails(2)
		time.Sleep(10 * time.Second)
		fails(3)
		w.restarted("9b2e")
		time.Sleep(15 * time.Second)
		if got := w.ids(); !slices.Equal(got, []string{"8a1f", "8a1f", "8a1f"}) {
			t.Errorf("of the containers %q", got)
		}
		got := w.reported()
		var failed []string
		for _, s := range got {
			if !strings.HasSuffix(s, "recovered") {
				failed = append(failed, s[strings.LastIndex(s, " ")+1:])
			}
		}
		if !slices.Equal(failed, []string{"1/3", "2/3", "3/3"}) || !strings.HasSuffix(got[len(got)-1], "recovered") {
			t.Errorf("reported %q", got)
		}
		// The new container's count starts at one.
		fails(4)
		time.Sleep(15 * time.Second)
		if got := w.ids(); !slices.Equal(got, []string{"9b2e"}) {
			t.Errorf("of the containers %q", got)
		}
		if got := w.reported(); len(got) != 1 || !strings.HasSuffix(got[0], "1/3") {
			t.Errorf("reported %q", got)
		}
		if s := w.o.Stats(); s.Counted != 4 || s.Refused != 0 {
			t.Errorf("%+v", s)
		}
	})
}

// A complete run between two polls of kubelet, including the restart: failures beyond the
// threshold belong to the new container.
func TestMoreFailuresThanTheThreshold(t *testing.T) {
	in(t, asked, func(w *world) {
		time.Sleep(time.Second)
		w.restarted("9b2e")
		w.change(func() { w.results[key(probe.Liveness)] = Results{Failed: 4} })
		time.Sleep(15 * time.Second)
		if got := w.ids(); !slices.Equal(got, []string{"8a1f", "8a1f", "8a1f", "9b2e"}) {
			t.Errorf("of the containers %q", got)
		}
	})
}

// While a probe fails, kubelet is polled as often as it makes the probe, within bounds.
func TestKubeletIsAskedSoonerWhileAProbeFails(t *testing.T) {
	in(t, func(w *world, c *Config, p *probe.Pod) {
		c.Kubelet = w
		p.Containers[0].Liveness.Period = time.Second
		p.Containers[0].Liveness.FailureThreshold = 1000
	}, func(w *world) {
		time.Sleep(30 * time.Second)
		count := func(d time.Duration) int {
			w.mu.Lock()
			before := w.asked
			w.mu.Unlock()
			for end := time.Now().Add(d); time.Now().Before(end); time.Sleep(time.Second) {
				w.change(func() {
					r := w.results[key(probe.Liveness)]
					r.Failed++
					w.results[key(probe.Liveness)] = r
				})
				w.o.Take(w.fail(event.VerdictRefused, time.Millisecond))
			}
			w.mu.Lock()
			defer w.mu.Unlock()
			return w.asked - before
		}
		if n := count(10 * time.Second); n < 8 || n > 11 {
			t.Errorf("asked %d times in 10 s", n)
		}
		count(time.Minute)
		if n := count(time.Minute); n > 30 {
			t.Errorf("asked %d times in a minute of a probe that goes on failing", n)
		}
	})
}

// Inspecting a container that is ending does not change the verdict of earlier failures.
func TestTheVerdictOfAContainerThatEnds(t *testing.T) {
	gone := func(w *world) *event.Event {
		ev := w.fail(event.VerdictTimeout, time.Second)
		ev.SockFail.Evidence = []string{"no answer to the SYN", "no listener on 10.0.0.7:8080, and no reset either"}
		return ev
	}
	in(t, nil, func(w *world) {
		w.o.Take(gone(w)) // the first failure has no earlier verdict
		w.wantReported("liveness syn-unanswered 1/3")
		w.o.Take(w.recovered())
		w.reported()
		for range 2 {
			time.Sleep(10 * time.Second)
			ev := w.fail(event.VerdictAcceptQueueFull, time.Second)
			ev.SockFail.QueueLen, ev.SockFail.QueueMax = 2, 1
			w.o.Take(ev)
		}
		time.Sleep(10 * time.Second)
		w.o.Take(gone(w))
		d := w.all()[2].Probe
		if d.Cause != "accept queue full 2/1 on :8080" || d.QueueMax != 1 || !strings.Contains(strings.Join(d.Evidence, "\n"), "ending when examined (its listener is gone)") {
			t.Errorf("%+v", d)
		}
		w.wantReported("liveness accept-queue-full 1/3", "liveness accept-queue-full 2/3", "liveness accept-queue-full 3/3")
	})
	// A container that still has its listener is not ending.
	in(t, nil, func(w *world) {
		w.o.Take(w.fail(event.VerdictAcceptQueueFull, time.Second))
		time.Sleep(10 * time.Second)
		w.o.Take(w.fail(event.VerdictTimeout, time.Second))
		time.Sleep(10 * time.Second)
		w.o.Take(w.fail(event.VerdictRefused, time.Millisecond))
		w.wantReported("liveness accept-queue-full 1/3", "liveness syn-unanswered 2/3", "liveness refused 3/3")
	})
}

// Answers that come too slowly wait for kubelet's counts. Meanwhile the container may have ended
// or been replaced. Each failure keeps its verdict and its container, whatever the timing of
// kubelet's counts, the restart and the polls.
func TestSlowAnswersUpToTheRestart(t *testing.T) {
	const threshold = 3
	course := func(w *world, phase, ends, restarts time.Duration, often bool) {
		time.Sleep(6 * time.Second)
		// Other failing probes cause polls at other times.
		w.o.mu.Lock()
		w.o.pollAt = time.Now().Add(time.Second + phase)
		w.o.mu.Unlock()
		w.o.poke()
		if !often {
			w.o.mu.Lock()
			w.o.fast.AllowN(time.Now(), fastBurst)
			w.o.mu.Unlock()
		}
		for n := range threshold {
			time.Sleep(time.Second)
			w.change(func() { w.results[key(probe.Liveness)] = Results{Failed: uint64(n + 1)} })
			ev := w.fail(event.VerdictSlow, time.Second)
			ev.SockFail.Received = 5
			w.o.Take(ev)
		}
		time.Sleep(ends)
		w.now(func(c *probe.Container) { c.State = probe.Ended })
		time.Sleep(restarts)
		w.restarted("9b2e")
		time.Sleep(20 * time.Second)
		if got := w.ids(); !slices.Equal(got, []string{"8a1f", "8a1f", "8a1f"}) {
			w.t.Errorf("of the containers %q", got)
		}
		failed := slices.DeleteFunc(w.reported(), func(s string) bool { return s == "liveness recovered" })
		if !slices.Equal(failed, []string{"liveness slow 1/3", "liveness slow 2/3", "liveness slow 3/3"}) {
			w.t.Errorf("reported %q with a phase of %s, an end after %s, a restart %s later, and kubelet asked often: %t", failed, phase, ends, restarts, often)
		}
	}
	for phase := time.Duration(0); phase < time.Second; phase += 39 * time.Millisecond {
		for _, ends := range []time.Duration{20 * time.Millisecond, 100 * time.Millisecond, 1050 * time.Millisecond, 1400 * time.Millisecond} {
			for _, restarts := range []time.Duration{10 * time.Millisecond, 200 * time.Millisecond, 3 * time.Second} {
				for _, often := range []bool{true, false} {
					in(t, func(w *world, c *Config, p *probe.Pod) {
						c.Kubelet = w
						p.Containers[0].Liveness.Period, p.Containers[0].Liveness.FailureThreshold = time.Second, threshold
					}, func(w *world) { course(w, phase, ends, restarts, often) })
				}
			}
		}
	}
}
