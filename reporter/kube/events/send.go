package events

import (
	"context"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// podLook is how often a pod that is not known yet is looked up.
const podLook = 250 * time.Millisecond

type write struct {
	s                 *series
	event             *corev1.Event
	patch             bool
	facts             bool // of the latest occurrence, which the API server does not have
	count, unreported uint64
}

// send sends requests, one at a time and in order, until ctx ends.
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

// flushFor bounds the time that Run takes after its ctx has ended to send pending counts.
const flushFor = 3 * time.Second

// flush sends pending counts before they are due, within flushFor and with one try for each request.
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

// forever is the wait if nothing is due.
const forever = time.Hour

// next returns the next request: new Events first, then the series that began first; in an outage,
// the series with the fewest failures before that. If there is none, it returns how long to wait.
// With flush, it also returns requests that are not due yet.
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
		if !s.dirty() || flush && (s.tries >= refusalsReported || s.fails > 0) {
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
		switch {
		case best == nil, k.out.fails > 0 && s.fails < best.fails:
			best = s
		case k.out.fails > 0 && s.fails > best.fails:
		case best.Created && !s.Created:
			best = s
		}
	}
	if best == nil {
		return nil, wait
	}
	s := best
	if s.every == 0 || now.Sub(s.due) > k.cfg.PatchMost {
		s.every = k.cfg.PatchEvery // there was a quiet time in between
	}
	s.sending = true
	return &write{
		s: s, event: s.render(k.cfg.Node, k.cfg.Namespace, k.cfg.Pods.Pod),
		patch: s.Created, facts: s.Acked != s.Count, count: s.Count, unreported: s.Unreported,
	}, 0
}

// locate finds the pod of a series. If the pod stays unknown, locate gives up the series after a
// limit. The limit is longer if some pods that existed at the first look-up are still unknown. Time
// during which the API server is unavailable does not count.
func (k *Sink) locate(s *series, now time.Time) bool {
	if p, ok := k.cfg.Pods.Pod(s.Pod); ok {
		s.Where = &p
		return true
	}
	switch {
	case s.asked.IsZero():
		s.asked = now
	case s.asked.Before(k.out.ended):
		s.asked = k.out.ended
	}
	limit := k.cfg.PodWait
	if !k.cfg.Pods.Known(s.asked) {
		limit *= 12
	}
	s.due = now.Add(podLook)
	if k.out.fails == 0 && now.Sub(s.asked) >= limit {
		k.table.lose(s, AstrayPod)
		k.change = true
	}
	return false
}

func (k *Sink) request(run context.Context, w *write) {
	ctx, cancel := context.WithTimeout(run, k.cfg.Timeout)
	defer cancel()
	var err error
	if w.patch {
		k.cfg.Fault(StagePatching)
		var data []byte
		if data, err = patch(w.event, w.facts); err == nil {
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
		w.s.sending = false // the sink ends: this says nothing about the API server
		k.mu.Unlock()
		return
	}
	if fault := k.note(w, err, time.Now()); !fault.IsZero() {
		k.cfg.Acked(fault)
	}
	k.cfg.Fault(StageAcked)
}
