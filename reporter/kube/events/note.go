package events

import (
	"time"

	"github.com/kernosis/kernosis/reporter/kube/conditions"
)

// note records an answer. It returns the kernel's time of a series whose Event the API server now
// has for the first time.
func (k *Sink) note(w *write, err error, now time.Time) (fault time.Time) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.change = true
	s, a := w.s, read(err)
	s.sending = false
	k.stats.Requests[outcomeOf(w, a, err)]++
	if a != away {
		s.fails = 0
		logged := k.out.logged
		if lasted, was := k.out.over(now); was && logged {
			k.cfg.Log.Info("API server accepts Events again", "away", lasted.Round(time.Millisecond))
		}
	}
	if a == done {
		s.tries = 0
		return k.took(w, now)
	}
	switch {
	case a == exists:
		s.Created = true // with the count of an earlier process: the next request sends the present count
		s.contradicted(now)
	case a == gone && w.patch:
		s.Created = false // it has expired: it is created again, with the total
		s.contradicted(now)
	case a == noNamespace && s.Pod != "":
		k.lost(s, AstrayNamespace, err)
	case a == invalid:
		k.lost(s, AstrayInvalid, err)
	case a == away:
		k.away(s, err, now)
	default:
		s.tries++
		s.due = now.Add(max(backoff(s.tries, lastRefused), min(wished(err), lastRefused)))
		if s.tries == refusalsReported {
			k.cfg.Log.Warn("Event refused; retrying", "rule", s.Rule, "namespace", w.event.Namespace, "name", w.event.Name, "error", err)
		}
	}
	return time.Time{}
}

// away records that a request got no answer or an error of the server. It may be for this Event
// alone, for example because a webhook for its namespace is down or the namespace has a rate limit:
// then others are sent meanwhile.
func (k *Sink) away(s *series, err error, now time.Time) {
	k.out.failed(now, wished(err))
	if !k.out.logged && s.fails == 0 { // otherwise it would be logged after each Event that is accepted
		k.out.logged = true
		k.cfg.Log.Warn("API server does not accept Events; keeping them", "error", err)
	}
	switch conditions.OutcomeOf(err) {
	case conditions.ServerError, conditions.TimedOut, conditions.Throttled:
		s.fails++
		s.due = now.Add(backoff(s.fails, lastFailed))
	}
}

// refusalsReported is the number of refusals in a row after which they are logged: one or two are
// a conflict.
const refusalsReported = 3

// contradicted records that the API server unexpectedly has, or does not have, the Event. That
// takes one more request, at once; a server that keeps contradicting itself gets it later.
func (s *series) contradicted(now time.Time) {
	if s.tries++; s.tries >= refusalsReported {
		s.due = now.Add(backoff(s.tries, lastRefused))
	}
}

// took records that the API server has what was sent.
func (k *Sink) took(w *write, now time.Time) (fault time.Time) {
	s := w.s
	k.stats.LastAcked = now
	s.Acked, s.AckedUnreported = w.count, w.unreported
	if !s.dirty() {
		s.Event = nil
	}
	s.due = now.Add(s.every)
	if w.patch {
		s.every = min(2*s.every, k.cfg.PatchMost)
	}
	s.Created = true
	fault, s.kernel = s.kernel, time.Time{}
	return fault
}

func (k *Sink) lost(s *series, why string, err error) {
	k.table.lose(s, why)
	if why == AstrayInvalid {
		k.cfg.Log.Error("Event will never be accepted", "rule", s.Rule, "pod", s.Pod, "error", err)
	} else {
		k.cfg.Log.Info("Event reported only on the Node: its namespace is terminating", "rule", s.Rule, "pod", s.Pod)
	}
}
