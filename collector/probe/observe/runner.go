package observe

import (
	"context"
	"time"

	"golang.org/x/sync/errgroup"
	"golang.org/x/time/rate"

	"github.com/kernosis/kernosis/collector/event"
	"github.com/kernosis/kernosis/collector/probe"
	"github.com/kernosis/kernosis/collector/probe/vitals"
)

const (
	// lookEvery is how often kubelet's process and held connections are checked.
	lookEvery = time.Second
	// gather is how long changes of pods are collected before they are applied: an agent that
	// starts receives a hundred pods at once.
	gather = 50 * time.Millisecond
	// askFor is the timeout of one request to kubelet or the API server.
	askFor = 3 * time.Second
)

// runner is the part of an Observer that belongs to Run's goroutine.
type runner struct {
	*Observer
	kubelet kubelets
	state   map[string]string
	stale   bool          // the targets in use are not those of the index
	words   *rate.Limiter // limits requests to the API server
}

func (r *runner) run(ctx context.Context) error {
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { return r.cfg.Vitals.Run(ctx) })
	g.Go(func() error {
		r.follow(ctx)
		return nil
	})
	return g.Wait()
}

func (r *runner) follow(ctx context.Context) {
	r.state = map[string]string{}
	r.stale = true
	r.mu.Lock()
	r.pollAt = time.Now()
	r.mu.Unlock()
	timer := time.NewTimer(0)
	defer timer.Stop()
	nextLook := time.Time{}
	changed := true
	for {
		select {
		case <-ctx.Done():
			return
		case <-r.wake:
			changed = r.pods.Swap(false) || changed
		case <-timer.C:
		}
		now := time.Now()
		if changed && r.refresh(now) {
			nextLook = now
			r.kubelet.hurry(now)
		}
		changed = false
		if r.idle() {
			// There is nothing to observe until there are pods with probes.
			timer.Stop()
			nextLook = now
			if r.state[PartSockets] != "" {
				r.logState(PartSockets, nil)
			}
			continue
		}
		if !now.Before(nextLook) {
			moved, err := r.kubelet.look(now)
			r.stale = r.stale || moved
			if r.stale {
				r.watch()
			}
			r.see(err)
			nextLook = now.Add(lookEvery)
			if err != nil {
				nextLook = later(nextLook, r.kubelet.next)
			}
			r.overdue(now)
		}
		r.poll(ctx, now)
		r.confirm(ctx, time.Now())
		timer.Reset(max(time.Until(r.next(nextLook)), gather))
	}
}

// idle reports whether there is nothing to watch and nothing is held.
func (r *runner) idle() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.index.courses) == 0 && len(r.held) == 0
}

// next returns when the next action is due. It also releases what has waited long enough.
func (r *runner) next(look time.Time) time.Time {
	r.mu.Lock()
	defer r.mu.Unlock()
	now := time.Now()
	r.release(now, false)
	next := look
	sooner := func(at time.Time) {
		if at.Before(next) {
			next = at
		}
	}
	for _, one := range r.index.courses {
		if !one.missing.IsZero() {
			sooner(one.confirmAt())
		}
		if one.failing {
			sooner(now.Add(lookEvery)) // its success may be overdue
		}
	}
	if r.cfg.Kubelet != nil {
		sooner(r.pollAt)
		sooner(later(r.polled.Add(r.pace(now)), now.Add(gather)))
	}
	for _, h := range r.held {
		sooner(h.until)
	}
	return next
}

// logState reports a part's state if it has changed.
func (r *runner) logState(part string, err error) {
	text := "up"
	if err != nil {
		text = err.Error()
	}
	if r.state[part] != text {
		r.state[part] = text
		r.cfg.State(part, err)
	}
}

// see reports the state of the part that watches kubelet's connections.
func (r *runner) see(err error) {
	if err != nil || !r.stale {
		r.logState(PartSockets, err)
	}
}

// refresh applies the Manager's pods. It reports whether the set of probes has changed.
func (r *runner) refresh(now time.Time) bool {
	pods := r.cfg.Manager.Pods()
	r.mu.Lock()
	next := newIndex(pods, r.index.courses)
	others := len(next.courses) != len(r.index.courses)
	for key := range next.courses {
		others = others || r.index.courses[key] == nil
	}
	r.before, r.upTo, r.index = r.index, now.Add(goneFor), next
	r.mu.Unlock()
	r.watch()
	return others
}

// watch sets the connections and containers to be watched.
func (r *runner) watch() {
	r.mu.Lock()
	x := r.index
	from := r.kubelet.namespaces()
	targets := x.targets(from)
	r.mu.Unlock()
	pid := r.kubelet.pid()
	if len(x.courses) == 0 {
		pid = 0
	}
	r.cfg.Vitals.Set(containers(x), pid)
	if !r.all.Load() || len(from) == 0 && len(x.places) > 0 {
		r.stale = true // targets or namespaces are not known yet: keep the old targets
		return
	}
	if err := r.cfg.Sockets.Set(targets); err != nil {
		r.stale = true
		r.logState(PartSockets, err)
		return
	}
	r.stale = false
}

