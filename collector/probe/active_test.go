package probe_test

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kernosis/kernosis/collector/event"
	"github.com/kernosis/kernosis/collector/probe"
)

// fake is a Prober that returns what the test wants and records when it was called.
type fake struct {
	mu    sync.Mutex
	times map[probe.Kind][]time.Duration // since the test began
	began time.Time
	probe func(context.Context, *probe.Request) (probe.Outcome, error)
}

func (f *fake) Probe(ctx context.Context, r *probe.Request) (probe.Outcome, error) {
	f.mu.Lock()
	f.times[r.Key.Kind] = append(f.times[r.Key.Kind], time.Since(f.began))
	f.mu.Unlock()
	return f.probe(ctx, r)
}

func (f *fake) at(k probe.Kind) []time.Duration {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.times[k])
}

func always(ok bool) func(context.Context, *probe.Request) (probe.Outcome, error) {
	return func(context.Context, *probe.Request) (probe.Outcome, error) { return probe.Outcome{OK: ok}, nil }
}

// active runs a Manager with virtual time.
func active(t *testing.T, f *fake, uptime time.Duration, test func(m *probe.Manager, said *reported)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		f.times, f.began = map[probe.Kind][]time.Duration{}, time.Now()
		said := &reported{}
		m := probe.New(probe.Config{Report: said.take, Prober: f, Start: time.Now().Add(-uptime)})
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error)
		go func() { ended <- m.Run(ctx) }()
		synctest.Wait()
		test(m, said)
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
		if n := len(m.Workers()); n != 0 {
			t.Errorf("%d workers outlive Run", n)
		}
	})
}

func web(c probe.Container) *probe.Pod {
	c.Name = "web"
	return &probe.Pod{UID: "u", Namespace: "shop", Name: "web-0", Active: true, Containers: []probe.Container{c}}
}

func every(period time.Duration) *probe.Spec {
	return &probe.Spec{Handler: probe.TCP, Port: 80, Period: period, Timeout: time.Second, SuccessThreshold: 1, FailureThreshold: 3}
}

func running(id string) probe.Container {
	return probe.Container{ID: id, State: probe.Running, StartedAt: time.Now()}
}

func key(k probe.Kind) probe.Key { return probe.Key{PodUID: "u", Container: "web", Kind: k} }

