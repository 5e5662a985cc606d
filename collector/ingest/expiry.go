package ingest

import (
	"context"
	"fmt"
	"time"

	"github.com/kernosis/kernosis/collector/event"
	"github.com/kernosis/kernosis/collector/ingest/client"
)

// Run accepts reports until ctx ends, then it returns nil. Conditions that are not reported again in
// time become Unknown. Events go to emit, one at a time; each is valid during the call. Reports that an
// earlier run of the agent received less than a Heartbeat ago stay valid for the rest of that time.
func (in *Intake) Run(ctx context.Context, emit func(*event.Event)) error {
	in.start(emit)
	defer func() {
		in.mu.Lock()
		in.emit = nil
		in.mu.Unlock()
	}()
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-in.wake:
		case <-timer.C:
		}
		timer.Stop()
		if next := in.expire(time.Now()); !next.IsZero() {
			timer.Reset(time.Until(next))
		}
	}
}

func (in *Intake) start(emit func(*event.Event)) {
	in.mu.Lock()
	defer in.mu.Unlock()
	in.emit = emit
	now := time.Now()
	for _, s := range in.order {
		for _, st := range s.conditions {
			st.heard, st.until = now, now.Add(s.Heartbeat)
		}
		in.keep(s, now)
	}
}

// keep reports the sources that were up before the restart as up for the rest of their time.
func (in *Intake) keep(s *source, now time.Time) {
	s.heard = now
	left := func(check string) (until time.Time) {
		if in.earlier == nil {
			return until
		}
		if ago, ok := in.earlier(event.NamedStem(event.CheckStem, check)); ok && ago < s.Heartbeat {
			until = now.Add(s.Heartbeat - ago)
		}
		return until
	}
	for _, t := range s.Conditions {
		st, name := s.conditions[t], CheckName(s.Name, t)
		if st.kept = left(name); !st.kept.IsZero() {
			reportSight(in.emit, name, "")
		}
	}
	if s.until = left(EventsName(s.Name, client.Warn)); !s.until.IsZero() {
		in.sight(s, "")
	}
}

// expire reports everything that was not reported in time, in the order of the configuration, and
// returns when to check next; zero: after the next report.
func (in *Intake) expire(now time.Time) (next time.Time) {
	in.mu.Lock()
	defer in.mu.Unlock()
	over := func(until time.Time) bool {
		if until.After(now) && (next.IsZero() || until.Before(next)) {
			next = until
		}
		return !until.IsZero() && !until.After(now)
	}
	for _, s := range in.order {
		expired := 0
		for _, t := range s.Conditions {
			st := s.conditions[t]
			if over(st.kept) {
				st.kept = time.Time{}
				reportSight(in.emit, CheckName(s.Name, t), s.unheard(" it", st.heard, true))
			}
			if over(st.until) {
				expired++
				in.expired(s, t, st, now)
			}
		}
		if over(s.until) {
			s.until = time.Time{}
			in.sight(s, s.unheard("", s.heard, false))
		}
		if expired > 0 {
			in.counts.expired.WithLabelValues(s.Name).Add(float64(expired))
			in.log.Warn("problem daemon stopped reporting", "source", s.Name, "conditions", expired)
		}
	}
	return next
}

func (in *Intake) expired(s *source, conditionType string, st *condition, now time.Time) {
	never := st.said.Status == ""
	st.until = time.Time{}
	if st.said.Status == client.Unknown {
		return // the daemon itself reported Unknown
	}
	st.said = client.Condition{Type: conditionType, Status: client.Unknown, Transition: now, Message: s.unheard(" it", st.heard, never)}
	in.reportCondition(s, &st.said, in.emit)
}

// unheard returns a message that says since when a daemon has not reported something. The message
// contains the start time, because an increasing duration would cause a write with each report.
func (s *source) unheard(what string, since time.Time, never bool) string {
	began := ""
	if never {
		began = "the agent started at "
	}
	return fmt.Sprintf("%s has not reported%s since %s%s", s.Name, what, began, since.UTC().Format(time.RFC3339))
}
