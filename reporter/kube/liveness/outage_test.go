package liveness

import (
	"context"
	"fmt"
	"maps"
	"net/http"
	"path"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kernosis/kernosis/detector/problem"
	"github.com/kernosis/kernosis/reporter/kube/leader"
	"github.com/kernosis/kernosis/reporter/kube/lease"
	"github.com/kernosis/kernosis/vmtest/kubetest"
	"github.com/kernosis/kernosis/vmtest/testenv"
)

// fleet is many Nodes whose agents only renew.
type fleet struct {
	b       *bench
	nodes   []string
	stopped []context.CancelFunc // by node
	wait    sync.WaitGroup
	faults  atomic.Int64
}

// fleet creates Nodes of a zone, with the condition A, and their agents' Leases.
func (b *bench) fleet(n int, zone string, interval time.Duration) *fleet {
	b.t.Helper()
	f := &fleet{b: b, nodes: make([]string, n), stopped: make([]context.CancelFunc, n)}
	config := b.server.Admin()
	config.ContentType = "application/vnd.kubernetes.protobuf"
	client := kubetest.Clientset(b.t, config)
	var made sync.WaitGroup
	next := make(chan int)
	for range 8 {
		made.Go(func() {
			for i := range next {
				f.nodes[i] = b.server.Node(b.t)
				_, err := client.CoreV1().Nodes().Patch(b.t.Context(), f.nodes[i], types.MergePatchType,
					[]byte(`{"metadata":{"labels":{"`+corev1.LabelTopologyZone+`":"`+zone+`"}}}`), metav1.PatchOptions{})
				if err != nil {
					b.t.Error(err)
				}
				b.set(f.nodes[i], "A", "True", "Broken")
			}
		})
	}
	for i := range n {
		next <- i
	}
	close(next)
	made.Wait()
	var keepers []*lease.Keeper
	for i, node := range f.nodes {
		k, err := lease.New(lease.Config{
			Client: client, Namespace: b.namespace, Node: node, Interval: interval, Duration: time.Second, StartJitter: interval, DrainTimeout: time.Nanosecond,
			Types: func() []string { return []string{"A"} },
		})
		if err != nil {
			b.t.Fatal(err)
		}
		keepers = append(keepers, k)
		ctx, cancel := context.WithCancel(context.Background())
		f.stopped[i] = cancel
		f.wait.Go(func() {
			_ = k.Run(ctx)
			for outcome, n := range k.Stats().Renewals {
				if outcome != lease.Renewed && outcome != lease.Created && outcome != "timeout" {
					f.faults.Add(int64(n))
				}
			}
		})
	}
	b.t.Cleanup(func() { f.silence(f.nodes); f.wait.Wait() })
	b.waitFor("all have a Lease", func() bool {
		return !slices.ContainsFunc(keepers, func(k *lease.Keeper) bool { return k.Stats().LastRenewed.IsZero() })
	})
	return f
}

// silence ends agents like a kill: they have no time to report their end.
func (f *fleet) silence(nodes []string) {
	for i, node := range f.nodes {
		if slices.Contains(nodes, node) {
			f.stopped[i]()
		}
	}
}

// marks returns a function that returns when the controller has written to each Node since then.
func (b *bench) marks() func() map[string]time.Time {
	b.t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	list, err := b.client.CoreV1().Nodes().List(ctx, metav1.ListOptions{Limit: 1})
	if err != nil {
		b.t.Fatal(err)
	}
	w, err := b.client.CoreV1().Nodes().Watch(ctx, metav1.ListOptions{ResourceVersion: list.ResourceVersion})
	if err != nil {
		b.t.Fatal(err)
	}
	var mu sync.Mutex
	seen := map[string]time.Time{}
	var ended sync.WaitGroup
	ended.Go(func() {
		for e := range w.ResultChan() {
			n, ok := e.Object.(*corev1.Node)
			if !ok {
				continue
			}
			if c := find(n.Status.Conditions, "A"); c != nil && c.Reason == lease.ReasonUnknown {
				mu.Lock()
				if _, again := seen[n.Name]; !again {
					seen[n.Name] = time.Now()
				}
				mu.Unlock()
			}
		}
	})
	b.t.Cleanup(func() { w.Stop(); cancel(); ended.Wait() })
	return func() map[string]time.Time {
		mu.Lock()
		defer mu.Unlock()
		return maps.Clone(seen)
	}
}

