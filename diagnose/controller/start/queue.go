package start

import (
	"context"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/util/workqueue"

	"github.com/kernosis/kernosis/diagnose/api/v1alpha1"
	"github.com/kernosis/kernosis/diagnose/trigger"
)

// item is a Diagnosis that is to be created.
type item struct {
	dx    *v1alpha1.Diagnosis
	seq   uint64
	cause string
	since time.Time
	done  chan struct{} // closed when it is created or dropped
}

// queue has the Diagnoses to create, in the order in which they were wanted, and tracks which are
// settled. Failed ones are retried after a pause. Several goroutines may use it.
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

// add queues Diagnoses. One that is already queued is skipped.
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

// next blocks until there is a Diagnosis to create now; nil: the queue is closed.
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

// again schedules a retry of an item from next.
func (q *queue) again(it *item) {
	q.work.AddRateLimited(it.dx.Name)
	q.work.Done(it.dx.Name)
}

// settle removes an item from next.
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

// close ends next and all waiting.
func (q *queue) close() {
	q.work.ShutDown()
	close(q.closed)
}

func (q *queue) length() int {
	q.mu.Lock()
	defer q.mu.Unlock()
	return len(q.items)
}

// room blocks until the queue is not full; false: the context has ended or the queue is closed.
func (q *queue) room(ctx context.Context) bool {
	return q.wait(ctx, func() bool { return len(q.items) < maxQueue })
}

// tail returns the sequence number of the latest item.
func (q *queue) tail() uint64 {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.seq
}

// settled blocks until all items up to a sequence number are settled.
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

// wait blocks until a condition holds. The condition is evaluated under the lock.
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

// waitFor waits for all items with one of these causes, including those of an earlier request, and
// returns how many are left. Items that wait for a retry are retried now.
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

// Outcomes of a wanted Diagnosis.
const (
	outcomeMade    = "made"
	outcomeExists  = "exists" // created before: by an earlier leader, or before a restart
	outcomeRefused = "refused"
	outcomeGivenUp = "given_up"
)

// makeAll creates Diagnoses until the queue is closed.
func (p *Part) makeAll(ctx context.Context) {
	for {
		it := p.queue.next()
		if it == nil {
			return
		}
		outcome, err := p.make(ctx, it)
		name := it.dx.Labels[v1alpha1.LabelTrigger]
		switch {
		case outcome == "" && ctx.Err() != nil:
			p.queue.again(it) // not settled, so it does not count as made
			continue
		case outcome == "":
			p.counts.retries.Inc()
			p.cfg.Log.Debug("diagnosis not created yet", "trigger", name, "diagnosis", it.dx.Name, "error", err)
			p.queue.again(it)
			continue
		case err != nil:
			p.cfg.Log.Error("can't create the diagnosis; dropped it", "trigger", name, "diagnosis", it.dx.Name, "outcome", outcome, "error", err)
		default:
			p.cfg.Log.Info("diagnosis created", "trigger", name, "diagnosis", it.dx.Name, "node", it.dx.Spec.NodeName, "outcome", outcome)
		}
		p.counts.diagnoses.WithLabelValues(name, outcome).Inc()
		p.queue.settle(it)
	}
}

// make tries to create one Diagnosis. An empty outcome means that it must be retried.
func (p *Part) make(ctx context.Context, it *item) (outcome string, err error) {
	ctx, cancel := context.WithTimeout(ctx, makeWithin)
	defer cancel()
	err = p.objects.Create(ctx, it.dx.DeepCopy())
	switch {
	case err == nil:
		return outcomeMade, nil
	case apierrors.IsAlreadyExists(err):
		return outcomeExists, nil
	case final(err):
		return outcomeRefused, err
	case p.cfg.Now().Sub(it.since) > giveUpAfter:
		return outcomeGivenUp, err
	}
	return "", err
}

// final reports whether the API server rejected the object itself. A missing right or CRD is not
// final: somebody may fix it.
func final(err error) bool {
	return apierrors.IsInvalid(err) || apierrors.IsBadRequest(err) || apierrors.IsRequestEntityTooLargeError(err) ||
		apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause)
}

// tick creates the Diagnoses of schedules.
func (p *Part) tick(ctx context.Context) {
	for {
		now := p.cfg.Now()
		nap := longestNap
		p.look(func(e *trigger.Engine) {
			if next, ok := e.NextTick(now); ok {
				nap = max(min(nap, next.Sub(now)), 0)
			}
		})
		select {
		case <-time.After(nap):
		case <-p.changed:
		case <-ctx.Done():
			return
		}
		if !p.queue.room(ctx) {
			return
		}
		p.enqueue("cron", func(e *trigger.Engine) []*v1alpha1.Diagnosis { return e.Tick(p.lookups(nil), p.cfg.Now()) })
	}
}
