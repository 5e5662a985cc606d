package observe

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kernosis/kernosis/collector/event"
	"github.com/kernosis/kernosis/collector/hostfs"
	"github.com/kernosis/kernosis/collector/probe"
)

const kubeletNS = 4026531840

// node returns a /proc with a process called kubelet.
func node(t *testing.T) hostfs.FS {
	t.Helper()
	root := t.TempDir()
	dir := filepath.Join(root, "proc", "100")
	stat := "100 (kubelet) S 1 100 100 0 -1 4194560 0 0 0 0 0 0 0 0 20 0 1 0 500 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 17 0 0 0 0 0 0\n"
	for path, text := range map[string]string{"stat": stat, "cgroup": "0::/system.slice/kubelet.service\n"} {
		if err := errors.Join(os.MkdirAll(filepath.Join(dir, "ns"), 0o755), os.WriteFile(filepath.Join(dir, path), []byte(text), 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink(fmt.Sprintf("net:[%d]", kubeletNS), filepath.Join(dir, "ns", "net")); err != nil {
		t.Fatal(err)
	}
	return hostfs.New(root)
}

// world has everything that an Observer observes.
type world struct {
	t       *testing.T
	manager *probe.Manager
	o       *Observer

	mu      sync.Mutex
	targets []Target
	counts  map[string]*Count
	results map[probe.Key]Results
	asked   int // number of calls of Results
	refused error
	words   []Unhealthy
	states  []string
	events  []*event.Event
}

func (w *world) Set(t []Target) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.targets = slices.Clone(t)
	return nil
}

func (w *world) Counts() ([]Count, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	var out []Count
	for _, t := range w.targets {
		c := w.counts[t.Name]
		if c == nil {
			c = &Count{Name: t.Name}
		}
		out = append(out, *c)
	}
	return out, nil
}

func (w *world) Results(context.Context) (map[probe.Key]Results, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.asked++
	return maps.Clone(w.results), w.refused
}

func (w *world) Unhealthy(context.Context, string, string) ([]Unhealthy, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.words), nil
}

func (w *world) change(f func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	f()
}

// in runs a test with an Observer of one pod; with is called before the Observer starts.
func in(t *testing.T, with func(w *world, c *Config, p *probe.Pod), test func(w *world)) {
	t.Helper()
	fs := node(t)
	synctest.Test(t, func(t *testing.T) {
		w := &world{t: t, counts: map[string]*Count{}, results: map[probe.Key]Results{}}
		w.manager = probe.New(probe.Config{Start: time.Now().Add(-time.Hour), Report: func(ev *event.Event) {
			w.change(func() { w.events = append(w.events, ev.Clone()) })
		}})
		spec := func(timeout time.Duration) *probe.Spec {
			return &probe.Spec{Handler: probe.HTTP, Port: 8080, Path: "/healthz", Timeout: timeout, Period: 10 * time.Second, SuccessThreshold: 1, FailureThreshold: 3}
		}
		p := &probe.Pod{
			UID: "u1", Namespace: "shop", Name: "web-1", Addresses: []netip.Addr{netip.MustParseAddr("10.0.0.7")},
			Containers: []probe.Container{{
				Name: "app", ID: "containerd://8a1f", State: probe.Running, StartedAt: time.Now().Add(-time.Hour), Started: true,
				Liveness: spec(time.Second),
			}},
		}
		cfg := Config{
			Manager: w.manager, Sockets: w, FS: fs, Comms: []string{"kubelet"},
			State: func(part string, err error) {
				w.change(func() { w.states = append(w.states, fmt.Sprint(part, ": ", err)) })
			},
		}
		if with != nil {
			with(w, &cfg, p)
		}
		w.manager.AddPod(p)
		w.o = New(cfg)
		w.o.Listed()
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 2)
		go func() { done <- w.manager.Run(ctx) }()
		go func() { done <- w.o.Run(ctx) }()
		synctest.Wait()
		test(w)
		cancel()
		<-done
		<-done
	})
}

// fail returns a failed connection that ends now.
func (w *world) fail(verdict string, duration time.Duration) *event.Event {
	w.t.Helper()
	phase, errno := "connect", ""
	switch verdict {
	case event.VerdictRefused:
		errno = "ECONNREFUSED"
	case event.VerdictSilent, event.VerdictSlow:
		phase = "established"
	}
	return &event.Event{
		Kind: event.SockFail, Time: time.Now(), BootTime: event.Duration(time.Hour), CPU: 1,
		Task: &event.Task{PID: 100, TGID: 100, Comm: "kubelet"},
		Conn: &event.Conn{Src: netip.MustParseAddrPort("10.0.0.1:40000"), Dst: netip.MustParseAddrPort("10.0.0.7:8080"), NetNS: kubeletNS},
		SockFail: &event.SockFailData{Target: "shop/web-1:8080", Verdict: verdict, Phase: phase, Errno: errno,
			Duration: event.Duration(duration), Evidence: []string{"a fact"}},
	}
}

