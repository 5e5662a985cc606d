package replay

import (
	"bytes"
	"cmp"
	"path/filepath"
	"time"

	"github.com/kernosis/kernosis/collector/event"
	"github.com/kernosis/kernosis/collector/logpattern"
	"github.com/kernosis/kernosis/collector/logs"
)

// maxMatchers bounds the number of writers whose lines are matched separately.
const maxMatchers = 1000

// matchers has a matcher for each writer, so that a pattern over several lines is not interrupted by
// lines of other writers.
type matchers map[string]*logpattern.Matcher

// of returns the matcher of a writer whose lines are in logs.
func (m matchers) of(writer string, set *logpattern.Set, logs []string) *logpattern.Matcher {
	if m[writer] == nil {
		if len(m) >= maxMatchers {
			clear(m)
		}
		m[writer] = set.NewMatcher(logs...)
	}
	return m[writer]
}

// writtenBy returns a key of the line's writer.
func (l *line) writtenBy() string { return cmp.Or(l.unit, "\x00"+l.origin) }

// log returns the name that rules use for the log of the lines.
func (r *Replay) log() string {
	switch {
	case r.cfg.Log != "":
		return r.cfg.Log
	case r.sum.Format == JournalExport || r.sum.Format == JournalJSON:
		return "journald"
	case r.sum.Format == Syslog:
		return "syslog"
	case r.sum.Format == Plain && r.file == StandardInput:
		return string(Plain)
	case r.sum.Format == Plain: // as in an agent that does not configure another name
		return filepath.Base(r.file)
	}
	return "kmsg"
}

func (r *Replay) matcher(l *line) *logpattern.Matcher {
	names := []string{r.log()}
	if l.ofKernel() {
		names = append(names, event.KernelLogs)
	}
	return r.matchers.of(l.writtenBy(), r.cfg.Rules.PatternSet(), names)
}

// sinceBoot reports whether times of the format count from boot.
func (f Format) sinceBoot() bool { return f == Kmsg || f == Dmesg }

// base returns the time from which timestamps count.
func (r *Replay) base() time.Time {
	if r.sum.Format.sinceBoot() && !r.cfg.Boot.IsZero() {
		return r.cfg.Boot
	}
	return time.Unix(0, 0).UTC()
}

// moment returns the time of a timestamp.
func (r *Replay) moment(stamp time.Duration) event.Moment {
	return event.Moment{Wall: r.base().Add(stamp), Boot: stamp}
}

func (r *Replay) logLine(b []byte) {
	var l line
	var err error
	switch r.sum.Format {
	case Syslog:
		l, err = parseSyslog(b, r.written)
		l.further = r.have && l.printed != 0 && l.printed == r.last.printed
	case Filelog:
		l, err = r.filelog(b)
	case Plain:
		l = r.plainLine(b)
	default:
		l, err = r.sum.Format.parse(b)
	}
	switch {
	case err == nil:
		r.count(&l)
	case r.have && b[0] == ' ' && r.sum.Format == Kmsg:
		return // " SUBSYSTEM=block": no rule uses it
	case r.have && b[0] == ' ' && r.sum.Format != Filelog:
		// dmesg writes the further lines of a record below the first.
		r.same++
		l, l.text, l.further = r.last, bytes.TrimLeft(b, " "), true
		if l.raw != nil {
			l.raw = b
		}
	default:
		r.bad(err)
		return
	}
	r.sum.Lines++
	r.logged(&l)
}

// count counts the lines with the same timestamp.
func (r *Replay) count(l *line) {
	if r.same++; !r.have || l.stamp != r.last.stamp {
		r.same = 0
	}
	r.last, r.have = *l, true
}

// logged passes a line to the rules.
func (r *Replay) logged(l *line) {
	now := r.moment(l.stamp)
	first := r.sum.From.IsZero()
	if !r.begin(now) {
		return
	}
	if first {
		r.sourcesUp(now)
	}
	r.advance(now)
	found, same := r.viewed(l, now.Wall)
	// A monitor's match replaces the match of the log itself, unless rules name that log.
	if r.sum.Format != Filelog && r.matcher(l).Match(l.text, &r.hits) && (!same || r.asks(&r.hits, r.log())) {
		found = append([]*event.Event{r.event(l, now.Wall, r.log(), &r.hits)}, found...)
	}
	for _, ev := range found {
		if r.engine.Seen(ev) {
			r.sum.Repeated++
			continue
		}
		r.sum.Events++
		r.step(&Step{File: r.file, Line: r.line, Now: now.Wall, Event: ev, Transitions: r.engine.Observe(ev, now)})
	}
}

// sourcesUp reports to the engine which logs are read, so that for rules of these logs no line means
// no fault.
func (r *Replay) sourcesUp(now event.Moment) {
	var sources []event.SourceData
	if r.sum.Format != Filelog { // only monitors read a Filelog
		others := event.SourceData{Stem: event.LogStem, Up: true}
		if r.sum.Format == Plain {
			others.Up, others.Reason = false, "the plain file is no log of that name"
		}
		sources = append(sources, others, event.SourceData{Stem: event.NamedStem(event.LogStem, r.log()), Kernel: others.Up, Up: true})
	}
	for _, v := range r.views {
		if v.Name == r.log() && r.sum.Format != Filelog {
			continue
		}
		why := v.missing(r.sum.Format)
		sources = append(sources, event.SourceData{Stem: event.NamedStem(event.LogStem, v.Name), Kernel: v.ofKernel(), Up: why == "", Reason: why})
	}
	for i := range sources {
		ev := &event.Event{Kind: event.Source, Time: now.Wall, CPU: event.NoCPU, SourceUp: &sources[i]}
		r.step(&Step{Now: now.Wall, Transitions: r.engine.Observe(ev, now)})
	}
}

// event returns the event that the agent's log source would make of a line. Its text has all lines
// of the longest match.
func (r *Replay) event(l *line, now time.Time, log string, hits *logpattern.Hits) *event.Event {
	var text []byte
	for i := range hits.Hits {
		if c := hits.Hits[i].Context; len(c) > len(text) {
			text = c
		}
	}
	ev := &event.Event{
		Kind: event.Log, Time: now, CPU: event.NoCPU, Source: log,
		// Equal lines with equal timestamps are different records.
		BootTime: event.Duration(l.stamp + time.Duration(r.same)),
		Log:      &event.LogData{Log: log, Unit: l.unit, Text: event.LogText(string(text))},
	}
	// A continuation line follows a newline, and may come from text that a process chose.
	author := logs.Line{Origin: event.OriginKernel, Text: l.text, Continues: l.further}
	if l.level >= 0 {
		ev.Log.Priority = logs.PriorityName(l.level)
	}
	if l.origin != "" {
		author.Origin = l.origin
	} else if l.facility > 0 {
		// Not the kernel, even if the facility has no name.
		author.Origin = "unknown"
		if names := facilities(); l.facility < len(names) {
			author.Origin = names[l.facility]
		}
	}
	ev.Log.Origin = author.Author()
	return ev
}

// sinceBoot reports whether times are shown as time since boot, because the time of boot is unknown.
func (r *Replay) sinceBoot() bool { return r.sum.Format.sinceBoot() && r.cfg.Boot.IsZero() }
