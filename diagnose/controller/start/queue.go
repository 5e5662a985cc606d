package start

import (
	"context"
	"sync"
	"time"

	"k8s.io/client-go/util/workqueue"

	"github.com/kernosis/kernosis/diagnose/api/v1alpha1"
)

// item is a Diagnosis that is to be made.
type item struct {
	dx    *v1alpha1.Diagnosis
	seq   uint64
	cause string
	since time.Time
	done  chan struct{} // closed when it is made, or is not to be
}

// queue has what is to be made, in the order in which it was wanted, and reports what is
// settled. What has failed comes again after a pause. Several goroutines may use it.
type queue struct {
	work workqueue.TypedRateLimitingInterface[string]

	mu      sync.Mutex
	seq     uint64
	items   map[string]*item // by name
	changed chan struct{}    // closed when one is settled
	closed  chan struct{}
}

func newQueue() *queue {
	return &queue{
		work:  workqueue.NewTypedRateLimitingQueue(workqueue.NewTypedItemExponentialFailureRateLimiter[string](firstRetry, lastRetry)),
		items: map[string]*item{}, changed: make(chan struct{}), closed: make(chan struct{}),
	}
}

// add takes Diagnoses in. One that waits already is not taken twice.
func (q *queue) add(cause string, list []*v1alpha1.Diagnosis, now time.Time) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, dx := range list {
		q.seq++
		if q.items[dx.Name] != nil {
			continue
		}
		q.items[dx.Name] = &item{dx: dx, seq: q.seq, cause: cause, since: now, done: make(chan struct{})}
		q.work.Add(dx.Name)
	}
}

// next waits for what is to be made now; nil: the queue is closed.
func (q *queue) next() *item {
	for {
		name, closed := q.work.Get()
		if closed {
			return nil
		}
		q.mu.Lock()
		it := q.items[name]
		q.mu.Unlock()
		if it != nil {
			return it
		}
		q.work.Done(name)
	}
}

// again puts back what next returned.
func (q *queue) again(it *item) {
	q.work.AddRateLimited(it.dx.Name)
	q.work.Done(it.dx.Name)
}

// settle ends what next returned.
func (q *queue) settle(it *item) {
	q.mu.Lock()
	delete(q.items, it.dx.Name)
	close(it.done)
	close(q.changed)
	q.changed = make(chan struct{})
	q.mu.Unlock()
	q.work.Forget(it.dx.Name)
	q.work.Done(it.dx.Name)
}

// close ends next, and everybody's waiting.
func (q *queue) close() {
	q.work.ShutDown()
	close(q.closed)
}

func (q *queue) length() int {
	q.mu.Lock()
	defer q.mu.Unlock()
	return len(q.items)
}

// full reports whether nothing more should be decided: what is wanted can't be put off.
func (q *queue) full() bool { return q.length() >= maxQueue }

// room waits until the queue is not full; false: the context or the queue has ended.
func (q *queue) room(ctx context.Context) bool {
	return q.wait(ctx, func() bool { return len(q.items) < maxQueue })
}

// tail returns the number of the latest.
func (q *queue) tail() uint64 {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.seq
}

// settled waits until all up to a number are.
func (q *queue) settled(ctx context.Context, seq uint64) bool {
	return q.wait(ctx, func() bool {
		for _, it := range q.items {
			if it.seq <= seq {
				return false
			}
		}
		return true
	})
}

// wait waits for a condition, which is looked at under the lock.
func (q *queue) wait(ctx context.Context, ok func() bool) bool {
	for {
		q.mu.Lock()
		now, changed := ok(), q.changed
		q.mu.Unlock()
		if now {
			return true
		}
		select {
		case <-changed:
		case <-q.closed:
			return false
		case <-ctx.Done():
			return false
		}
	}
}

// waitFor waits for all that have one of these causes, also those of an earlier request,
// and returns how many are left. Those that wait for another try have it now.
func (q *queue) waitFor(ctx context.Context, causes map[string]bool) (left int) {
	q.mu.Lock()
	var all []*item
	for _, it := range q.items {
		if causes[it.cause] {
			all = append(all, it)
		}
	}
	q.mu.Unlock()
	for _, it := range all {
		q.work.Add(it.dx.Name)
	}
	for i, it := range all {
		select {
		case <-it.done:
		case <-q.closed:
			return len(all) - i
		case <-ctx.Done():
			return len(all) - i
		}
	}
	return 0
}
