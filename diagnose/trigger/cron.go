package trigger

import (
	"fmt"
	"time"

	"github.com/kernosis/kernosis/diagnose/api/v1alpha1"
)

// setBack is how far the clock may be behind the latest scheduled time. If it is further behind, it
// was set back, and schedules continue from the new time.
const setBack = time.Hour

// Tick returns the Diagnoses wanted because of schedules. Of missed times only the latest is made
// up for. Schedules without a time zone use that of now. Cooldown does not apply, because a
// schedule itself says how often.
func (e *Engine) Tick(known Known, now time.Time) []*v1alpha1.Diagnosis {
	now = now.Round(0)
	var wanted []*v1alpha1.Diagnosis
	for _, m := range e.matchers {
		if m.cron == nil {
			continue
		}
		at, due := m.cron.latest(e.scheduled(m, now), now)
		if !due {
			continue
		}
		at = at.UTC()
		st, before := e.triggers[m.name], len(wanted)
		st.Scheduled = at
		e.changes++
		wanted = e.decide(wanted, &occurrence{
			matcher: m, subject: "schedule", episode: at, about: "schedule",
			cause: fmt.Sprintf("schedule %s at %s", m.cron.text, at.Format(time.RFC3339)),
		}, known, now)
		if len(wanted) > before {
			st.Ran = at
		}
	}
	return wanted
}

// NextTick returns when to call Tick next; false: there is no schedule.
func (e *Engine) NextTick(now time.Time) (next time.Time, ok bool) {
	now = now.Round(0)
	for _, m := range e.matchers {
		if m.cron == nil {
			continue
		}
		base := e.scheduled(m, now)
		at := m.cron.next(base, now)
		if _, due := m.cron.latest(base, now); due {
			at = now
		}
		if !at.IsZero() && (!ok || at.Before(next)) {
			next, ok = at, true
		}
	}
	return next, ok
}

// scheduled returns the time up to which a schedule was handled. A new schedule begins when its
// Trigger was created; a changed one begins now.
func (e *Engine) scheduled(m *Matcher, now time.Time) time.Time {
	st := e.triggers[m.name]
	if st.Schedule != m.cron.text {
		base := m.lastScheduled
		switch {
		case st.Schedule != "", base.IsZero() && m.created.IsZero():
			base = now
		case base.Before(m.created):
			base = m.created
		}
		st.Schedule, st.Scheduled = m.cron.text, base.Round(0).UTC()
		e.changes++
	}
	if m.lastScheduled.After(st.Scheduled) { // by another controller
		st.Scheduled = m.lastScheduled.Round(0).UTC()
	}
	if st.Scheduled.Sub(now) > setBack {
		st.Scheduled = now.UTC()
	}
	return st.Scheduled
}