func (w *world) recovered() *event.Event {
	ev := w.fail("", time.Millisecond)
	ev.Kind, ev.SockFail.Evidence = event.SockFailRecovered, nil
	return ev
}

// reported returns the events since the last call, as "liveness refused 1/3".
func (w *world) reported() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	var out []string
	for _, ev := range w.events {
		d := ev.Probe
		s := d.Probe + " "
		if ev.Kind == event.ProbeRecovered {
			s += "recovered"
		} else {
			s += fmt.Sprintf("%s %d/%d", d.Verdict, d.Failures, d.Threshold)
		}
		out = append(out, s)
	}
	w.events = nil
	return out
}

func (w *world) wantReported(want ...string) {
	w.t.Helper()
	if got := w.reported(); !slices.Equal(got, want) {
		w.t.Errorf("reported %q, want %q", got, want)
	}
}

// all returns the events since the last call of reported.
func (w *world) all() []*event.Event {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.events)
}

func key(k probe.Kind) probe.Key { return probe.Key{PodUID: "u1", Container: "app", Kind: k} }

// A failed connection is reported at once as a probe's failure, and counted as by kubelet.
func TestOneProbe(t *testing.T) {
	in(t, nil, func(w *world) {
		if want := []Target{{Name: "shop/web-1:8080", Address: netip.MustParseAddr("10.0.0.7"), Port: 8080, NetNS: kubeletNS, SlowAfter: 980 * time.Millisecond}}; !slices.Equal(w.targets, want) {
			t.Errorf("targets %+v", w.targets)
		}
		if !w.o.Take(w.fail(event.VerdictRefused, time.Millisecond)) {
			t.Fatal("not taken")
		}
		ev := w.all()[0]
		d := ev.Probe
		if d.Name != "shop/web-1 app" || d.Feed != event.ProbeObserved || d.Cause != "RST: nothing listens on :8080" || d.Endpoint != "10.0.0.7:8080/healthz" ||
			ev.CPU != 1 || ev.BootTime != event.Duration(time.Hour) || ev.Conn.Dst.Port() != 8080 || ev.Task != nil ||
			ev.Container.ID != "8a1f" || ev.Container.PodUID != "u1" || d.Evidence[0] != "a fact" || d.Errno != "ECONNREFUSED" {
			t.Errorf("%+v\n%+v", ev, d)
		}
		w.wantReported("liveness refused 1/3")
		time.Sleep(10 * time.Second)
		w.o.Take(w.fail(event.VerdictSilent, time.Second))
		w.wantReported("liveness connected-silent 2/3")
		time.Sleep(time.Second)
		w.o.Take(w.recovered())
		w.wantReported("liveness recovered")
		time.Sleep(9 * time.Second)
		w.o.Take(w.fail(event.VerdictRefused, time.Millisecond))
		w.wantReported("liveness refused 1/3")
		if s := w.o.Stats(); s.Taken != 4 || s.Guessed != 0 || s.Targets != 1 {
			t.Errorf("%+v", s)
		}
	})
}

// Connections that are not kubelet's, or not to a probe's address, are not reported as probes.
func TestOthersConnections(t *testing.T) {
	in(t, nil, func(w *world) {
		other := w.fail(event.VerdictRefused, 0)
		other.Task.Comm = "curl"
		inPod := w.fail(event.VerdictRefused, 0)
		inPod.Container = &event.Container{ID: "8a1f", PodUID: "u1"}
		elsewhere := w.fail(event.VerdictRefused, 0)
		elsewhere.SockFail.Target = "mine"
		port := w.fail(event.VerdictRefused, 0)
		port.Conn.Dst = netip.MustParseAddrPort("10.0.0.7:8081")
		for i, c := range []struct {
			ev    *event.Event
			taken bool
		}{{other, true}, {inPod, true}, {elsewhere, false}, {port, false}, {&event.Event{Kind: event.Log}, false}} {
			if got := w.o.Take(c.ev); got != c.taken {
				t.Errorf("%d: taken %v", i, got)
			}
		}
		w.wantReported()
		// In a pod that this cluster does not have: the node is itself a pod.
		nested := w.fail(event.VerdictRefused, 0)
		nested.Container = &event.Container{ID: "77", PodUID: "outer"}
		w.o.Take(nested)
		w.wantReported("liveness refused 1/3")
		if s := w.o.Stats(); s.Others != 2 {
			t.Errorf("%+v", s)
		}
		// Events of a removed pod may arrive for a moment longer.
		w.manager.RemovePod("u1")
		w.reported()
		w.o.Listed()
		time.Sleep(time.Second)
		if !w.o.Take(w.fail(event.VerdictRefused, 0)) {
			t.Error("reported as somebody else's")
		}
		time.Sleep(goneFor)
		if w.o.Take(w.fail(event.VerdictRefused, 0)) {
			t.Error("taken long after")
		}
		w.wantReported()
	})
}