func pass(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

const s = time.Second

func TestProbesAreMadeAtOnceAndThenEachPeriod(t *testing.T) {
	f := &fake{probe: always(true)}
	active(t, f, time.Hour, func(m *probe.Manager, said *reported) {
		c := running("x://a")
		c.Liveness = every(10 * s)
		m.AddPod(web(c))
		m.AddPod(web(c)) // again: nothing new
		pass(25 * s)
		if have := f.at(probe.Liveness); !slices.Equal(have, []time.Duration{0, 10 * s, 20 * s}) {
			t.Errorf("%v", have)
		}
		if len(said.events) != 0 {
			t.Errorf("%d events", len(said.events))
		}
	})
}

// A pod of services or from a file is added again when another service is found or the file
// changes. That must not move the runs of unchanged probes, however often it happens.
func TestChangesOfOthersPostponeNoRun(t *testing.T) {
	f := &fake{probe: func(_ context.Context, r *probe.Request) (probe.Outcome, error) {
		return probe.Outcome{OK: r.Key.Kind == probe.Readiness}, nil
	}}
	active(t, f, time.Hour, func(m *probe.Manager, _ *reported) {
		c := running("x://a")
		c.Liveness, c.Readiness = every(10*s), every(10*s)
		c.Liveness.FailureThreshold = 100 // otherwise probing stops until the restart
		p := web(c)
		for i := range 12 {
			m.AddPod(p)
			pass(3 * s)
			same := *p
			other := running("x://" + strings.Repeat("b", i+1))
			other.Name, other.Startup = other.ID, every(time.Hour)
			same.Containers = append(slices.Clone(p.Containers), other)
			p = &same
			liveness := *c.Liveness // a copy, as if read again
			p.Containers[0].Liveness = &liveness
		}
		for _, k := range []probe.Kind{probe.Liveness, probe.Readiness} {
			if have, want := f.at(k), []time.Duration{0, 10 * s, 20 * s, 30 * s}; !slices.Equal(have, want) {
				t.Errorf("%s at %v, want %v", k, have, want)
			}
		}
	})
}

// A failing readiness probe is made at once when its pod changes, as by kubelet, and again a
// period later: changes only add runs.
func TestChangesHastenAReadinessProbeThatFails(t *testing.T) {
	f := &fake{probe: always(false)}
	active(t, f, time.Hour, func(m *probe.Manager, _ *reported) {
		c := running("x://a")
		c.Readiness = every(10 * s)
		for i := range 4 {
			p := web(c)
			p.Name += strings.Repeat("x", i) // any change
			m.AddPod(p)
			pass(7 * s)
		}
		pass(12 * s)
		if have, want := f.at(probe.Readiness), []time.Duration{0, 7 * s, 14 * s, 21 * s, 31 * s}; !slices.Equal(have, want) {
			t.Errorf("%v, want %v", have, want)
		}
	})
}

// The wait before the first run begins only once, even if the pod changes meanwhile.
func TestChangesDontPostponeTheFirstRun(t *testing.T) {
	f := &fake{probe: always(true)}
	active(t, f, 0, func(m *probe.Manager, _ *reported) {
		for i := range 30 {
			c := running("x://a")
			c.StartedAt = time.Time{}
			c.Liveness = every(10 * s)
			p := web(c)
			p.Name += strings.Repeat("x", i)
			m.AddPod(p)
			pass(s)
		}
		have := f.at(probe.Liveness)
		if len(have) < 2 || have[0] > 10*s || have[1] != have[0]+10*s {
			t.Errorf("%v, want the first within 10 s and the others each 10 s", have)
		}
	})
}

// Only a process that is younger than the period spreads the first runs.
func TestTheFirstRunIsSpreadAfterTheAgentsStart(t *testing.T) {
	var firsts []time.Duration
	for range 50 {
		f := &fake{probe: always(true)}
		active(t, f, 9*s, func(m *probe.Manager, _ *reported) {
			c := running("x://a")
			c.Liveness = every(10 * s)
			m.AddPod(web(c))
			pass(20 * s)
		})
		at := f.times[probe.Liveness]
		if len(at) == 0 || at[0] >= 10*s || len(at) > 1 && at[1]-at[0] != 10*s {
			t.Fatalf("%v", at)
		}
		firsts = append(firsts, at[0])
	}
	slices.Sort(firsts)
	if firsts[0] > 3*s || firsts[49] < 7*s || len(slices.Compact(firsts)) < 40 {
		t.Errorf("not spread: %v", firsts)
	}
	f := &fake{probe: always(true)}
	active(t, f, 10*s, func(m *probe.Manager, _ *reported) {
		c := running("x://a")
		c.Liveness = every(10 * s)
		m.AddPod(web(c))
		pass(s)
		if have := f.at(probe.Liveness); !slices.Equal(have, []time.Duration{0}) {
			t.Errorf("an old process spreads: %v", have)
		}
	})
}

func TestTheInitialDelayIsWaitedFor(t *testing.T) {
	f := &fake{probe: always(true)}
	active(t, f, time.Hour, func(m *probe.Manager, _ *reported) {
		c := running("x://a")
		c.Liveness = every(10 * s)
		c.Liveness.InitialDelay = 15 * s
		m.AddPod(web(c))
		pass(35 * s)
		if have := f.at(probe.Liveness); !slices.Equal(have, []time.Duration{20 * s, 30 * s}) {
			t.Errorf("%v", have)
		}
	})
}

func TestATriggerMovesTheTicks(t *testing.T) {
	f := &fake{probe: always(true)}
	active(t, f, time.Hour, func(m *probe.Manager, _ *reported) {
		c := running("x://a")
		c.Liveness = every(10 * s)
		m.AddPod(web(c))
		pass(4 * s)
		if !m.Trigger(key(probe.Liveness)) || m.Trigger(key(probe.Readiness)) {
			t.Error("triggered what is not there, or not what is")
		}
		pass(21 * s)
		if have := f.at(probe.Liveness); !slices.Equal(have, []time.Duration{0, 4 * s, 14 * s, 24 * s}) {
			t.Errorf("%v", have)
		}
	})
}

// A probe that takes longer than the period is not made twice at a time.
func TestASlowProbe(t *testing.T) {
	f := &fake{probe: func(context.Context, *probe.Request) (probe.Outcome, error) {
		time.Sleep(25 * s)
		return probe.Outcome{OK: true}, nil
	}}
	active(t, f, time.Hour, func(m *probe.Manager, _ *reported) {
		c := running("x://a")
		c.Liveness = every(10 * s)
		m.AddPod(web(c))
		pass(60 * s)
		if have := f.at(probe.Liveness); !slices.Equal(have, []time.Duration{0, 25 * s, 50 * s}) {
			t.Errorf("%v", have)
		}
	})
}

func TestAProbeThatCantBeMadeIsNoFailure(t *testing.T) {
	cant := errors.New("no such file")
	var mended atomic.Bool
	f := &fake{}
	f.probe = func(context.Context, *probe.Request) (probe.Outcome, error) {
		if !mended.Load() {
			return probe.Outcome{}, cant
		}
		return probe.Outcome{}, nil
	}
	var log strings.Builder
	synctest.Test(t, func(t *testing.T) {
		f.times, f.began = map[probe.Kind][]time.Duration{}, time.Now()
		said := &reported{}
		m := probe.New(probe.Config{Report: said.take, Prober: f, Start: time.Now().Add(-time.Hour), Log: slog.New(slog.NewTextHandler(&log, nil))})
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error)
		go func() { ended <- m.Run(ctx) }()
		c := running("x://a")
		c.Liveness = every(10 * s)
		m.AddPod(web(c))
		pass(15 * s)
		if have := f.at(probe.Liveness); !slices.Equal(have, []time.Duration{0, 0, 0, 10 * s, 10 * s, 10 * s}) {
			t.Errorf("%v", have)
		}
		if n := strings.Count(log.String(), "can't run probe"); n != 1 || !strings.Contains(log.String(), "no such file") {
			t.Errorf("reported %d times: %s", n, &log)
		}
		if w := m.Workers()[key(probe.Liveness)]; len(said.events) != 0 || w.Failures != 0 || w.Result != probe.Success {
			t.Errorf("%d events, %+v", len(said.events), w)
		}
		if n := counted(t, m, "unknown"); n != 2 {
			t.Errorf("counted %v, want 2", n)
		}
		mended.Store(true)
		pass(20 * s)
		if w := m.Workers()[key(probe.Liveness)]; w.Failures != 2 || len(said.events) != 2 {
			t.Errorf("%d events, %+v", len(said.events), w)
		}
		cancel()
		<-ended
	})
}

