package probe_test

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/kernosis/kernosis/collector/event"
	"github.com/kernosis/kernosis/collector/probe"
)

// step is one thing that happens to a container or its probe.
type step string

const (
	succeeds step = "succeeds"
	fails    step = "fails"
	restarts step = "restarts" // the container, with a new ID
	crashes  step = "crashes"  // the container, and waits to be restarted
	starts   step = "starts"   // kubelet reports that the container has started
	deletes  step = "deletes"  // the pod
	finishes step = "finishes" // the pod
)

// model derives the state of one probe from the whole history. It keeps no counters: each is
// looked up in the history.
type model struct {
	kind    probe.Kind
	spec    *probe.Spec
	history []step
}

type verdict struct {
	worker     bool
	result     probe.Result
	known      bool // there is a result
	onHold     bool
	takes      bool // the next outcome would count
	failures   int
	recoveries int // reported so far, including ends
	failed     int // reported so far
}

// after returns the state after the first n steps.
func (m *model) after(n int) verdict {
	v := verdict{worker: true, known: true}
	running, started, deleting, ended := true, false, false, false
	var outcomes []step // counted outcomes since the last hold
	open := false       // a failure was reported, but not its end
	v.result = initial(m.kind)
	ungated := false // the startup probe is no longer made, so nothing waits for it
	for _, s := range m.history[:n] {
		started = started || ungated && running
		takes := running && !ended && !v.onHold && started == (m.kind != probe.Startup)
		switch s {
		case succeeds, fails:
			if !takes {
				continue
			}
			outcomes = append(outcomes, s)
			run := 0
			for i := len(outcomes) - 1; i >= 0 && outcomes[i] == s; i-- {
				run++
			}
			v.failures = 0
			if s == fails {
				v.failures, open = run, true
				v.failed++
			} else if open {
				open = false
				v.recoveries++
			}
			threshold, result := m.spec.SuccessThreshold, probe.Success
			if s == fails {
				threshold, result = m.spec.FailureThreshold, probe.Failure
			}
			if run < threshold {
				continue
			}
			v.result = result
			if m.kind == probe.Startup || m.kind == probe.Liveness && s == fails {
				v.onHold, outcomes = true, nil
			}
			if m.kind == probe.Startup && s == succeeds {
				started = true
			}
		case restarts:
			running, started = true, false
			if ended {
				continue
			}
			v.result = initial(m.kind)
			if v.onHold {
				v.failures = 0
			}
			v.onHold = false
			if open {
				open = false
				v.recoveries++
			}
		case crashes:
			running, started = false, false
			if !ended && !v.onHold {
				v.result = probe.Failure
			}
		case starts:
			if !running {
				continue
			}
			started = true
			if m.kind == probe.Startup && !ended {
				v.result = probe.Success
			}
		case deletes:
			deleting = true
		case finishes:
			ended = true
		}
		ungated = ungated || deleting && running
		// A running container of a deleted pod is no longer probed, unless it is on hold and
		// kubelet already waits for its end.
		if deleting && m.kind != probe.Readiness && running && !v.onHold {
			ended = true
		}
		if ended && v.worker {
			v.worker = false
			if open {
				open = false
				v.recoveries++
			}
		}
	}
	if ended {
		v.known = false
	}
	started = started || ungated && running
	v.takes = running && !ended && !v.onHold && started == (m.kind != probe.Startup)
	return v
}

func initial(k probe.Kind) probe.Result {
	return map[probe.Kind]probe.Result{probe.Liveness: probe.Success, probe.Readiness: probe.Failure, probe.Startup: probe.Unknown}[k]
}

