package conditions

import (
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/kernosis/kernosis/detector/problem"
	"github.com/kernosis/kernosis/vmtest/kubetest"
	"github.com/kernosis/kernosis/vmtest/testenv"
)

func TestFailedWritesAreTriedAgain(t *testing.T) {
	testenv.OnlyInTestAll(t)
	server := cluster.Server(t)
	hang := make(chan struct{})
	t.Cleanup(func() { close(hang) })
	for name, c := range map[string]struct {
		outcome Outcome
		harm    func(w http.ResponseWriter, r *http.Request)
	}{
		"conflict": {Conflict, func(w http.ResponseWriter, _ *http.Request) { kubetest.Answer(w, http.StatusConflict, "Conflict") }},
		"throttled": {Throttled, func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Retry-After", "1")
			kubetest.Answer(w, http.StatusTooManyRequests, "TooManyRequests")
		}},
		"throttled by priority and fairness": {Throttled, func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Retry-After", "1")
			http.Error(w, "Too many requests, please try again later.", http.StatusTooManyRequests)
		}},
		"internal error": {ServerError, func(w http.ResponseWriter, _ *http.Request) {
			kubetest.Answer(w, http.StatusInternalServerError, "InternalError")
		}},
		"no server behind it": {ServerError, func(w http.ResponseWriter, _ *http.Request) {
			http.Error(w, "no server", http.StatusServiceUnavailable)
		}},
		"forbidden": {Forbidden, func(w http.ResponseWriter, _ *http.Request) { kubetest.Answer(w, http.StatusForbidden, "Forbidden") }},
		"hangs": {TimedOut, func(_ http.ResponseWriter, r *http.Request) {
			select {
			case <-hang:
			case <-r.Context().Done():
			}
		}},
		"connection cut": {Unreachable, func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }},
	} {
		t.Run(name, func(t *testing.T) {
			p, config := newProxy(t, server)
			var left atomic.Int32
			left.Store(3)
			p.do(func(w http.ResponseWriter, r *http.Request) bool {
				if r.Method != http.MethodPatch || left.Add(-1) < 0 {
					return false
				}
				c.harm(w, r)
				return true
			})
			r := start(t, server, func(cfg *Config) {
				cfg.Client, cfg.timeout = kubetest.Clientset(t, config), testenv.Within(300*time.Millisecond)
			})
			r.set(deadlocked())
			r.waitFor("three failures", func() bool { return r.Stats().Writes[c.outcome] == 3 })
			if s := r.Stats(); s.LastError == "" || !s.Pending {
				t.Errorf("stats: %+v", s)
			}
			r.waitStatus(deadlocked())
			r.waitAcked()
			written := uint64(1)
			if c.outcome == Forbidden {
				written = 2 // the first patch had no type
			}
			// On a busy machine a timeout may add one.
			if s := r.Stats(); s.Writes[Written] != written || s.Retries < 3 || s.LastError != "" || s.Flips != 0 {
				t.Errorf("stats: %+v", s)
			}
			sent := p.sent()
			if c.outcome == Throttled {
				for i := 1; i < 4; i++ {
					if gap := sent[i].Sub(sent[i-1]); gap < 990*time.Millisecond {
						t.Errorf("the API asked for 1 s, and was asked again after %s", gap)
					}
				}
			}
		})
	}
}

// A write whose answer was lost is not repeated once the watch shows it, and is not taken for another
// client's.
func TestAnAnswerThatIsLost(t *testing.T) {
	server := cluster.Server(t)
	p, config := newProxy(t, server)
	var lost atomic.Bool
	p.do(func(_ http.ResponseWriter, r *http.Request) bool {
		if r.Method != http.MethodPatch || lost.Swap(true) {
			return false
		}
		return p.LoseAnswer(r)
	})
	r := start(t, server, func(c *Config) { c.Client = kubetest.Clientset(t, config) })
	r.set(deadlocked())
	r.waitStatus(deadlocked())
	r.waitAcked()
	if s := r.Stats(); s.Flips != 0 || s.Writes[Unreachable] != 1 || s.Writes[Written] > 1 {
		t.Errorf("stats: %+v", s)
	}
}