func bothProbes(timeout time.Duration) func(w *world, c *Config, p *probe.Pod) {
	return func(_ *world, _ *Config, p *probe.Pod) {
		s := *p.Containers[0].Liveness
		s.Timeout = timeout
		p.Containers[0].Readiness = &s
	}
}

// Two probes of one port that begin together and both fail: each gets its failures.
func TestTwoProbesThatBothFail(t *testing.T) {
	in(t, bothProbes(time.Second), func(w *world) {
		for n := 1; n <= 3; n++ {
			w.o.Take(w.fail(event.VerdictRefused, time.Millisecond))
			time.Sleep(2 * time.Millisecond)
			w.o.Take(w.fail(event.VerdictRefused, time.Millisecond))
			got := w.reported()
			slices.Sort(got)
			if want := []string{fmt.Sprintf("liveness refused %d/3", n), fmt.Sprintf("readiness refused %d/3", n)}; !slices.Equal(got, want) {
				t.Errorf("reported %q", got)
			}
			time.Sleep(10*time.Second - 2*time.Millisecond)
		}
	})
}

// The timeout distinguishes two probes of one port.
func TestTwoTimeouts(t *testing.T) {
	in(t, bothProbes(3*time.Second), func(w *world) {
		w.o.Take(w.fail(event.VerdictSilent, 3*time.Second))
		w.wantReported("readiness connected-silent 1/3")
		w.o.Take(w.fail(event.VerdictTimeout, time.Second))
		w.wantReported("liveness syn-unanswered 1/3")
		if s := w.o.Stats(); s.Guessed != 0 {
			t.Errorf("%+v", s)
		}
	})
}

// kubelet's counts show which of two probes failed; the outcome waits less than a second for
// them.
func TestHeldForKubeletsCounts(t *testing.T) {
	in(t, func(w *world, c *Config, p *probe.Pod) {
		bothProbes(time.Second)(w, c, p)
		c.Kubelet = w
	}, func(w *world) {
		time.Sleep(6 * time.Second) // counts were read before, and may be read again
		w.change(func() { w.results[key(probe.Liveness)] = Results{Failed: 1} })
		began := time.Now()
		w.o.Take(w.fail(event.VerdictRefused, time.Millisecond))
		w.wantReported()
		time.Sleep(900 * time.Millisecond)
		w.wantReported("liveness refused 1/3")
		w.change(func() { w.results[key(probe.Readiness)] = Results{Failed: 1} })
		time.Sleep(time.Until(began.Add(20*time.Second + 500*time.Millisecond)))
		for _, ev := range w.reported() {
			t.Logf("meanwhile %s", ev)
		}
		if s := w.o.Stats(); s.Held != 1 || s.Guessed != 0 {
			t.Errorf("%+v", s)
		}
	})
}

// If kubelet can't be polled in time, the probe is guessed, reported at once and marked as a
// guess.
func TestGuess(t *testing.T) {
	in(t, func(w *world, c *Config, p *probe.Pod) {
		bothProbes(time.Second)(w, c, p)
		c.Kubelet = w
	}, func(w *world) {
		w.o.Take(w.fail(event.VerdictRefused, time.Millisecond))
		if got := w.all(); len(got) != 1 || !strings.Contains(strings.Join(got[0].Probe.Evidence, "\n"), "guessed which of the probes") {
			t.Fatalf("%+v", got)
		}
		if s := w.o.Stats(); s.Guessed != 1 || s.Held != 0 {
			t.Errorf("%+v", s)
		}
	})
}

