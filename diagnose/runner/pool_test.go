package runner_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kernosis/kernosis/diagnose/api/v1alpha1"
	"github.com/kernosis/kernosis/diagnose/operation"
	"github.com/kernosis/kernosis/diagnose/runner"
)

// busy records what runs. A diagnosis takes one second.
type busy struct {
	mu     sync.Mutex
	now    map[string]int // by tenant
	all    int
	most   int
	tenant int // most of one tenant
	others int // most of all tenants together
	order  []string
	causes map[string]error
}

func (b *busy) execute(ctx context.Context, d *runner.Diagnosis) (*runner.Report, error) {
	b.mu.Lock()
	b.order = append(b.order, d.ID)
	b.all++
	b.now[d.Tenant]++
	b.most, b.others = max(b.most, b.all), max(b.others, b.all-b.now[""])
	if d.Tenant != "" {
		b.tenant = max(b.tenant, b.now[d.Tenant])
	}
	b.mu.Unlock()
	select {
	case <-ctx.Done():
	case <-time.After(time.Second):
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.all--
	b.now[d.Tenant]--
	b.causes[d.ID] = context.Cause(ctx)
	return nil, context.Cause(ctx)
}

// begun returns the diagnoses that have started after the first ones, sorted.
func (b *busy) begun(first int) []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.Sorted(slices.Values(b.order[first:]))
}

// cause returns why a diagnosis was ended; nil: it ended by itself, or has not started.
func (b *busy) cause(id string) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.causes[id]
}

func newBusy() *busy { return &busy{now: map[string]int{}, causes: map[string]error{}} }

func TestPool(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBusy()
		ended := 0
		p := runner.NewPool(runner.PoolConfig{Workers: 4, Queue: 12, Execute: b.execute, Done: func(*runner.Diagnosis, *runner.Report, error) {
			b.mu.Lock()
			ended++
			b.mu.Unlock()
		}})
		submit := func(id, tenant string) error { return p.Submit(&runner.Diagnosis{ID: id, Tenant: tenant}) }
		for i, tenant := range []string{"a", "a", "a", "a", "a", "a", "b", "b", "c", "c", "", ""} {
			if err := submit(tenant+strconv.Itoa(i), tenant); err != nil {
				t.Fatal(err)
			}
		}
		if err := submit("12", "a"); !errors.Is(err, runner.ErrFull) {
			t.Errorf("one too many: %v", err)
		}
		if err := submit("a3", "a"); !errors.Is(err, runner.ErrQueued) {
			t.Errorf("one that waits: %v", err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		stopped := make(chan struct{})
		began := time.Now()
		go func() { p.Run(ctx); close(stopped) }()
		synctest.Wait()
		if err := submit("10", ""); !errors.Is(err, runner.ErrQueued) {
			t.Errorf("one that runs: %v", err)
		}
		// The node's own diagnoses come first, then tenants in turn. In the next second at most
		// three of tenants run, and in the third two of a tenant that is alone.
		for i, want := range []string{"10 11 a0 b6", "a1 b7 c8", "a2 a3 c9", "a4 a5"} {
			first := i*3 + min(i, 1)
			if got := b.begun(first); strings.Join(got, " ") != want {
				t.Errorf("second %d: %v, want %s", i, got, want)
			}
			time.Sleep(time.Second)
			synctest.Wait()
		}
		if ended != 12 {
			t.Errorf("%d after %v", ended, time.Since(began))
		}
		if b.most != 4 || b.tenant != 2 || b.others != 3 {
			t.Errorf("%d at a time, %d of tenants, %d of one", b.most, b.others, b.tenant)
		}
		// At the end, running diagnoses are interrupted, and queued ones don't run.
		for i := range 6 {
			if err := submit(fmt.Sprint("late", i), ""); err != nil {
				t.Fatal(err)
			}
		}
		synctest.Wait()
		cancel()
		<-stopped
		if len(b.order) != 16 || b.cause("late0") == nil || submit("x", "a") != runner.ErrClosed { //nolint:errorlint // as it is
			t.Errorf("ran %v, %v", b.order, b.causes)
		}
	})
}

func TestPoolCancels(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBusy()
		var ended atomic.Int32
		p := runner.NewPool(runner.PoolConfig{Workers: 1, Queue: 3, Execute: b.execute, Done: func(*runner.Diagnosis, *runner.Report, error) { ended.Add(1) }})
		for _, id := range []string{"runs", "waits", "other"} {
			if err := p.Submit(&runner.Diagnosis{ID: id}); err != nil {
				t.Fatal(err)
			}
		}
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		stopped := make(chan struct{})
		go func() { p.Run(ctx); close(stopped) }()
		synctest.Wait()
		p.Cancel("waits", "spec.cancel")
		p.Cancel("runs", "deleted")
		p.Cancel("nobody", "x")
		synctest.Wait()
		for id, want := range map[string]string{"runs": "cancelled: deleted", "waits": "cancelled: spec.cancel"} {
			if err := b.cause(id); err == nil || err.Error() != want {
				t.Errorf("%s: %v", id, err)
			}
		}
		time.Sleep(2 * time.Second)
		synctest.Wait()
		if ended.Load() != 3 || b.cause("other") != nil {
			t.Errorf("%d, %v", ended.Load(), b.causes)
		}
		cancel()
		<-stopped
	})
}

// A pool together with a runner: each diagnosis is executed, and one that waits for the gate
// occupies no worker.
func TestPoolOfARunner(t *testing.T) {
	var s script
	s.behave = behaviour{2: func(context.Context, *runner.Inputs) (operation.Output, error) { return operation.Output{}, nil }}
	r := newRunner(t, runner.Config{Gate: &gate{Decision: runner.Decision{Verb: v1alpha1.RemediationWait, Reason: "AwaitingApproval"}}})
	reports := make(chan *runner.Report, 20)
	p := runner.NewPool(runner.PoolConfig{Workers: 2, Queue: 20, Execute: r.Execute, Done: func(_ *runner.Diagnosis, rep *runner.Report, err error) {
		if err != nil {
			t.Error(err)
		}
		reports <- rep
	}})
	for i := range 20 {
		lines := []string{": 1", "collect-a: 2", "collect-b:"}
		if i%2 == 0 {
			lines = []string{": 1", "collect-a: 2", "repair-b:"}
		}
		if err := p.Submit(s.diagnosis(t, fmt.Sprint("d", i), lines...)); err != nil {
			t.Fatal(err)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	stopped := make(chan struct{})
	go func() { p.Run(ctx); close(stopped) }()
	phases := map[v1alpha1.Phase]int{}
	for range 20 {
		phases[(<-reports).Phase]++
	}
	cancel()
	<-stopped
	if phases[v1alpha1.PhaseSucceeded] != 10 || phases[v1alpha1.PhaseRunning] != 10 {
		t.Error(phases)
	}
}
