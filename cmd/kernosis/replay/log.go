package replay

import (
	"bytes"
	"cmp"
	"time"

	"github.com/kernosis/kernosis/collector/event"
	"github.com/kernosis/kernosis/collector/logpattern"
	"github.com/kernosis/kernosis/collector/logs"
)

// maxMatchers bounds the writers whose lines are kept apart.
const maxMatchers = 1000

// matchers are by who wrote a line: those of others don't come between.
type matchers map[string]*logpattern.Matcher

// of returns the matcher of a writer, made for the logs that its lines are of.
func (m matchers) of(writer string, set *logpattern.Set, logs []string) *logpattern.Matcher {
	if m[writer] == nil {
		if len(m) >= maxMatchers {
			clear(m)
		}
		m[writer] = set.NewMatcher(logs...)
	}
	return m[writer]
}

// writtenBy says whose line it is.
func (l *line) writtenBy() string { return cmp.Or(l.unit, "\x00"+l.origin) }

// log is what rules call the log that lines are of.
func (r *Replay) log() string {
	switch {
	case r.cfg.Log != "":
		return r.cfg.Log
	case r.sum.Format == JournalExport || r.sum.Format == JournalJSON:
		return "journald"
	case r.sum.Format == Syslog:
		return "syslog"
	case r.sum.Format == Plain:
		return plainName(r.file)
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

// sinceBoot reports whether the format's times count from boot.
func (f Format) sinceBoot() bool { return f == Kmsg || f == Dmesg }

// base is the time that stamps count from.
func (r *Replay) base() time.Time {
	if r.sum.Format.sinceBoot() && !r.cfg.Boot.IsZero() {
		return r.cfg.Boot
	}
	return time.Unix(0, 0).UTC()
}

// logLine takes one line of a dump.
func (r *Replay) logLine(b []byte) {
	var l line
	var err error
	switch r.sum.Format {
	case Syslog:
		l, err = parseSyslog(b, r.cfg.Written)
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
		return // " SUBSYSTEM=block": no rule asks for it
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

// count counts the lines of one time.
func (r *Replay) count(l *line) {
	if r.same++; !r.have || l.stamp != r.last.stamp {
		r.same = 0
	}
	r.last, r.have = *l, true
}

// logged has the rules see a line.
func (r *Replay) logged(l *line) {
	now := event.Moment{Wall: r.base().Add(l.stamp), Boot: l.stamp}
	first := r.sum.From.IsZero()
	if !r.begin(now) {
		return
	}
	if first {
		r.sourcesUp(now)
	}
	r.advance(now)
	found, same := r.viewed(l, now.Wall)
	// A monitor's log stands for the log itself, unless rules ask for that by name.
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

// sourcesUp reports to the engine which logs are read: what is not in these did not happen, as
// far as rules for lines of logs go.
func (r *Replay) sourcesUp(now event.Moment) {
	var sources []event.SourceData
	if r.sum.Format != Filelog { // which only the monitors read
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

// event makes of a line what the agent's source of the log makes of it: with the lines that
// the longest match spans.
func (r *Replay) event(l *line, now time.Time, log string, hits *logpattern.Hits) *event.Event {
	var text []byte
	for i := range hits.Hits {
		if c := hits.Hits[i].Context; len(c) > len(text) {
			text = c
		}
	}
	ev := &event.Event{
		Kind: event.Log, Time: now, CPU: event.NoCPU, Source: log,
		// Equal lines of equal stamps are different records.
		BootTime: event.Duration(l.stamp + time.Duration(r.same)),
		Log:      &event.LogData{Log: log, Unit: l.unit, Text: event.LogText(string(text))},
	}
	// A further line of a record is behind a newline, and may be from a name.
	author := logs.Line{Origin: event.OriginKernel, Text: l.text, Continues: l.further}
	if l.level >= 0 {
		ev.Log.Priority = logs.PriorityName(l.level)
	}
	if l.origin != "" {
		author.Origin = l.origin
	} else if l.facility > 0 {
		// Not the kernel, whoever it is.
		author.Origin = "unknown"
		if names := facilities(); l.facility < len(names) {
			author.Origin = names[l.facility]
		}
	}
	ev.Log.Origin = author.Author()
	return ev
}

// SinceBoot reports whether times are those since boot, for nobody knows when that
// was.
func (r *Replay) SinceBoot() bool { return r.sum.Format.sinceBoot() && r.cfg.Boot.IsZero() }