// A write that the API server executes after the agent stopped waiting for it may overwrite a newer
// one. That is repaired, and not taken for another client that insists.
func TestWritesThatAreExecutedLate(t *testing.T) {
	server := cluster.Server(t)
	p, config := newProxy(t, server)
	late := make(chan []byte, 1)
	var hold atomic.Bool
	p.do(func(_ http.ResponseWriter, r *http.Request) bool {
		if r.Method != http.MethodPatch || !hold.Swap(false) {
			return false
		}
		body, err := io.ReadAll(r.Body)
		if err != nil {
			t.Error(err)
		}
		late <- body
		<-r.Context().Done()
		return true
	})
	r := start(t, server, func(c *Config) { c.Client, c.timeout = kubetest.Clientset(t, config), time.Second })
	r.set(healthy())
	r.waitStatus(healthy())
	for i := range maxFlips + 1 {
		r.waitAcked()
		before := r.Stats()
		hold.Store(true)
		old := deadlocked()
		old.Message = fmt.Sprintf("old %d", i)
		r.set(old)
		r.waitFor("a timeout", func() bool {
			s := r.Stats()
			return s.Writes[TimedOut]+s.Writes[Unreachable] > before.Writes[TimedOut]+before.Writes[Unreachable]
		})
		last := deadlocked()
		last.Message = fmt.Sprintf("last %d", i)
		r.set(last)
		r.waitStatus(last)
		r.waitAcked()
		written := r.Stats().Writes[Written]
		if _, err := Patch(t.Context(), server.Client(), r.node, FieldManager, testenv.Within(time.Minute), <-late); err != nil {
			t.Fatal(err)
		}
		r.waitFor("a repair", func() bool { return r.Stats().Writes[Written] > written })
		r.waitStatus(last)
	}
	if s := r.Stats(); s.Flips != 0 || s.Contested != 0 {
		t.Errorf("stats: %+v", s)
	}
}

// Nor does the API server write again if the retry comes before the watch is back.
func TestRetriesOfALostAnswerChangeNothing(t *testing.T) {
	server := cluster.Server(t)
	p, config := newProxy(t, server)
	var first atomic.Pointer[time.Time]
	p.do(func(w http.ResponseWriter, r *http.Request) bool {
		if r.Method != http.MethodPatch {
			http.Error(w, "no server", http.StatusServiceUnavailable)
			return true
		}
		now := time.Now()
		first.CompareAndSwap(nil, &now)
		// Times of conditions are in seconds: one has passed when the last retry is sent.
		return now.Before(first.Load().Add(1100*time.Millisecond)) && p.LoseAnswer(r)
	})
	r := start(t, server, func(c *Config) { c.Client = kubetest.Clientset(t, config) })
	changes := watchNode(t, server.Client(), r.node)
	r.set(deadlocked())
	r.waitAcked()
	if s := r.Stats(); s.Retries == 0 || s.Writes[Unreachable] == 0 {
		t.Errorf("no answer was lost: %+v", s)
	}
	overwrite(t, server.Client(), r.node, "test", `{"type":"Last","status":"True"}`)
	var written int
	for n := range changes {
		if has := func(name string) bool {
			return slices.ContainsFunc(n.Status.Conditions, func(c corev1.NodeCondition) bool { return string(c.Type) == name })
		}; has("Last") {
			break
		} else if has("KernelDeadlock") {
			written++
		}
	}
	if written != 1 {
		t.Errorf("the Node was written %d times", written)
	}
}