// containers returns the containers that have probes.
func containers(x *index) []vitals.Container {
	seen := map[string]bool{}
	var out []vitals.Container
	for _, c := range x.courses {
		if id := bareID(c.container.ID); id != "" && !seen[id] {
			seen[id] = true
			out = append(out, vitals.Container{ID: id, Limited: c.container.CPULimit > 0, Running: c.container.State == probe.Running})
		}
	}
	return out
}

// overdue reports successes of failing probes that no event has reported.
func (r *runner) overdue(now time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, one := range r.index.courses {
		if one.failing && one.at.IsValid() && !one.started.IsZero() {
			r.between(one, now.Add(-one.spec.Timeout))
		}
	}
}

// poll reads kubelet's counts if that is due.
func (r *runner) poll(ctx context.Context, now time.Time) {
	r.mu.Lock()
	due := false
	if r.cfg.Kubelet != nil && len(r.index.courses) > 0 {
		wanted := !now.Before(r.pollAt) || !now.Before(r.polled.Add(r.pace(now)))
		soonest := r.soonest(now, r.waiting()...)
		if due = wanted && !now.Before(soonest); wanted && !due {
			r.pollAt = soonest
		}
	}
	if due {
		if now.Before(r.polled.Add(r.cfg.PollAtMost)) {
			r.fast.AllowN(now, 1)
		}
		r.polled, r.pollAt = now, now.Add(r.cfg.Poll)
		r.stats.Polls++
	}
	r.mu.Unlock()
	if !due {
		return
	}
	asked, cancel := context.WithTimeout(ctx, askFor)
	results, err := r.cfg.Kubelet.Results(asked)
	cancel()
	if ctx.Err() != nil {
		return
	}
	r.logState(PartResults, err)
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.polling = err == nil; err != nil {
		r.stats.PollErrors++
		r.release(now, false)
		return
	}
	r.compare(results, now)
}

// waiting returns the probes of connections that are held.
func (o *Observer) waiting() []*course {
	var out []*course
	for _, h := range o.held {
		out = append(out, h.of[h.guess])
	}
	return out
}

// compare updates the probes from kubelet's counts.
func (o *Observer) compare(results map[probe.Key]Results, now time.Time) {
	fresh := map[*course]Results{} // since the last counts
	o.polledBefore, o.answered = later(o.answered, now.Add(-2*o.cfg.Poll)), now
	for key, one := range o.index.courses {
		// A probe that kubelet has not made yet has no counts.
		got := results[key]
		switch {
		case !one.known && !o.startedWith(key, results):
			one.known, one.first, one.last = true, Results{}, Results{}
		case !one.known, got.Failed < one.last.Failed || got.Succeeded < one.last.Succeeded:
			// These are the first counts, or kubelet has restarted.
			one.known, one.first, one.last, one.accounted = true, got, got, 0
			one.missing = time.Time{}
			continue
		}
		fresh[one] = Results{got.Failed - one.last.Failed, got.Succeeded - one.last.Succeeded}
		one.last = got
		one.succeededNow = fresh[one].Succeeded > 0
	}
	o.everPolled = true
	o.release(now, true)
	for one, d := range fresh {
		one.succeededNow = false
		counted := one.last.Failed - one.first.Failed
		switch {
		case one.excess() > 0:
			if one.missing.IsZero() || one.accounted >= one.due {
				one.due = counted // what it had counted before has been found since
				one.belong(now, o.polledBefore)
			}
		case one.accounted > counted && now.Sub(one.ended) > holdFor:
			// kubelet did not count a reported failure.
			o.stats.Uncounted += one.accounted - counted
			one.accounted, one.missing = counted, time.Time{}
		default:
			one.missing = time.Time{}
		}
		// Successes since the previous counts may be older than the failure.
		since := !o.polledBefore.Before(one.ended)
		if d.Succeeded > 0 && since && one.failing && one.missing.IsZero() && (d.Failed == 0 || now.Sub(one.ended) > one.spec.Period+one.spec.Timeout) {
			if o.cfg.Manager.Observe(one.key, probe.Outcome{At: now, OK: true, Detail: event.ProbeOutcome{Feed: event.ProbeObserved}}) {
				one.failing, one.run, one.kept = false, 0, nil
			}
		}
	}
}

// startedWith reports whether the probe's counts may be older than this Observer, because they
// are in the first counts that it reads.
func (o *Observer) startedWith(key probe.Key, results map[probe.Key]Results) bool {
	_, there := results[key]
	return there && !o.everPolled
}
