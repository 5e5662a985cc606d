package observe

import (
	"context"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/kernosis/kernosis/collector/probe"
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

// Run follows the Manager's pods, kubelet's process and its counts until ctx ends.
func (o *Observer) Run(ctx context.Context) error {
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { return o.vitals.run(ctx) })
	g.Go(func() error {
		o.follow(ctx)
		return nil
	})
	return g.Wait()
}

func (o *Observer) follow(ctx context.Context) {
	o.mu.Lock()
	o.pollAt = time.Now()
	o.mu.Unlock()
	timer := time.NewTimer(0)
	defer timer.Stop()
	nextLook := time.Time{}
	changed := true
	for {
		select {
		case <-ctx.Done():
			return
		case <-o.wake:
			changed = o.pods.Swap(false) || changed
		case <-timer.C:
		}
		now := time.Now()
		if changed && o.refresh(now) {
			nextLook = now
			o.kubelet.hurry(now)
		}
		changed = false
		if o.idle() {
			// There is nothing to observe, so nothing is missing, until there are pods with probes.
			timer.Stop()
			nextLook = now
			o.unanswered = nil
			for part := range o.state {
				o.logState(part, nil)
			}
			continue
		}
		if !now.Before(nextLook) {
			moved, err := o.kubelet.look(now)
			o.stale = o.stale || moved
			if o.stale {
				o.watch()
			}
			if err != nil || !o.stale {
				o.logState(PartSockets, err)
			}
			nextLook = now.Add(lookEvery)
			if err != nil {
				nextLook = later(nextLook, o.kubelet.next)
			}
			o.overdue(now)
		}
		o.poll(ctx, now)
		o.confirm(ctx, time.Now())
		o.askAgain(ctx, time.Now())
		timer.Reset(max(time.Until(o.next(nextLook)), gather))
	}
}

// idle reports whether there is nothing to watch and nothing is held.
func (o *Observer) idle() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return len(o.index.courses) == 0 && len(o.held) == 0
}

// next returns when the next action is due. It also releases what has waited long enough.
func (o *Observer) next(look time.Time) time.Time {
	o.mu.Lock()
	defer o.mu.Unlock()
	now := time.Now()
	o.release(now, false)
	next := look
	sooner := func(at time.Time) {
		if at.Before(next) {
			next = at
		}
	}
	for _, one := range o.index.courses {
		if !one.missing.IsZero() {
			sooner(one.confirmAt())
		}
		if one.failing {
			sooner(now.Add(lookEvery)) // its success may be overdue
		}
	}
	if o.cfg.Kubelet != nil && o.listed {
		sooner(o.pollAt)
		sooner(later(o.polled.Add(o.pace(now)), now.Add(gather)))
	}
	for _, h := range o.held {
		sooner(h.until)
	}
	return next
}

// logState reports a part's state if it has changed.
func (o *Observer) logState(part string, err error) {
	text := "up"
	if err != nil {
		text = err.Error()
	}
	if o.state[part] != text {
		o.state[part] = text
		o.cfg.State(part, err)
	}
}

// refresh applies the Manager's pods. It reports whether the set of probes has changed.
func (o *Observer) refresh(now time.Time) bool {
	o.listed = o.all.Load() // read before the pods, so that they are all
	pods := o.cfg.Manager.Pods()
	o.mu.Lock()
	next := newIndex(pods, o.index.courses)
	others := len(next.courses) != len(o.index.courses)
	for key := range next.courses {
		others = others || o.index.courses[key] == nil
	}
	o.before, o.upTo, o.index = o.index, now.Add(goneFor), next
	o.mu.Unlock()
	o.watch()
	return others
}

// watch sets the connections and containers to be watched.
func (o *Observer) watch() {
	o.mu.Lock()
	x := o.index
	from := o.kubelet.namespaces()
	targets := x.targets(from)
	o.mu.Unlock()
	pid := o.kubelet.pid()
	if len(x.courses) == 0 {
		pid = 0
	}
	o.vitals.set(containers(x), pid)
	if !o.listed || len(from) == 0 && len(x.places) > 0 {
		o.stale = true // targets or namespaces are not known yet: keep the old targets
		return
	}
	if err := o.cfg.Sockets.Set(targets); err != nil {
		o.stale = true
		o.logState(PartSockets, err)
		return
	}
	o.stale = false
}

// containers returns the containers that have probes.
func containers(x *index) []container {
	seen := map[string]bool{}
	var out []container
	for _, c := range x.courses {
		if id := bareID(c.container.ID); id != "" && !seen[id] {
			seen[id] = true
			out = append(out, container{id: id, limited: c.container.CPULimit > 0, running: c.container.State == probe.Running})
		}
	}
	return out
}

// overdue reports successes of failing probes that no event has reported.
func (o *Observer) overdue(now time.Time) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, one := range o.index.courses {
		if one.failing && one.at.IsValid() && !one.started.IsZero() {
			o.between(one, now.Add(-one.spec.Timeout))
		}
	}
}

// poll reads kubelet's counts if that is due and all pods are known: if a probe is added after the
// first counts, it counts as new, and so do all its failures.
func (o *Observer) poll(ctx context.Context, now time.Time) {
	o.mu.Lock()
	due := false
	if o.cfg.Kubelet != nil && o.listed && len(o.index.courses) > 0 {
		wanted := !now.Before(o.pollAt) || !now.Before(o.polled.Add(o.pace(now)))
		soonest := o.soonest(now, o.waiting()...)
		if due = wanted && !now.Before(soonest); wanted && !due {
			o.pollAt = soonest
		}
	}
	if due {
		if now.Before(o.polled.Add(pollAtMost)) {
			o.fast.AllowN(now, 1)
		}
		o.polled, o.pollAt = now, now.Add(pollEvery)
		o.stats.Polls++
	}
	o.mu.Unlock()
	if !due {
		return
	}
	asked, cancel := context.WithTimeout(ctx, askFor)
	results, err := o.cfg.Kubelet.Results(asked)
	cancel()
	if ctx.Err() != nil {
		return
	}
	o.logState(PartResults, err)
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.polling = err == nil; err != nil {
		o.stats.PollErrors++
		o.release(now, false)
		return
	}
	o.compare(results, now)
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
	o.polledBefore, o.answered = later(o.answered, now.Add(-2*pollEvery)), now
	for key, one := range o.index.courses {
		// A probe that kubelet has not made yet has no counts. Those in the first counts read may be
		// older than this Observer.
		got, there := results[key]
		switch {
		case !one.known && (!there || o.everPolled):
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
			o.succeed(one, now)
		}
	}
}