// From the start of a container through its readiness to its restart, as in kubelet.
func TestALife(t *testing.T) {
	ok := map[probe.Kind]bool{}
	var mu sync.Mutex
	set := func(k probe.Kind, v bool) { mu.Lock(); ok[k] = v; mu.Unlock() }
	f := &fake{probe: func(_ context.Context, r *probe.Request) (probe.Outcome, error) {
		mu.Lock()
		defer mu.Unlock()
		return probe.Outcome{OK: ok[r.Key.Kind]}, nil
	}}
	active(t, f, time.Hour, func(m *probe.Manager, said *reported) {
		c := running("x://a")
		c.Startup, c.Liveness, c.Readiness = every(10*s), every(10*s), every(10*s)
		m.AddPod(web(c))
		status := func() probe.ContainerStatus { return m.Containers("u")[0] }
		pass(15 * s)
		if len(f.at(probe.Startup)) != 2 || len(f.at(probe.Liveness)) != 0 || len(f.at(probe.Readiness)) != 0 {
			t.Fatalf("startup gates nothing: %v", f.times)
		}
		if st := status(); st.Started || st.Ready {
			t.Errorf("%+v before its startup", st)
		}
		set(probe.Startup, true)
		set(probe.Readiness, true)
		set(probe.Liveness, true)
		pass(5*s + 1) // 20 s: startup succeeds, readiness is probed at this moment
		if st := status(); !st.Started || !st.Ready {
			t.Errorf("%+v after its startup", st)
		}
		if have := f.at(probe.Readiness); len(have) == 0 || have[0] != 20*s {
			t.Errorf("readiness waited for its tick: %v", have)
		}
		pass(20 * s)
		if n := len(f.at(probe.Startup)); n != 3 {
			t.Errorf("startup goes on: %d", n)
		}
		set(probe.Liveness, false)
		pass(60 * s)
		result, _ := m.Results(probe.Liveness).Get("x://a")
		w := m.Workers()[key(probe.Liveness)]
		if result != probe.Failure || !w.OnHold || w.Failures != 3 {
			t.Errorf("%v, %+v", result, w)
		}
		n := len(f.at(probe.Liveness))
		pass(60 * s)
		if len(f.at(probe.Liveness)) != n {
			t.Error("probed on hold")
		}
		set(probe.Liveness, true)
		c.ID, c.StartedAt = "x://b", time.Now()
		m.AddPod(web(c))
		if st := status(); st.Started || st.Ready || st.ID != "x://b" {
			t.Errorf("%+v after its restart", st)
		}
		pass(20 * s)
		if st := status(); !st.Started || !st.Ready {
			t.Errorf("%+v after its second startup", st)
		}
		if _, known := m.Results(probe.Liveness).Get("x://a"); known {
			t.Error("the old container's result is kept")
		}
		if w := m.Workers()[key(probe.Liveness)]; w.OnHold || w.Failures != 0 || w.Successes == 0 {
			t.Errorf("%+v", w)
		}
		// One end for each beginning.
		counts := map[string]int{}
		for _, ev := range said.events {
			counts[ev.Probe.Probe+" "+string(ev.Kind)]++
		}
		if counts["startup probe"] != 2 || counts["startup probe.recovered"] != 1 || counts["liveness probe"] != 3 || counts["liveness probe.recovered"] != 1 {
			t.Errorf("%v", counts)
		}
	})
}

