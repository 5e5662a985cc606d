package probe_test

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"

	"github.com/kernosis/kernosis/collector/event"
	"github.com/kernosis/kernosis/collector/probe"
)

func liveness(uid string) probe.Key {
	return probe.Key{PodUID: uid, Container: "web", Kind: probe.Liveness}
}

func TestWhatIsReportedOfAFailure(t *testing.T) {
	var said reported
	m := probe.New(probe.Config{Report: said.take})
	p := observed("u1", "web-0")
	p.Addresses = []netip.Addr{netip.MustParseAddr("fd00::7")}
	c := &p.Containers[0]
	c.ID = "containerd://8a1f"
	c.Liveness = &probe.Spec{Handler: probe.HTTPS, Port: 8443, Path: "/healthz?a=b", Timeout: 2 * time.Second, Period: 5 * time.Second, SuccessThreshold: 1, FailureThreshold: 3}
	m.AddPod(p)
	conn := &event.Conn{Src: netip.MustParseAddrPort("[fd00::1]:40000"), Dst: netip.MustParseAddrPort("[fd00::7]:8443"), NetNS: 7}
	at := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	m.Observe(liveness("u1"), probe.Outcome{
		At: at, Conn: conn, BootTime: event.Duration(time.Hour), CPU: 3,
		Detail: event.ProbeOutcome{Verdict: event.VerdictSilent, Cause: "no byte back in 2s", Phase: "established", Duration: event.Duration(2 * time.Second), Evidence: []string{"request acked"}},
	})
	want := &event.Event{
		Kind: event.Probe, Time: at, BootTime: event.Duration(time.Hour), CPU: 3, Source: "probe/observed", Conn: conn,
		Container: &event.Container{ID: "8a1f", Runtime: "containerd", PodUID: "u1"},
		Probe: &event.ProbeData{
			Name: "shop/web-0 web", Probe: "liveness", Namespace: "shop", Pod: "web-0", Container: "web", Handler: "https",
			Endpoint: "[fd00::7]:8443/healthz?a=b", Timeout: event.Duration(2 * time.Second), Period: event.Duration(5 * time.Second),
			Failures: 1, Threshold: 3,
			ProbeOutcome: event.ProbeOutcome{
				Feed: event.ProbeObserved, Verdict: event.VerdictSilent, Cause: "no byte back in 2s", Phase: "established",
				Duration: event.Duration(2 * time.Second), Evidence: []string{"request acked"},
			},
		},
	}
	if diff := cmp.Diff(want, said.events[0], cmp.Comparer(func(a, b netip.AddrPort) bool { return a == b })); diff != "" {
		t.Error(diff)
	}
	// Without a kernel record the event has its own timestamps.
	m.Observe(liveness("u1"), probe.Outcome{OK: true})
	ev := said.events[1]
	if ev.Kind != event.ProbeRecovered || ev.Probe.Over || ev.CPU != event.NoCPU || ev.BootTime <= 0 || time.Since(ev.Time) > time.Minute || ev.Probe.Failures != 0 || ev.Probe.Verdict != "" {
		t.Errorf("%+v %+v", ev, ev.Probe)
	}
	// A success that follows no failure is not reported.
	m.Observe(liveness("u1"), probe.Outcome{OK: true})
	if len(said.events) != 2 {
		t.Errorf("%d events", len(said.events))
	}
}

// A reported failure ends with its container, its probe or its pod.
func TestWhatIsReportedOfTheEnd(t *testing.T) {
	for name, end := range map[string]func(*probe.Manager, *probe.Pod){
		"new ID":      func(m *probe.Manager, p *probe.Pod) { p.Containers[0].ID = "x://another"; m.AddPod(p) },
		"pod removed": func(m *probe.Manager, p *probe.Pod) { m.RemovePod(p.UID) },
		"cleaned up":  func(m *probe.Manager, p *probe.Pod) { m.ReplacePods(nil) },
		"pod ended":   func(m *probe.Manager, p *probe.Pod) { p.Terminated = true; m.AddPod(p) },
		"pod deleted": func(m *probe.Manager, p *probe.Pod) { p.Deleting = true; m.AddPod(p) },
		"other probe": func(m *probe.Manager, p *probe.Pod) {
			s := *p.Containers[0].Liveness
			s.Port = 81
			p.Containers[0].Liveness = &s
			m.AddPod(p)
		},
		"no probe":     func(m *probe.Manager, p *probe.Pod) { p.Containers[0].Liveness = nil; m.AddPod(p) },
		"no container": func(m *probe.Manager, p *probe.Pod) { p.Containers = nil; m.AddPod(p) },
	} {
		var said reported
		m := probe.New(probe.Config{Report: said.take})
		m.AddPod(observed("u1", "web-0"))
		m.Observe(liveness("u1"), probe.Outcome{})
		p := observed("u1", "web-0")
		end(m, p)
		m.AddPod(p) // again: nothing more
		if len(said.events) != 2 {
			t.Errorf("%s: %d events", name, len(said.events))
			continue
		}
		if ev := said.events[1]; ev.Kind != event.ProbeRecovered || !ev.Probe.Over || ev.Container.ID != "u1" || ev.Probe.Feed != event.ProbeObserved {
			t.Errorf("%s: %+v %+v", name, ev, ev.Probe)
		}
	}
}