func TestZoneOutageIsSlowed(t *testing.T) {
	testenv.OnlyInTestAll(t)
	b := newBench(t)
	bad, good := b.fleet(10, "a", beat), b.fleet(5, "b", beat)
	const perSecond = 2
	r := b.control(func(c *Config) { c.SlowRate = perSecond })
	b.waitFor("all are seen", func() bool { return r.count(t, "kernosis_controller_nodes", "state", "reporting") == 15 })
	marks := b.marks()
	var mu sync.Mutex
	sent := map[string]time.Time{} // by path, as sent by the controller
	r.mu.Lock()
	r.harm = func(q *http.Request) *http.Response {
		if q.Method == http.MethodPatch {
			mu.Lock()
			defer mu.Unlock()
			sent[path.Base(path.Dir(q.URL.Path))] = time.Now()
		}
		return nil
	}
	r.mu.Unlock()
	// One agent of the good zone goes silent too; that zone is not slowed.
	bad.silence(bad.nodes[:8])
	good.silence(good.nodes[:1])
	b.waitFor("all silent ones are spoken for", func() bool { return len(marks()) == 9 })
	var times []time.Time
	mu.Lock()
	defer mu.Unlock()
	for _, n := range bad.nodes[:8] {
		times = append(times, sent[n])
	}
	slices.SortFunc(times, time.Time.Compare)
	// A write is sent a moment after it was permitted, so the next one may follow that much
	// sooner.
	for i, at := range times[1:] {
		if gap := at.Sub(times[i]); gap < 200*time.Millisecond {
			t.Errorf("two writes within %s", gap)
		}
	}
	for i, at := range times[3:] {
		if took := at.Sub(times[i]); took < 3*time.Second/perSecond-300*time.Millisecond {
			t.Errorf("four writes within %s", took)
		}
	}
	if sent[good.nodes[0]].After(times[3]) {
		t.Error("the other zone is slowed as well")
	}
	if r.count(t, "kernosis_controller_zone_slowed", "zone", "a") != 1 || r.count(t, "kernosis_controller_zone_slowed", "zone", "b") != 0 ||
		r.count(t, "kernosis_controller_write_waits_total", "reason", "zone_slowed") == 0 {
		t.Error("metrics do not tell of it")
	}
	if err := testLint(r); err != "" {
		t.Error(err)
	}
}

func TestNothingIsWrittenWhenAllAreSilent(t *testing.T) {
	testenv.OnlyInTestAll(t)
	b := newBench(t)
	one, two := b.fleet(3, "a", beat), b.fleet(2, "b", beat)
	r := b.control(nil)
	b.waitFor("all are seen", func() bool { return r.count(t, "kernosis_controller_nodes", "state", "reporting") == 5 })
	marks := b.marks()
	one.silence(one.nodes)
	two.silence(two.nodes)
	b.waitFor("it is halted", func() bool { return r.count(t, "kernosis_controller_halted") == 1 })
	b.holds("nothing is written", 2*quiet, func() bool { return len(marks()) == 0 })
	// One agent comes back: the others have a full period again.
	back := time.Now()
	b.agent(one.nodes[0], cond("A", problem.False, "Fine"))
	b.waitFor("the others are spoken for", func() bool { return len(marks()) == 4 })
	for n, at := range marks() {
		if at.Sub(back) < quiet-beat {
			t.Errorf("%s was written %s after", n, at.Sub(back))
		}
	}
}

