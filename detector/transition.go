package detector

import (
	"slices"
	"time"

	"github.com/kernosis/kernosis/collector/event"
	"github.com/kernosis/kernosis/detector/problem"
)

// occur handles an event that matches a rule.
func (e *Engine) occur(r *ruleState, ev *event.Event, at, now event.Moment) {
	if r.awaits() {
		e.heard(r, at, now)
		return
	}
	if e.overBefore(r, ev, at, now) {
		return
	}
	e.group = appendGroup(e.group[:0], r.groupBy, ev)
	en := e.place(r, e.group, now)
	live := en.p.State == problem.Pending || en.p.State == problem.Firing
	if live && en.repeats(r, ev) {
		e.lasting(en, ev, at)
		return
	}
	e.changed = true
	fresh := ev.Occurrences()
	if live {
		e.fold(en)
		// While a level signal lasts it is one occurrence, however often other rules report it.
		var first bool
		if fresh, first = en.countOnce(r, at.Boot, fresh); fresh == 0 || en.Lasting && !r.level {
			en.Lasting = en.Lasting || r.level
			en.enrich(r, ev, at, first)
			return
		}
	}
	if live && repeats(en, ev, at.Boot) {
		en.seen(r.level, at)
		return
	}
	if !live {
		if en.p.State == problem.Resolved {
			r.series.resolved--
		}
		en.begin(r, at)
		e.fold(en)
	}
	en.saw(r, ev, at, fresh)
	if r.Temporary() && now.Boot-at.Boot > sameReporting {
		en.QuietFrom = now.Boot // read late; other sources may report it as late
	}
	own := len(e.out) // index of the problem's own transition, which is emitted first
	switch {
	case en.p.State == problem.Firing:
		if r.Temporary() {
			e.describe(en, ev)
			en.p.SuppressedBy = cause(en)
			en.p.MutedUntil = e.mutedUntil(en)
			e.emit(en)
		} else if reason := reportedReason(ev); reason != "" && reason != en.p.Reason || e.worsened(en) {
			e.describe(en, ev) // a daemon gave another reason, or the severity rose; update the condition
			e.mark(r.series)
		}
		// The deadline moved later: the heap need not change.
	case e.ripe(en, ev, at, now, fresh):
		e.describe(en, ev)
		e.fire(en, now)
	default:
		if !live {
			e.describe(en, ev)
		}
		e.arm(en)
	}
	if fresh > 1 && r.Temporary() && len(e.out) > own {
		e.out[own].Times = fresh
	}
}

// reportedReason returns the reason that a problem daemon gives, or "".
func reportedReason(ev *event.Event) string {
	if ev.Check == nil {
		return ""
	}
	return ev.Check.Reason
}

// ripe reports whether a pending problem fires with this event, which counts fresh times.
func (e *Engine) ripe(en *entry, ev *event.Event, at, now event.Moment, fresh uint64) bool {
	switch r := en.rule; {
	case r.Threshold.Count > 0:
		en.Came = now.Boot
		if r.distinct != nil {
			return en.window.add(r.Threshold, mark{At: at.Boot, ID: distinctID(r.distinct, ev)})
		}
		reached := false
		for range min(fresh, uint64(r.Threshold.Count)) {
			reached = en.window.add(r.Threshold, mark{At: at.Boot})
		}
		return reached
	case r.For > 0:
		if en.FireAt == 0 {
			en.FireAt = signalStart(ev, at.Boot) + r.For
		}
		return en.FireAt <= now.Boot
	}
	return true
}

// signalStart returns when a level signal began: earlier than the event if that reports how
// long the signal has lasted.
func signalStart(ev *event.Event, at time.Duration) time.Duration {
	if ev.HungTask != nil && ev.HungTask.BlockedFor > 0 {
		return at - time.Duration(ev.HungTask.BlockedFor)
	}
	return at
}

// repeats reports whether a source that was down reports a signal again, which may be one of several
// of the group: it began before the last report before that.
func repeats(en *entry, ev *event.Event, at time.Duration) bool {
	start := signalStart(ev, at)
	return start < at && en.Again != 0 && start <= en.Again
}

// describe renders message and subject from the current event, with the templates of the rule that
// matches it.
func (e *Engine) describe(en *entry, ev *event.Event) {
	var failed int
	// From the rule in force: a reload may have changed them since begin.
	en.p.Reason, en.p.Severity, en.p.Doc = en.rule.Reason, e.severity(en.rule), en.rule.Doc
	if reason := reportedReason(ev); reason != "" {
		en.p.Reason = reason
	}
	// A log line identifies only its writer; other sources identify the affected process.
	if ev.Log == nil || !slices.ContainsFunc(en.p.Evidence, func(o *event.Event) bool { return o.Log == nil }) {
		en.p.Subject, en.p.Pod = ev.Subject(), ""
		if ev.Container != nil {
			en.p.Pod = ev.Container.PodUID
		}
	}
	en.p.Message, e.text, failed = en.reporter.message.render(e.act, e.text)
	en.reporter.errors += uint64(failed)
}

