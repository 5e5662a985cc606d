package trigger

import (
	"errors"
	"fmt"
	"slices"
	"sort"
	"strings"
	"time"
	_ "time/tzdata" // what a schedule means does not depend on the image that the controller is in
	"unicode"

	"github.com/robfig/cron/v3"

	"github.com/kernosis/kernosis/diagnose/api/v1alpha1"
)

// schedule is the parsed schedule of a cronTemplate.
type schedule struct {
	text  string
	times cron.Schedule
	every time.Duration // of @every; otherwise 0
}

// parseSchedule parses five fields or a descriptor, in cron's syntax.
func parseSchedule(text string) (*schedule, error) {
	fields := strings.Fields(text)
	if len(fields) == 0 {
		return nil, errors.New("is empty")
	}
	if strings.ContainsFunc(text, func(r rune) bool { return r != ' ' && unicode.IsSpace(r) }) {
		return nil, errors.New("has white space other than blanks")
	}
	// The parser panics for a time zone that is not followed by a blank.
	if zone := strings.HasPrefix(text, "TZ=") || strings.HasPrefix(text, "CRON_TZ="); zone && len(fields) == 1 {
		return nil, errors.New("has a time zone but no times")
	}
	times, err := cron.ParseStandard(text)
	if err != nil {
		return nil, nameField(text, err)
	}
	s := &schedule{text: text, times: times}
	if c, ok := times.(cron.ConstantDelaySchedule); ok {
		// The parser rounds anything below a second up to one.
		if d, err := time.ParseDuration(fields[len(fields)-1]); err != nil || d < time.Second {
			return nil, errors.New("@every needs at least 1s")
		}
		s.every = c.Delay
	}
	if s.times.Next(reference()).IsZero() {
		return nil, errors.New("never occurs")
	}
	return s, nil
}

// reference is the time from which schedules are evaluated for checks: the beginning of a leap
// year.
func reference() time.Time { return time.Date(2024, 1, 1, 0, 0, 0, 0, time.UTC) }

// nameField adds to an error which of the five fields it is about, because the parser doesn't.
func nameField(text string, err error) error {
	fields := strings.Fields(text)
	if strings.HasPrefix(fields[0], "TZ=") || strings.HasPrefix(fields[0], "CRON_TZ=") {
		fields = fields[1:]
	}
	if len(fields) != 5 {
		return err
	}
	for i, name := range []string{"minute", "hour", "day of the month", "month", "day of the week"} {
		alone := slices.Repeat([]string{"*"}, 5)
		alone[i] = fields[i]
		if _, err := cron.ParseStandard(strings.Join(alone, " ")); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
	}
	return err
}

// next returns the first time after now; zero: there is none in five years. Fields without a time
// zone use that of now.
func (s *schedule) next(base, now time.Time) time.Time {
	if s.every > 0 {
		base = base.Truncate(time.Second)
		return base.Add(max(now.Sub(base), 0).Truncate(s.every) + s.every)
	}
	return s.times.Next(now)
}

// latest returns the last scheduled time after base up to now: only the latest of several missed
// times is caught up.
func (s *schedule) latest(base, now time.Time) (time.Time, bool) {
	if !base.Before(now) {
		return time.Time{}, false
	}
	if s.every > 0 {
		base = base.Truncate(time.Second)
		since := now.Sub(base).Truncate(s.every)
		return base.Add(since), since > 0
	}
	base = base.In(now.Location())
	first := s.times.Next(base)
	if first.IsZero() || first.After(now) {
		return time.Time{}, false
	}
	// A minutely schedule may have missed a million times. Binary search: the last time is the
	// first second after which nothing follows until now.
	n := sort.Search(int(now.Sub(first)/time.Second), func(i int) bool {
		next := s.times.Next(first.Add(time.Duration(i) * time.Second))
		return next.IsZero() || next.After(now)
	})
	return first.Add(time.Duration(n) * time.Second), true
}

// denser reports whether more than count times fall within a duration.
func (s *schedule) denser(count int, within time.Duration) bool {
	first := s.times.Next(reference())
	last := first
	for range count {
		if last = s.times.Next(last); last.IsZero() || last.Sub(first) >= within {
			return false
		}
	}
	return true
}

// setBack is how far the clock may be behind the latest scheduled time. If it is further behind, it
// was set back, and schedules continue from the new time.
const setBack = time.Hour

// Tick returns the Diagnoses wanted because of schedules. It catches up only the latest of several
// missed times. Schedules without a time zone use that of now. Cooldown does not apply, because a
// schedule defines its own frequency.
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
