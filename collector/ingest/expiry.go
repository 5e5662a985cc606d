package ingest

import (
	"context"
	"fmt"
	"time"

	"github.com/kernosis/kernosis/collector/event"
	"github.com/kernosis/kernosis/collector/ingest/client"
)

// Run takes reports, and makes conditions Unknown that are not reported again in
// time, until ctx ends; then it returns nil. Events go to emit, one at a time; each
// is valid during the call. A condition that the engine remembers from before stays
// for the time its source's Heartbeat gives to report it.
func (in *Intake) Run(ctx context.Context, emit func(*event.Event)) error {
	in.start(emit)
	defer in.stop()
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
	}
}

func (in *Intake) stop() {
	in.mu.Lock()
	defer in.mu.Unlock()
	in.emit = nil
}

// expire reports what has not been reported in time, in the order of the
// configuration, and returns when to look next; zero: when something is reported.
func (in *Intake) expire(now time.Time) (next time.Time) {
	in.mu.Lock()
	defer in.mu.Unlock()
	for _, s := range in.order {
		expired := 0
		for _, t := range s.Conditions {
			st := s.conditions[t]
			switch {
			case st.until.IsZero():
			case st.until.After(now):
				if next.IsZero() || st.until.Before(next) {
					next = st.until
				}
			default:
				expired++
				in.expired(s, t, st, now)
			}
		}
		if expired > 0 {
			in.counts.add(s.Name, func(n *SourceStats) { n.Expired += uint64(expired) })
			in.log.Warn("problem daemon stopped reporting", "source", s.Name, "conditions", expired)
		}
	}
	return next
}

func (in *Intake) expired(s *source, conditionType string, st *condition, now time.Time) {
	never := st.said.Status == ""
	st.until = time.Time{}
	if st.said.Status == client.Unknown {
		return // as it says itself
	}
	// Whole facts: a time that goes on would be a write each time it is reported.
	text := fmt.Sprintf("%s has not reported it since %s", s.Name, st.heard.UTC().Format(time.RFC3339))
	if never {
		text = fmt.Sprintf("%s has not reported it since the agent started at %s", s.Name, st.heard.UTC().Format(time.RFC3339))
	}
	st.said = client.Condition{Type: conditionType, Status: client.Unknown, Transition: now, Message: text}
	in.reportCondition(s, &st.said, in.emit)
}