// A failure that no socket shows comes from kubelet's counts, its cause from kubelet's Events.
func TestBadStatus(t *testing.T) {
	in(t, func(w *world, c *Config, _ *probe.Pod) { c.Kubelet, c.Words = w, w }, func(w *world) {
		time.Sleep(time.Second)
		w.change(func() {
			w.results[key(probe.Liveness)] = Results{Failed: 1, Succeeded: 5}
			w.counts["shop/web-1:8080"] = &Count{Name: "shop/web-1:8080", Succeeded: 1, Started: time.Now()}
			w.words = []Unhealthy{
				{PodUID: "u1", Container: "app", Kind: probe.Liveness, At: time.Now().Add(-time.Hour), Message: "Liveness probe failed: HTTP probe failed with statuscode: 404"},
				{PodUID: "u1", Container: "app", Kind: probe.Liveness, At: time.Now(), Message: "Liveness probe failed: HTTP probe failed with statuscode: 503"},
				{PodUID: "u1", Container: "app", Kind: probe.Readiness, At: time.Now(), Message: "Readiness probe failed: HTTP probe failed with statuscode: 500"},
			}
		})
		time.Sleep(15 * time.Second)
		if got := w.all(); len(got) != 1 || got[0].Probe.Status != "503" || got[0].Probe.Cause != "HTTP status 503" {
			t.Errorf("%+v", got)
		}
		w.wantReported("liveness bad-status 1/3")
		w.change(func() { w.results[key(probe.Liveness)] = Results{Failed: 1, Succeeded: 6} })
		time.Sleep(10 * time.Second)
		w.wantReported("liveness recovered")
		if s := w.o.Stats(); s.Counted != 1 || s.Asked != 1 {
			t.Errorf("%+v", s)
		}
	})
}

// If there was no connection at the time of the failure, kubelet was late.
func TestProberLate(t *testing.T) {
	in(t, func(w *world, c *Config, _ *probe.Pod) { c.Kubelet = w }, func(w *world) {
		time.Sleep(time.Second)
		w.change(func() {
			w.results[key(probe.Liveness)] = Results{Failed: 2}
			w.counts["shop/web-1:8080"] = &Count{Name: "shop/web-1:8080", Succeeded: 1, Started: time.Now().Add(-time.Hour)}
		})
		time.Sleep(15 * time.Second)
		w.wantReported("liveness prober-late 1/3", "liveness prober-late 2/3")
	})
}

// An exec probe has no socket.
func TestExec(t *testing.T) {
	in(t, func(w *world, c *Config, p *probe.Pod) {
		c.Kubelet, c.Words = w, w
		p.Containers[0].Liveness.Handler, p.Containers[0].Liveness.Port = probe.Exec, 0
	}, func(w *world) {
		w.mu.Lock()
		targets := len(w.targets)
		w.mu.Unlock()
		if targets != 0 {
			t.Errorf("targets %+v", w.targets)
		}
		time.Sleep(time.Second)
		w.change(func() {
			w.results[key(probe.Liveness)] = Results{Failed: 1}
			w.words = []Unhealthy{{PodUID: "u1", Container: "app", Kind: probe.Liveness, At: time.Now(), Message: `Liveness probe failed: command timed out: "sleep 9" timed out after 1s`}}
		})
		time.Sleep(15 * time.Second)
		w.wantReported("liveness exec-timeout 1/3")
	})
}

// kubelet does not count an answer that was cut off as a failure: its counts decide.
func TestSlowThatDoesNotCount(t *testing.T) {
	in(t, func(w *world, c *Config, _ *probe.Pod) { c.Kubelet = w }, func(w *world) {
		time.Sleep(6 * time.Second)
		w.o.Take(w.fail(event.VerdictSlow, time.Second))
		time.Sleep(2 * time.Second)
		w.wantReported()
		if s := w.o.Stats(); s.Uncounted != 1 {
			t.Errorf("%+v", s)
		}
		time.Sleep(8 * time.Second)
		w.change(func() { w.results[key(probe.Liveness)] = Results{Failed: 1} })
		w.o.Take(w.fail(event.VerdictSlow, time.Second))
		time.Sleep(2 * time.Second)
		w.wantReported("liveness slow 1/3")
	})
}

// sharedPort gives the container a liveness probe over gRPC with a timeout of 5 s, and on the same
// port another probe.
func sharedPort(kind probe.Kind, h probe.Handler, timeout time.Duration) func(w *world, c *Config, p *probe.Pod) {
	return func(_ *world, _ *Config, p *probe.Pod) {
		c := &p.Containers[0]
		other := *c.Liveness
		other.Handler, other.Timeout = h, timeout
		c.Liveness.Handler, c.Liveness.Timeout = probe.GRPC, 5*time.Second
		if kind == probe.Startup {
			c.Startup = &other
		} else {
			c.Readiness = &other
		}
	}
}