// fire makes a pending problem firing.
func (e *Engine) fire(en *entry, at event.Moment) {
	en.become(problem.Firing, at)
	en.p.SuppressedBy = cause(en)
	en.p.MutedUntil = e.mutedUntil(en)
	e.emit(en)
	s := en.rule.series
	s.firing++
	e.mark(s)
	e.causeChanged(en)
	e.arm(en)
}

// resolve ends a firing problem.
func (e *Engine) resolve(en *entry, at event.Moment) {
	en.become(problem.Resolved, at)
	e.emit(en)
	s := en.rule.series
	s.firing--
	s.resolved++
	e.mark(s)
	if e.clearing {
		e.cleared = append(e.cleared, en)
	} else {
		e.causeChanged(en)
	}
	e.arm(en)
}

// clearedAll updates the effects of the problems that the current event or deadline has ended. It is called
// after all of them: an effect that ends too must not be announced because its cause is over.
func (e *Engine) clearedAll() {
	e.clearing = false
	for _, en := range e.cleared {
		e.causeChanged(en)
	}
	clear(e.cleared)
	e.cleared = e.cleared[:0]
}

// clearGroup ends the problem of the event's group if x is nil or true.
func (e *Engine) clearGroup(r *ruleState, ev *event.Event, x *expr, now event.Moment) {
	switch en, folded, ok := e.endedBy(r, ev, x); {
	case !ok:
	case en == nil:
		e.changed = true
		e.unfold(r.series, folded, now)
	case en.p.State == problem.Pending:
		e.changed = true
		e.forget(en)
	default:
		e.resolve(en, now)
	}
}

// endedBy returns the problem that clearGroup ends, and nil with an ID if its group is folded into
// the overflow group.
func (e *Engine) endedBy(r *ruleState, ev *event.Event, x *expr) (en *entry, id foldedID, ok bool) {
	e.group = appendGroup(e.group[:0], r.groupBy, ev)
	if en = r.series.entries[string(e.group)]; en == nil {
		id, ok = r.series.folded(e.group)
		return nil, id, ok && e.test(r, x)
	}
	return en, id, en.p.State != problem.Resolved && e.test(r, x)
}

// live reports whether the series has a problem that an event could clear.
func (s *series) live() bool { return len(s.entries) > s.resolved }

// emit adds a copy of the problem to the transitions that the call returns.
func (e *Engine) emit(en *entry) {
	e.out = append(e.out, problem.Transition{Problem: en.copyOut()})
}

// mark notes that the condition of a series must be evaluated again.
func (e *Engine) mark(s *series) {
	if s.condition != nil {
		s.condition.dirty = true
	}
}

// deadline returns when the entry needs attention, since boot, if at all.
func (e *Engine) deadline(en *entry) (time.Duration, bool) {
	r := en.rule
	switch en.p.State {
	case problem.Resolved:
		return en.Since + keepResolved, true
	case problem.Pending:
		if r.Threshold.Count > 0 {
			// Events of the same time may be read later, so count from when it was read.
			return en.Came + r.Threshold.Within, true
		}
		return en.FireAt, true
	}
	due, ok := e.quiet(en)
	if en.ConfirmBy != 0 && (!ok || en.ConfirmBy < due) {
		return en.ConfirmBy, true
	}
	return due, ok
}

// quiet returns when the problem has been quiet for its clearAfter. It returns false if quiet
// can't end the problem: while a permanent problem lacks its sources and no other rule watches it,
// and while a level signal lasts, which is reported once however often logs repeat it.
func (e *Engine) quiet(en *entry) (time.Duration, bool) {
	r := en.rule
	if r.ClearAfter == 0 || r.Latched {
		return 0, false
	}
	if !r.Temporary() && e.blindTo(r.Rule) && !slices.ContainsFunc(e.watching(r.series), en.watches) {
		return 0, false
	}
	if s := en.signal(); s != nil && s.ClearAfter == 0 {
		return 0, false
	}
	return max(en.LastSeen, en.QuietFrom) + r.ClearAfter, true
}

// expire handles an entry whose deadline has come.
func (e *Engine) expire(en *entry, due event.Moment) {
	switch en.p.State {
	case problem.Resolved:
		e.forget(en)
	case problem.Firing:
		e.resolve(en, due)
	case problem.Pending:
		// A reload may have removed the rule's "for" meanwhile.
		if (en.rule.For > 0 || en.rule.Threshold.Count == 0) && en.FireAt <= due.Boot {
			en.QuietFrom = due.Boot // a signal reports nothing while it lasts
			e.fire(en, due)
			return
		}
		e.forget(en)
	}
}