// While the API server is unavailable only the state is kept; then the latest state is sent.
func TestTheServerIsAway(t *testing.T) {
	testenv.OnlyInTestAll(t)
	server := kubetest.New(t, kubetest.Options{})
	r := start(t, server, func(c *Config) { c.timeout = time.Second })
	r.set(healthy())
	r.waitStatus(healthy())
	for name, c := range map[string]struct {
		away, back func(testing.TB)
	}{
		"stopped": {server.Stop, server.Start},
		"killed":  {server.Kill, server.Start},
		"hanging": {server.Pause, server.Resume},
	} {
		t.Run(name, func(t *testing.T) {
			r.waitAcked()
			before := r.Stats()
			c.away(t)
			for i := range 1000 {
				x := deadlocked()
				x.Message = fmt.Sprintf("%s %d", name, i)
				r.set(x)
			}
			last := cond("KernelDeadlock", problem.True, "Last"+strings.ToUpper(name[:1])+name[1:])
			r.set(last)
			r.waitFor("failures", func() bool {
				s := r.Stats()
				return s.Writes[Unreachable]+s.Writes[TimedOut]+s.Writes[ServerError] >= before.Writes[Unreachable]+before.Writes[TimedOut]+before.Writes[ServerError]+2
			})
			c.back(t)
			back := time.Now()
			r.waitStatus(last)
			t.Logf("written %s after the server was ready", time.Since(back).Round(time.Millisecond))
			r.waitAcked()
			// One more if the server accepted a write before it hung.
			if s := r.Stats(); s.Writes[Written] > before.Writes[Written]+2 || s.Flips != before.Flips {
				t.Errorf("before %+v, after %+v", before, s)
			}
			// The watch is back too: it repairs overwritten conditions.
			flips := r.Stats().Flips
			watches := before.Watches
			if name != "hanging" {
				r.waitFor("a watch", func() bool { return r.Stats().Watches > watches })
			}
			overwrite(t, server.Client(), r.node, "somebody", `{"type":"KernelDeadlock","status":"False","reason":"Theirs","message":""}`)
			r.waitFor("a flip", func() bool { return r.Stats().Flips > flips })
			r.waitStatus(last)
			r.waitAcked()
			r.calm()
		})
	}
}

// calm forgets recorded overwrites, as happens after ten minutes.
func (r *rig) calm() {
	r.stop()
	for _, e := range r.ledger.entries {
		e.flips = nil
	}
	r.Patcher.mu.Lock()
	r.watching = false
	r.Patcher.mu.Unlock()
	r.run()
}

func TestBackoffHasItsBounds(t *testing.T) {
	began := time.Now()
	for name, c := range map[string]struct {
		now     time.Time
		written bool
		longest time.Duration
	}{
		"boot":               {began.Add(time.Second), false, 2 * time.Second},
		"after two minutes":  {began.Add(fastFor + time.Second), false, 30 * time.Second},
		"after it was there": {began.Add(time.Second), true, 30 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			p := &Patcher{ledger: &ledger{start: began}}
			if c.written {
				p.stats.LastAcked = began
			}
			b := p.patience(c.now)
			var last time.Duration
			for range 30 {
				last = b.Step()
				if last <= 0 || last > c.longest {
					t.Fatalf("waits %s, at most %s is right", last, c.longest)
				}
			}
			if last < c.longest/2 {
				t.Errorf("waits %s in the end, want at least %s", last, c.longest/2)
			}
			a, b2 := p.patience(c.now), p.patience(c.now)
			same := 0
			for range 10 {
				if a.Step() == b2.Step() {
					same++
				}
			}
			if same > 2 {
				t.Errorf("%d of 10 waits are alike for two agents", same)
			}
		})
	}
}

// The first writes of agents that start together are spread, except on nodes with a problem.
func TestAFleetStartsApart(t *testing.T) {
	server := cluster.Server(t)
	p, config := newProxy(t, server)
	client := kubetest.Clientset(t, config)
	const agents, ill = 30, 5
	var rigs []*rig
	nodes := make([]string, agents)
	for i := range nodes {
		nodes[i] = server.Node(t)
	}
	// Scaled to this machine, which also has to start all of them. The test takes four of them.
	second := min(testenv.Within(time.Second), 2*time.Second)
	began := time.Now()
	for i, node := range nodes {
		r := start(t, server, func(c *Config) { c.Client, c.Node, c.StartJitter = client, node, 4*second })
		if i < ill {
			r.set(deadlocked())
		} else {
			r.set(healthy())
		}
		rigs = append(rigs, r)
	}
	var slowest, firstHealthy, lastHealthy time.Duration
	for i, r := range rigs {
		r.waitFor("it is written", func() bool { return r.Stats().Writes[Written] == 1 })
		took := r.Stats().LastAcked.Sub(began)
		switch {
		case i < ill:
			slowest = max(slowest, took)
		case firstHealthy == 0:
			firstHealthy, lastHealthy = took, took
		default:
			firstHealthy, lastHealthy = min(firstHealthy, took), max(lastHealthy, took)
		}
	}
	if slowest > second*3/2 {
		t.Errorf("a condition that is True was written after %s", slowest)
	}
	if spread := lastHealthy - firstHealthy; spread < 2*second {
		t.Errorf("the others were written within %s", spread)
	}
	if n := len(p.sent()); n != agents {
		t.Errorf("%d writes of %d agents", n, agents)
	}
}
