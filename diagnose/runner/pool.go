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
	ErrFull   = errors.New("too many diagnoses wait")
	ErrQueued = errors.New("the diagnosis waits or runs already")
	ErrClosed = errors.New("no more diagnoses are taken")
)

// PoolConfig is what a [Pool] needs.
type PoolConfig struct {
	Workers int // diagnoses that run at a time; 0: 4
	// PerTenant is how many of these one tenant may have; 0: half of them. All tenants
	// together leave one worker to the node's own, where there are several.
	PerTenant int
	Queue     int // that wait for a worker; 0: 100
	// Execute runs one: [Runner.Execute].
	Execute func(ctx context.Context, d *Diagnosis) (*Report, error)
	// Done gets what Execute returned, by the worker; nil: nobody is.
	Done func(d *Diagnosis, rep *Report, err error)
}

// Pool runs diagnoses, as many at a time as it may: the node's own before those of tenants,
// those of tenants in turn, and those of one in the order in which they come. Its methods
// may be called by several goroutines at once.
type Pool struct {
	c PoolConfig

	mu      sync.Mutex
	changed chan struct{} // closed and made anew with each change
	queue   []*Diagnosis
	running map[string]*job
	tenants map[string]int    // how many of a tenant run
	turn    map[string]uint64 // when a tenant that waits or runs began one last
	turns   uint64
	closed  bool
}

type job struct {
	d      *Diagnosis
	cancel context.CancelCauseFunc
}

// NewPool returns a pool that runs nothing before [Pool.Run].
func NewPool(c PoolConfig) *Pool {
	if c.Workers == 0 {
		c.Workers = 4
	}
	if c.PerTenant == 0 {
		c.PerTenant = max(1, c.Workers/2)
	}
	if c.Queue == 0 {
		c.Queue = 100
	}
	if c.Done == nil {
		c.Done = func(*Diagnosis, *Report, error) {}
	}
	return &Pool{c: c, changed: make(chan struct{}), running: map[string]*job{}, tenants: map[string]int{}, turn: map[string]uint64{}}
}

// Submit queues a diagnosis to run. It returns why it does not take one.
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

// Cancel ends a diagnosis that waits or runs, for good: one that waits is executed with
// a context that is cancelled, so that its checkpoint says so. It reports whether there
// is one.
func (p *Pool) Cancel(id, reason string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if j := p.running[id]; j != nil {
		j.cancel(&Cancelled{reason})
		return true
	}
	i := slices.IndexFunc(p.queue, func(q *Diagnosis) bool { return q.ID == id })
	if i < 0 {
		return false
	}
	d := *p.queue[i]
	d.cancelled = &Cancelled{reason}
	p.queue[i] = &d
	return true
}

// Run runs what is submitted until ctx is done, and returns when all workers have ended.
// What waits then is not run; its checkpoints, if it has any, are found by
// [SavedIDs]. It is called once.
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

// next returns what is to run now. The lock is held.
func (p *Pool) next() *Diagnosis {
	if len(p.running) >= p.c.Workers {
		return nil
	}
	var first *Diagnosis
	for _, d := range p.queue {
		switch {
		case d.Tenant == "":
			return d
		case p.tenants[d.Tenant] >= p.c.PerTenant:
		case first == nil || p.before(d.Tenant, first.Tenant):
			first = d
		}
	}
	if p.ofTenants() >= max(1, p.c.Workers-1) {
		return nil
	}
	return first
}

// before reports whether it is a tenant's turn before that of another. The lock is held.
func (p *Pool) before(a, b string) bool {
	return cmp.Or(cmp.Compare(p.tenants[a], p.tenants[b]), cmp.Compare(p.turn[a], p.turn[b])) < 0
}

// ofTenants counts the tenants' that run. The lock is held.
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
	p.running[d.ID] = &job{d, cancel}
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

// leave notes that one of a tenant has ended. The lock is held.
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