// kubelet probes again as soon as a container has become unready.
func TestReadinessIsLookedAtAgainWhenItIsLost(t *testing.T) {
	var lost atomic.Bool
	f := &fake{}
	f.probe = func(context.Context, *probe.Request) (probe.Outcome, error) {
		return probe.Outcome{OK: !lost.Load()}, nil
	}
	active(t, f, time.Hour, func(m *probe.Manager, _ *reported) {
		c := running("x://a")
		c.Readiness = every(10 * s)
		m.AddPod(web(c))
		pass(5 * s)
		lost.Store(true)
		pass(30*s + 1)
		// Runs at 10, 20, 30 fail; the third makes it not ready, which triggers another run.
		if have := f.at(probe.Readiness); !slices.Equal(have, []time.Duration{0, 10 * s, 20 * s, 30 * s, 30 * s}) {
			t.Errorf("%v", have)
		}
	})
}

func TestRemovedPodsAreNotProbed(t *testing.T) {
	var canceled atomic.Int32
	f := &fake{}
	f.probe = func(ctx context.Context, _ *probe.Request) (probe.Outcome, error) {
		select {
		case <-ctx.Done():
			canceled.Add(1)
			return probe.Outcome{}, ctx.Err()
		case <-time.After(5 * s):
			return probe.Outcome{}, nil
		}
	}
	active(t, f, time.Hour, func(m *probe.Manager, said *reported) {
		c := running("x://a")
		c.Liveness = every(10 * s)
		m.AddPod(web(c))
		pass(7 * s)
		if len(said.events) != 1 {
			t.Fatalf("%d events", len(said.events))
		}
		pass(5 * s) // the second probe is running
		m.RemovePod("u")
		pass(time.Minute)
		if len(f.at(probe.Liveness)) != 2 || canceled.Load() != 1 {
			t.Errorf("probed %v, %d canceled", f.at(probe.Liveness), canceled.Load())
		}
		if len(said.events) != 2 || said.events[1].Kind != event.ProbeRecovered || !said.events[1].Probe.Over {
			t.Errorf("%d events, want the failure and its end", len(said.events))
		}
		if _, known := m.Results(probe.Liveness).Get("x://a"); known || len(m.Pods()) != 0 {
			t.Error("something is kept")
		}
	})
}

// An outcome that arrives after its container is gone does not count for the new one.
func TestAnOutcomeOfTheContainerBefore(t *testing.T) {
	f := &fake{probe: func(context.Context, *probe.Request) (probe.Outcome, error) {
		time.Sleep(5 * s)
		return probe.Outcome{}, nil
	}}
	active(t, f, time.Hour, func(m *probe.Manager, said *reported) {
		c := running("x://a")
		c.Liveness = every(10 * s)
		m.AddPod(web(c))
		pass(2 * s)
		c.ID = "x://b"
		m.AddPod(web(c))
		pass(5 * s)
		if w := m.Workers()[key(probe.Liveness)]; w.Failures != 0 || len(said.events) != 0 {
			t.Errorf("%d events, %+v", len(said.events), w)
		}
	})
}

// Pods may be added before Run, and after it has ended.
func TestPodsBeforeAndAfterRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fake{probe: always(true), times: map[probe.Kind][]time.Duration{}, began: time.Now()}
		m := probe.New(probe.Config{Prober: f, Start: time.Now().Add(-time.Hour)})
		c := running("x://a")
		c.Liveness = every(10 * s)
		m.AddPod(web(c))
		pass(time.Minute)
		if len(f.at(probe.Liveness)) != 0 {
			t.Error("probed before Run")
		}
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error)
		go func() { ended <- m.Run(ctx) }()
		pass(s)
		if len(f.at(probe.Liveness)) != 1 {
			t.Error("not probed by Run")
		}
		cancel()
		<-ended
		m.AddPod(web(c))
		pass(time.Minute)
		if len(f.at(probe.Liveness)) != 1 || len(m.Workers()) != 0 {
			t.Error("probed after Run")
		}
	})
}
