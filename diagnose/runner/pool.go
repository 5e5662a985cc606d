package runner

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"sync"
)

// Errors of [Pool.Submit].
var (
	ErrFull   = errors.New("too many diagnoses are waiting")
	ErrQueued = errors.New("the diagnosis is already waiting or running")
	ErrClosed = errors.New("no more diagnoses are accepted")
)

// PoolConfig configures a [Pool].
type PoolConfig struct {
	// Workers is how many diagnoses run at a time. One tenant has at most half of them. All tenants
	// together leave one worker to the node's own diagnoses, if there are several workers.
	Workers int
	Queue   int // how many diagnoses wait for a worker
	// Execute executes one diagnosis: [Runner.Execute].
	Execute func(ctx context.Context, d *Diagnosis) (*Report, error)
	// Done is called by the worker with what Execute returned.
	Done func(d *Diagnosis, rep *Report, err error)
}

// Pool runs diagnoses on a bounded number of workers: the node's own before those of tenants,
// tenants in turn, and the diagnoses of one tenant in the order of submission. Its methods may be
// called by several goroutines at once.
type Pool struct {
	c PoolConfig

	mu      sync.Mutex
	changed chan struct{} // closed and replaced at each change
	queue   []*Diagnosis
	running map[string]context.CancelCauseFunc // by id of the diagnosis
	tenants map[string]int                     // running diagnoses of a tenant
	turn    map[string]uint64                  // by tenant that waits or runs: the turn of its latest start
	turns   uint64
	closed  bool
}

// NewPool returns a pool that runs nothing until [Pool.Run] is called.
func NewPool(c PoolConfig) *Pool {
	return &Pool{c: c, changed: make(chan struct{}), running: map[string]context.CancelCauseFunc{}, tenants: map[string]int{}, turn: map[string]uint64{}}
}

// Submit queues a diagnosis. Errors: [ErrClosed], [ErrQueued], [ErrFull].
func (p *Pool) Submit(d *Diagnosis) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case p.closed:
		return ErrClosed
	case p.running[d.ID] != nil || slices.ContainsFunc(p.queue, func(q *Diagnosis) bool { return q.ID == d.ID }):
		return ErrQueued
	case len(p.queue) >= p.c.Queue:
		return ErrFull
	}
	p.queue = append(p.queue, d)
	p.wake()
	return nil
}

// Cancel ends a queued or running diagnosis for good. A queued one is still executed, with a
// cancelled context, so that its checkpoint records the end.
func (p *Pool) Cancel(id, reason string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if cancel := p.running[id]; cancel != nil {
		cancel(&Cancelled{reason})
	}
	if i := slices.IndexFunc(p.queue, func(q *Diagnosis) bool { return q.ID == id }); i >= 0 {
		d := *p.queue[i]
		d.cancelled = &Cancelled{reason}
		p.queue[i] = &d
	}
}

// Run runs submitted diagnoses until ctx is done, and returns when all workers have ended.
// Diagnoses that are still queued then do not run; [SavedIDs] finds their checkpoints. Call Run
// only once.
func (p *Pool) Run(ctx context.Context) {
	var workers sync.WaitGroup
	defer workers.Wait()
	for {
		p.mu.Lock()
		d := p.next()
		changed := p.changed
		if d != nil && ctx.Err() == nil {
			p.begin(ctx, d, &workers)
			p.mu.Unlock()
			continue
		}
		p.mu.Unlock()
		select {
		case <-changed:
		case <-ctx.Done():
			p.mu.Lock()
			p.closed = true
			p.mu.Unlock()
			return
		}
	}
}

// next returns the diagnosis to start now, or nil. The lock is held.
func (p *Pool) next() *Diagnosis {
	if len(p.running) >= p.c.Workers {
		return nil
	}
	var first *Diagnosis
	for _, d := range p.queue {
		switch {
		case d.Tenant == "":
			return d
		case p.tenants[d.Tenant] >= max(1, p.c.Workers/2):
		case first == nil || p.before(d.Tenant, first.Tenant):
			first = d
		}
	}
	if p.ofTenants() >= max(1, p.c.Workers-1) {
		return nil
	}
	return first
}

// before reports whether tenant a has its turn before tenant b. The lock is held.
func (p *Pool) before(a, b string) bool {
	return cmp.Or(cmp.Compare(p.tenants[a], p.tenants[b]), cmp.Compare(p.turn[a], p.turn[b])) < 0
}

// ofTenants counts running diagnoses of all tenants. The lock is held.
func (p *Pool) ofTenants() (n int) {
	for _, running := range p.tenants {
		n += running
	}
	return n
}

// begin takes a diagnosis off the queue and runs it. The lock is held.
func (p *Pool) begin(ctx context.Context, d *Diagnosis, workers *sync.WaitGroup) {
	ctx, cancel := context.WithCancelCause(ctx)
	if d.cancelled != nil {
		cancel(d.cancelled)
	}
	p.queue = slices.DeleteFunc(p.queue, func(q *Diagnosis) bool { return q == d })
	p.running[d.ID] = cancel
	if d.Tenant != "" {
		p.turns++
		p.tenants[d.Tenant]++
		p.turn[d.Tenant] = p.turns
	}
	workers.Go(func() {
		defer cancel(nil)
		rep, err := p.c.Execute(ctx, d)
		p.mu.Lock()
		delete(p.running, d.ID)
		if d.Tenant != "" {
			p.leave(d.Tenant)
		}
		p.wake()
		p.mu.Unlock()
		p.c.Done(d, rep, err)
	})
}

// leave records that a diagnosis of a tenant has ended. The lock is held.
func (p *Pool) leave(tenant string) {
	if p.tenants[tenant]--; p.tenants[tenant] > 0 {
		return
	}
	delete(p.tenants, tenant)
	if !slices.ContainsFunc(p.queue, func(d *Diagnosis) bool { return d.Tenant == tenant }) {
		delete(p.turn, tenant)
	}
}

// wake notifies Run of a change. The lock is held.
func (p *Pool) wake() {
	close(p.changed)
	p.changed = make(chan struct{})
}