// The Manager agrees with the model for any sequence of steps.
func TestRandomCourses(t *testing.T) {
	for seed := range uint64(500) {
		r := rand.New(rand.NewPCG(seed, 1))
		kind := probe.Kinds()[r.IntN(3)]
		spec := &probe.Spec{Handler: probe.TCP, Port: 80, SuccessThreshold: 1 + r.IntN(2), FailureThreshold: 1 + r.IntN(4), Period: time.Second}
		m := &model{kind: kind, spec: spec}
		for range 5 + r.IntN(60) {
			s := []step{succeeds, fails, fails, fails, fails, succeeds, starts, starts, restarts, crashes}[r.IntN(10)]
			if n := r.IntN(200); n == 0 {
				s = deletes
			} else if n == 1 {
				s = finishes
			}
			m.history = append(m.history, s)
		}
		if err := m.compare(); err != nil {
			t.Fatalf("seed %d: %s, %d successes, %d failures, %v: %v", seed, kind, spec.SuccessThreshold, spec.FailureThreshold, m.history, err)
		}
	}
}

func (m *model) compare() error {
	var said reported
	mgr := probe.New(probe.Config{Report: said.take, Start: time.Now()})
	key := probe.Key{PodUID: "u", Container: "c", Kind: m.kind}
	pod := probe.Pod{UID: "u", Namespace: "n", Name: "p"}
	c := probe.Container{Name: "c", State: probe.Running, StartedAt: time.Now().Add(-time.Hour)}
	switch m.kind {
	case probe.Startup:
		c.Startup = m.spec
	case probe.Liveness:
		c.Liveness = m.spec
	case probe.Readiness:
		c.Readiness = m.spec
	}
	if m.kind != probe.Startup { // so that there is a startup probe to gate it
		c.Startup = &probe.Spec{Handler: probe.TCP, Port: 81, SuccessThreshold: 1, FailureThreshold: 1 << 30, Period: time.Second}
	}
	generation := 0
	add := func() {
		p, copied := pod, c
		p.Containers = []probe.Container{copied}
		mgr.AddPod(&p)
	}
	add() // without an ID: so the beginning is observed
	c.ID = "x://0"
	add()
	for i, s := range m.history {
		before, after := m.after(i), m.after(i+1)
		switch s {
		case succeeds, fails:
			if taken := mgr.Observe(key, probe.Outcome{OK: s == succeeds}); taken != before.takes {
				return fmt.Errorf("step %d: taken %v, want %v", i, taken, before.takes)
			}
		case restarts:
			generation++
			c.ID, c.State, c.Started = fmt.Sprint("x://", generation), probe.Running, false
			add()
		case crashes:
			c.State, c.Started = probe.Waiting, false
			add()
		case starts:
			c.Started = c.State == probe.Running
			add()
		case deletes:
			pod.Deleting = true
			add()
		case finishes:
			pod.Terminated = true
			add()
		}
		if err := after.same(mgr, key, c.ID, &said); err != nil {
			return fmt.Errorf("step %d (%s): %w", i, s, err)
		}
	}
	return nil
}

func (v verdict) same(m *probe.Manager, k probe.Key, id string, said *reported) error {
	result, known := m.Results(k.Kind).Get(id)
	if known != v.known || known && result != v.result {
		return fmt.Errorf("result %v, %v, want %v, %v", result, known, v.result, v.known)
	}
	state, worker := m.Workers()[k]
	if worker != v.worker {
		return fmt.Errorf("worker %v, want %v", worker, v.worker)
	}
	if worker && (state.Failures != v.failures || state.OnHold != v.onHold || state.Due != v.takes) {
		return fmt.Errorf("%d failures, on hold %v, due %v, want %d, %v, %v", state.Failures, state.OnHold, state.Due, v.failures, v.onHold, v.takes)
	}
	failed, recovered := 0, 0
	for _, ev := range said.events {
		switch ev.Kind {
		case event.Probe:
			failed++
		case event.ProbeRecovered:
			recovered++
		}
	}
	if failed != v.failed || recovered != v.recoveries {
		return fmt.Errorf("%d failures and %d recoveries reported, want %d and %d", failed, recovered, v.failed, v.recoveries)
	}
	return nil
}