// A pod that has ended stays ended, however often its status arrives.
func TestAnEndedWorkerIsNotMadeAnew(t *testing.T) {
	m := probe.New(probe.Config{})
	p := observed("u1", "web-0")
	p.Deleting = true
	p.Containers[0].Readiness = p.Containers[0].Liveness
	updates := m.Results(probe.Liveness).Updates()
	for range 3 {
		again := *p
		m.AddPod(&again)
	}
	if _, ok := m.Workers()[liveness("u1")]; ok || len(m.Workers()) != 1 || len(updates) != 1 {
		t.Errorf("%+v, %d updates", m.Workers(), len(updates))
	}
}

// A failure that an earlier process reported without its end ends with the first success.
func TestFailuresOfAnEarlierProcess(t *testing.T) {
	var said reported
	m := probe.New(probe.Config{Report: said.take, Failing: func(k probe.Key) bool { return k.PodUID == "u1" }})
	for _, uid := range []string{"u1", "u2"} {
		m.AddPod(observed(uid, uid))
		m.Observe(liveness(uid), probe.Outcome{OK: true})
	}
	if len(said.events) != 1 || said.events[0].Kind != event.ProbeRecovered || said.events[0].Container.PodUID != "u1" {
		t.Errorf("%d events", len(said.events))
	}
}

// Texts of pods and their answers are not trusted.
func TestTextsAreBoundedAndEscaped(t *testing.T) {
	var said reported
	m := probe.New(probe.Config{Report: said.take})
	evil := strings.Repeat("\x1b[2J\u202e\xff", 100_000)
	p := observed("u1", "web-0")
	p.Containers[0].Liveness = &probe.Spec{Handler: probe.Exec, Command: []string{"sh", "-c", evil}}
	m.AddPod(p)
	facts := make([]string, 1000)
	for i := range facts {
		facts[i] = evil
	}
	m.Observe(liveness("u1"), probe.Outcome{Detail: event.ProbeOutcome{Cause: evil, Said: evil, Status: evil, Evidence: facts, Excluded: facts}})
	data, err := json.Marshal(said.events[0])
	if err != nil || len(data) > 100_000 || !utf8.Valid(data) || strings.ContainsAny(string(data), "\x1b\u202e") {
		t.Errorf("%d bytes, %v", len(data), err)
	}
	if d := said.events[0].Probe; len(d.Evidence) != 17 || d.Evidence[16] != "and 984 more" || d.Threshold != 1 || !strings.HasPrefix(d.Endpoint, "sh -c ") {
		t.Errorf("%d facts, %q", len(d.Evidence), d.Endpoint)
	}
}

func TestContainersAsKubeletDerivesThem(t *testing.T) {
	spec := &probe.Spec{Handler: probe.TCP, Port: 80, SuccessThreshold: 1, FailureThreshold: 1}
	for name, tc := range map[string]struct {
		c              probe.Container
		outcomes       []probe.Kind // successes
		fail           []probe.Kind
		started, ready bool
	}{
		"not running":                        {c: probe.Container{State: probe.Waiting, Started: true, Ready: true}},
		"no probes":                          {c: probe.Container{}, started: true, ready: true},
		"startup not made yet":               {c: probe.Container{Startup: spec}},
		"startup failed":                     {c: probe.Container{Startup: spec}, fail: []probe.Kind{probe.Startup}},
		"started":                            {c: probe.Container{Startup: spec}, outcomes: []probe.Kind{probe.Startup}, started: true, ready: true},
		"kubelet says started":               {c: probe.Container{Startup: spec, Started: true}, started: true, ready: true},
		"readiness not made yet":             {c: probe.Container{Readiness: spec}, started: true},
		"ready":                              {c: probe.Container{Readiness: spec}, outcomes: []probe.Kind{probe.Readiness}, started: true, ready: true},
		"not ready":                          {c: probe.Container{Readiness: spec, Ready: true}, fail: []probe.Kind{probe.Readiness}, started: true},
		"kubelet says ready":                 {c: probe.Container{Readiness: spec, Ready: true}, started: true, ready: true},
		"liveness says nothing of readiness": {c: probe.Container{Liveness: spec}, fail: []probe.Kind{probe.Liveness}, started: true, ready: true},
		"a sidecar as any other":             {c: probe.Container{Sidecar: true, Startup: spec, Readiness: spec}, outcomes: []probe.Kind{probe.Startup}, started: true},
	} {
		m := probe.New(probe.Config{})
		c := tc.c
		c.Name, c.ID = "web", "x://1"
		if c.State == "" {
			c.State = probe.Running
		}
		m.AddPod(&probe.Pod{UID: "u", Namespace: "n", Name: "p", Containers: []probe.Container{c}})
		for _, k := range tc.outcomes {
			if !m.Observe(key(k), probe.Outcome{OK: true}) {
				t.Errorf("%s: %s not taken", name, k)
			}
		}
		for _, k := range tc.fail {
			if !m.Observe(key(k), probe.Outcome{}) {
				t.Errorf("%s: %s not taken", name, k)
			}
		}
		if st := m.Containers("u")[0]; st != (probe.ContainerStatus{Name: "web", ID: "x://1", Started: tc.started, Ready: tc.ready}) {
			t.Errorf("%s: %+v", name, st)
		}
	}
	if probe.New(probe.Config{}).Containers("u") != nil {
		t.Error("a pod that is not there has containers")
	}
}