// An outage of the API server does not make agents silent.
func TestAPIOutage(t *testing.T) {
	testenv.OnlyInTestAll(t)
	b := newBenchOn(t, newServer(t))
	b.fleet(6, "a", beat)
	r := b.control(nil)
	b.waitFor("all are seen", func() bool { return r.count(t, "kernosis_controller_nodes", "state", "reporting") == 6 })
	b.server.Stop(t)
	b.waitFor("all seem silent", func() bool { return r.count(t, "kernosis_controller_nodes", "state", "silent") == 6 })
	b.server.Start(t)
	b.waitFor("all are seen again", func() bool { return r.count(t, "kernosis_controller_nodes", "state", "reporting") == 6 })
	b.holds("nobody is spoken for", quiet, func() bool { return r.count(t, "kernosis_controller_writes_total") == 0 })
}

// Many agents renew their Leases, and a part of two zones falls silent. make fleet runs 5,000.
func TestTwoHundredAgents(t *testing.T) {
	testenv.OnlyInTestAll(t)
	b := newBench(t)
	const agents, silent = 200, 80
	interval := 3 * time.Second // 67 Leases a second: those of 1,000 nodes
	b.client = b.server.Client()
	f := &fleet{}
	for _, zone := range []string{"a", "b"} {
		g := b.fleet(agents/2, zone, interval)
		f.nodes, f.stopped = append(f.nodes, g.nodes...), append(f.stopped, g.stopped...)
	}
	r := b.control(func(c *Config) { c.Silent = 12 * time.Second })
	b.waitFor("all are seen", func() bool { return r.count(t, "kernosis_controller_nodes", "state", "reporting") == agents })
	before, began := b.server.EtcdWrites(t), time.Now()
	b.holds("nobody is spoken for", 15*time.Second, func() bool { return r.count(t, "kernosis_controller_writes_total") == 0 })
	w, took := b.server.EtcdWrites(t), time.Since(began)
	puts := w.Puts - before.Puts
	t.Logf("%d agents: %.0f Leases a second, %d bytes each", agents, float64(puts)/took.Seconds(), (w.PutBytes-before.PutBytes)/max(puts, 1))
	marks := b.marks()
	// Less than the share of a zone that is an outage.
	gone := slices.Concat(f.nodes[:silent/2], f.nodes[agents/2:agents/2+silent/2])
	f.silence(gone)
	b.waitFor("all silent ones are spoken for", func() bool { return len(marks()) == silent })
	var first, last time.Time
	for n, at := range marks() {
		if !slices.Contains(gone, n) {
			t.Errorf("%s was spoken for and was not silent", n)
		}
		if first.IsZero() || at.Before(first) {
			first = at
		}
		if at.After(last) {
			last = at
		}
	}
	kubetest.AwaitSum(t, r.registry, silent, "kernosis_controller_writes_total")
	var m runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&m)
	t.Logf("%d silent: written within %s, %.0f a second; heap of the test with all agents %d MiB",
		silent, last.Sub(first), float64(silent)/last.Sub(first).Seconds(), m.HeapAlloc>>20)
}

func testLint(r *running) string {
	problems, err := lint(r)
	if err != nil {
		return err.Error()
	}
	var out []string
	for _, p := range problems {
		out = append(out, fmt.Sprint(p))
	}
	return strings.Join(out, "; ")
}

// A list that takes minutes does not end the controller: it would start again, and never finish.
func TestNodesThatAreListedLate(t *testing.T) {
	testenv.OnlyInTestAll(t)
	b := newBench(t)
	l := &link{harm: func(r *http.Request) *http.Response {
		if r.URL.Path != "/api/v1/nodes" {
			return nil
		}
		return refusal(http.StatusInternalServerError)
	}}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() {
		ended <- run(ctx, l.config(b.server.Admin()), Config{Namespace: b.namespace, Pods: "app=agent"}, leader.Election{})
	}()
	select {
	case err := <-ended:
		t.Fatalf("it has ended: %v", err)
	case <-time.After(2*time.Minute + 20*time.Second): // controller-runtime's default is to wait two minutes
	}
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}
