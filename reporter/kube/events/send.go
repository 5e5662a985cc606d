package events

import (
	"context"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// podLook is how often a pod that is not known yet is looked for.
const podLook = 250 * time.Millisecond

// write is one request to be made.
type write struct {
	s                 *series
	event             *corev1.Event
	patch             bool
	count, unreported uint64
}

// send makes requests, one at a time and in order, until ctx ends.
func (k *Sink) send(ctx context.Context) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for ctx.Err() == nil {
		w, wait := k.next(time.Now(), false)
		if w != nil {
			k.request(ctx, w)
			continue
		}
		timer.Reset(wait)
		select {
		case <-ctx.Done():
		case <-k.poke:
		case <-timer.C:
		}
	}
}

// flushFor bounds what Run does after its end, for counts that are not sent yet.
const flushFor = 3 * time.Second

// flush sends what is not sent yet without waiting for its time, as far as it is
// taken at the first try and within flushFor.
func (k *Sink) flush(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, flushFor)
	defer cancel()
	for ctx.Err() == nil {
		k.mu.Lock()
		away := k.out.fails > 0
		k.mu.Unlock()
		if away {
			return
		}
		w, _ := k.next(time.Now(), true)
		if w == nil {
			return
		}
		k.request(ctx, w)
	}
}

// forever is when nothing is due.
const forever = time.Hour

// next chooses what is to be sent now: new Events first, then the series that began
// first. Without one it returns how long to wait. flush takes what is not due yet.
func (k *Sink) next(now time.Time, flush bool) (*write, time.Duration) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if !k.caught {
		return nil, forever
	}
	if wait := k.out.until.Sub(now); wait > 0 && !flush {
		return nil, wait
	}
	var best *series
	wait := forever
	for _, s := range k.table.list {
		if !s.dirty() || flush && s.tries >= refusalsReported {
			continue
		}
		if early := s.due.Sub(now); early > 0 && !flush {
			wait = min(wait, early)
			continue
		}
		if s.Pod != "" && s.Where == nil && !k.locate(s, now) {
			wait = min(wait, podLook)
			continue
		}
		if best == nil || best.Created && !s.Created {
			best = s
		}
	}
	if best == nil {
		return nil, wait
	}
	s := best
	if s.every == 0 || now.Sub(s.due) > k.cfg.PatchMost {
		s.every = k.cfg.PatchEvery // it was quiet in between
	}
	s.sending = true
	return &write{s: s, event: s.render(k.cfg.Node, k.cfg.Namespace, k.cfg.Pods.Pod), patch: s.Created, count: s.Count, unreported: s.Unreported}, 0
}

// locate finds the pod of a series. Pods that stay unknown are given up; they have
// longer while nobody knows which pods there were when they were asked for, and no time runs while the API server is away.
func (k *Sink) locate(s *series, now time.Time) bool {
	if p, ok := k.cfg.Pods.Pod(s.Pod); ok {
		s.Where = &p
		return true
	}
	if s.asked.Before(k.out.ended) {
		s.asked = k.out.ended
	}
	if s.asked.IsZero() {
		s.asked = now
	}
	limit := k.cfg.PodWait
	if !k.cfg.Pods.Known(s.asked) {
		limit *= 12
	}
	s.due = now.Add(podLook)
	if now.Sub(s.asked) >= limit {
		k.table.lose(s, AstrayPod)
		k.change = true
	}
	return false
}

// request makes a request and notes the answer.
func (k *Sink) request(run context.Context, w *write) {
	ctx, cancel := context.WithTimeout(run, k.cfg.Timeout)
	defer cancel()
	var err error
	if w.patch {
		k.cfg.Fault(StagePatching)
		var data []byte
		if data, err = patch(w.event); err == nil {
			err = k.api.patch(ctx, w.event.Namespace, w.event.Name, data)
		}
		k.cfg.Fault(StagePatched)
	} else {
		k.cfg.Fault(StageCreating)
		err = k.api.create(ctx, w.event)
		k.cfg.Fault(StageCreated)
	}
	if err != nil && run.Err() != nil {
		k.mu.Lock()
		w.s.sending = false // the sink ends: that says nothing about the API server
		k.mu.Unlock()
		return
	}
	if fault := k.note(w, err, time.Now()); !fault.IsZero() {
		k.cfg.Acked(fault)
	}
	k.cfg.Fault(StageAcked)
}