func TestAnOutcomeFromBeforeTheContainersStart(t *testing.T) {
	m := probe.New(probe.Config{})
	p := observed("u1", "web-0")
	p.Containers[0].StartedAt = time.Now()
	m.AddPod(p)
	if m.Observe(liveness("u1"), probe.Outcome{At: time.Now().Add(-time.Minute)}) {
		t.Error("taken")
	}
	if !m.Observe(liveness("u1"), probe.Outcome{At: time.Now()}) {
		t.Error("not taken")
	}
}

// Without a Prober, pods that ask to be probed are only observed.
func TestNoProber(t *testing.T) {
	m := probe.New(probe.Config{})
	p := observed("u1", "web-0")
	p.Active = true
	m.AddPod(p)
	if m.Trigger(liveness("u1")) || !m.Observe(liveness("u1"), probe.Outcome{}) {
		t.Error("triggered, or not observed")
	}
}

// Everything concurrently, for the race detector; each failure must be reported in order.
func TestConcurrentUse(t *testing.T) {
	var mu sync.Mutex
	last := map[string]uint32{}
	var m *probe.Manager
	m = probe.New(probe.Config{Report: func(ev *event.Event) {
		m.Pod(ev.Container.PodUID) // Report may query the Manager
		m.Workers()
		mu.Lock()
		defer mu.Unlock()
		k := ev.Container.PodUID
		switch {
		case ev.Kind == event.ProbeRecovered:
			last[k] = 0
		case ev.Probe.Failures != last[k]+1:
			t.Errorf("%s: %d after %d", k, ev.Probe.Failures, last[k])
			fallthrough
		default:
			last[k] = ev.Probe.Failures
		}
	}})
	const pods, rounds = 4, 200
	add := func(i, generation int) {
		p := observed(fmt.Sprint("u", i), fmt.Sprint("web-", i))
		p.Containers[0].ID = fmt.Sprint("x://", i, "-", generation)
		p.Containers[0].Readiness, p.Containers[0].Liveness = p.Containers[0].Liveness, nil
		m.AddPod(p)
	}
	var wg sync.WaitGroup
	for i := range pods {
		add(i, 0)
		for g := range 3 {
			wg.Go(func() {
				for n := range rounds {
					m.Observe(probe.Key{PodUID: fmt.Sprint("u", i), Container: "web", Kind: probe.Readiness}, probe.Outcome{OK: n%5 == g})
				}
			})
		}
	}
	wg.Go(func() {
		for n := range rounds {
			add(n%pods, 0)
			counted(t, m, "failed")
			m.Containers(fmt.Sprint("u", n%pods))
			m.Pods()
		}
	})
	wg.Wait()
	failed := counted(t, m, "failed") + counted(t, m, "successful")
	if failed != pods*3*rounds {
		t.Errorf("%v counted, want %d", failed, pods*3*rounds)
	}
	m.ReplacePods(nil)
}

// Most outcomes are successes, so a success must not allocate.
func TestASuccessAllocatesNothing(t *testing.T) {
	m := probe.New(probe.Config{})
	m.AddPod(observed("u1", "web-0"))
	k, o := liveness("u1"), probe.Outcome{OK: true, At: time.Now(), Detail: event.ProbeOutcome{Duration: 1}}
	if n := testing.AllocsPerRun(1000, func() {
		if !m.Observe(k, o) {
			t.Fatal("not taken")
		}
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

func BenchmarkObserve(b *testing.B) {
	m := probe.New(probe.Config{})
	for i := range 330 {
		m.AddPod(observed(fmt.Sprint("u", i), fmt.Sprint("web-", i)))
	}
	for name, o := range map[string]probe.Outcome{"success": {OK: true, At: time.Now()}} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			k := liveness("u7")
			for b.Loop() {
				m.Observe(k, o)
			}
		})
	}
	b.Run("failure", func(b *testing.B) {
		p := observed("r", "ready")
		p.Containers[0].Readiness, p.Containers[0].Liveness = p.Containers[0].Liveness, nil
		m.AddPod(p)
		b.ReportAllocs()
		k := probe.Key{PodUID: "r", Container: "web", Kind: probe.Readiness}
		for b.Loop() {
			m.Observe(k, probe.Outcome{At: time.Now(), Detail: event.ProbeOutcome{Verdict: event.VerdictRefused, Cause: "nothing listens"}})
		}
	})
	b.Run("same pod", func(b *testing.B) {
		b.ReportAllocs()
		p := observed("u7", "web-7")
		for b.Loop() {
			m.AddPod(p)
		}
	})
}