// kubelet's gRPC client always closes first: a connection that it closed before the probe's timeout
// is a success, although it took longer than another probe of the port may.
func TestClosedBeforeTheTimeout(t *testing.T) {
	slow := func(w *world, duration time.Duration) *event.Event {
		ev := w.fail(event.VerdictSlow, duration)
		ev.SockFail.Received = 5
		return ev
	}
	in(t, sharedPort(probe.Startup, probe.TCP, time.Second), func(w *world) {
		if got, want := w.targets[0].SlowAfter, 4900*time.Millisecond; got != want {
			t.Errorf("slow after %s, want %s: a TCP probe waits for no answer", got, want)
		}
		w.o.Take(slow(w, 2*time.Second))
		w.wantReported()
		for range 3 {
			time.Sleep(10 * time.Second)
			w.o.Take(slow(w, 5*time.Second))
		}
		w.wantReported("liveness slow 1/3", "liveness slow 2/3", "liveness slow 3/3")
	})
	in(t, sharedPort(probe.Readiness, probe.GRPC, time.Second), func(w *world) {
		w.o.Take(slow(w, time.Second))
		w.wantReported("readiness slow 1/3")
		w.o.Take(slow(w, 2*time.Second))
		w.wantReported()
		w.o.Take(slow(w, 5*time.Second))
		w.wantReported("liveness slow 1/3")
		time.Sleep(10 * time.Second)
		w.o.Take(slow(w, time.Second))
		w.o.Take(slow(w, 2*time.Second))
		w.wantReported("readiness slow 2/3", "liveness recovered")
		// No probe has a longer timeout: kubelet was late to close.
		time.Sleep(10 * time.Second)
		w.o.Take(slow(w, 6*time.Second))
		if got := w.reported(); len(got) != 1 || !strings.Contains(got[0], " slow ") {
			t.Errorf("reported %q", got)
		}
	})
	// Until the container has started, the connection is its startup probe's.
	in(t, func(w *world, c *Config, p *probe.Pod) {
		sharedPort(probe.Startup, probe.GRPC, 3*time.Second)(w, c, p)
		p.Containers[0].Liveness.Timeout, p.Containers[0].Started = time.Second, false
	}, func(w *world) {
		w.o.Take(w.fail(event.VerdictRefused, time.Millisecond))
		time.Sleep(10 * time.Second)
		w.o.Take(slow(w, 2*time.Second))
		w.wantReported("startup refused 1/3", "startup recovered")
	})
}

// Successes without an event are found from the counts of connections.
func TestSuccessInBetween(t *testing.T) {
	in(t, nil, func(w *world) {
		w.o.Take(w.fail(event.VerdictRefused, time.Millisecond))
		w.wantReported("liveness refused 1/3")
		time.Sleep(10 * time.Second)
		w.change(func() {
			w.counts["shop/web-1:8080"] = &Count{Name: "shop/web-1:8080", Succeeded: 1, Started: time.Now()}
		})
		time.Sleep(10 * time.Second)
		w.wantReported("liveness recovered")
		w.o.Take(w.fail(event.VerdictRefused, time.Millisecond))
		w.wantReported("liveness refused 1/3")
	})
}

// While the startup probe runs, a connection belongs to it.
func TestStartup(t *testing.T) {
	in(t, func(_ *world, _ *Config, p *probe.Pod) {
		s := *p.Containers[0].Liveness
		s.FailureThreshold = 30
		p.Containers[0].Startup, p.Containers[0].Started = &s, false
	}, func(w *world) {
		w.o.Take(w.fail(event.VerdictRefused, time.Millisecond))
		time.Sleep(10 * time.Second)
		w.o.Take(w.fail(event.VerdictRefused, time.Millisecond))
		time.Sleep(10 * time.Second)
		w.o.Take(w.recovered())
		time.Sleep(10 * time.Second)
		w.o.Take(w.fail(event.VerdictRefused, time.Millisecond))
		w.wantReported("startup refused 1/30", "startup refused 2/30", "startup recovered", "liveness refused 1/3")
	})
}

// Missing permission to read kubelet's counts is reported once.
func TestForbidden(t *testing.T) {
	in(t, func(w *world, c *Config, _ *probe.Pod) { c.Kubelet, w.refused = w, errors.New("403") }, func(w *world) {
		time.Sleep(time.Minute)
		w.mu.Lock()
		defer w.mu.Unlock()
		if want := []string{"results: 403", "sockets: <nil>"}; !slices.Equal(sorted(w.states), want) {
			t.Errorf("%q", w.states)
		}
		if w.asked > 8 {
			t.Errorf("asked %d times in a minute", w.asked)
		}
	})
}

func sorted(s []string) []string { s = slices.Clone(s); slices.Sort(s); return s }
