package replay

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"
	"time"

	"github.com/kernosis/kernosis/collector/display"
	"github.com/kernosis/kernosis/collector/event"
	"github.com/kernosis/kernosis/collector/logpattern"
	"github.com/kernosis/kernosis/collector/logs/file"
	"github.com/kernosis/kernosis/detector"
	"github.com/kernosis/kernosis/detector/npd"
)

// Monitors are node-problem-detector's system log monitors. They hold no state of a replay.
type Monitors struct {
	// Rules are the monitors' rules, which override the shipped ones.
	Rules fs.FS
	// Notes name settings that a replay does not use, and what is suspicious in the files.
	Notes []string

	logs []monitor
	set  *npd.Set
}

type monitor struct {
	npd.LogSource
	lines *file.Parser // for a filelog
	times *file.Parser // for a filelog: parses only the time, whatever the text
}

// node-problem-detector's plugins.
const (
	plugKmsg    = "kmsg"
	plugJournal = "journald"
	plugFile    = "filelog"
)

// NewMonitors converts files, each a system log monitor. under has the rules that theirs override.
func NewMonitors(files []*npd.File, under *detector.RuleSet) (*Monitors, error) {
	out := &Monitors{}
	all := make([]*npd.File, len(files))
	for i, f := range files {
		if f.Log == nil {
			return nil, fmt.Errorf("--npd: %s: want a system log monitor, of plugin kmsg, journald or filelog", f.Name)
		}
		var unused []string
		if f.Log.Lookback > 0 {
			unused = append(unused, "lookback")
		}
		if f.Log.Delay > 0 {
			unused = append(unused, "delay")
		}
		if len(unused) > 0 && f.Skipped == "" {
			out.Notes = append(out.Notes, fmt.Sprintf("%s: %s: ignored, a replay reads the whole log", f.Name, strings.Join(unused, ", ")))
		}
		// Monitors that differ only in these read the same lines here.
		same, log := *f, *f.Log
		log.Lookback, log.Delay = 0, 0
		same.Log, all[i] = &log, &same
	}
	set, err := npd.Convert(all, under)
	if err != nil {
		return nil, err
	}
	for _, w := range set.Warnings {
		out.Notes = append(out.Notes, w.Error())
	}
	var errs []error
	for _, s := range set.Logs {
		m := monitor{LogSource: s}
		if s.Plugin == plugFile {
			// A time without a zone is read as UTC, as in other formats.
			f := file.Format{Timestamp: s.Timestamp, TimestampFormat: s.TimestampFormat, Location: time.UTC}
			var err error
			if m.times, err = file.NewParser(f, nil); err == nil {
				f.Message = s.Message
				m.lines, err = file.NewParser(f, s.Skip)
			}
			if err != nil {
				errs = append(errs, fmt.Errorf("--npd: %s: pluginConfig: %w", m.String(), err))
			}
		}
		out.logs = append(out.logs, m)
	}
	out.Rules, out.set = set.Layer, set
	return out, errors.Join(errs...)
}

// NoteUnset adds a note for each condition of the monitors that none of the rules in force sets.
func (m *Monitors) NoteUnset(rules *detector.RuleSet) {
	for _, w := range m.set.Unset(rules) {
		m.Notes = append(m.Notes, w.Error())
	}
}

// String describes the log as its monitor configures it.
func (m *monitor) String() string {
	switch m.Plugin {
	case plugJournal:
		return fmt.Sprintf("journald, source %q", m.Identifier)
	case plugFile:
		return fmt.Sprintf("filelog %q", m.Path)
	}
	return m.Plugin
}

// ofKernel reports whether the log is the kernel's.
func (m *monitor) ofKernel() bool {
	return m.Plugin == plugKmsg || m.Plugin == plugJournal && m.Identifier == event.OriginKernel
}

// missing returns why a dump of the format can't have lines of the log; "" if it may have some.
func (m *monitor) missing(f Format) string {
	switch {
	case m.Plugin != plugFile && f == Filelog:
		return "the file is read as a filelog monitor describes it"
	case m.Plugin != plugFile && f == Plain:
		return "a plain file doesn't say which program wrote a line"
	case m.Plugin == plugJournal && !m.ofKernel() && (f == Dmesg || f == DmesgTime || f == DmesgISO):
		return "a dump of the kernel's log doesn't say which program wrote a line"
	}
	return ""
}

type view struct {
	*monitor
	matchers  matchers
	taken     int // number of lines read
	malformed int // lines without a time in the monitor's format
}

// wants returns the text of a line in the log, and whether the log has the line.
func (v *view) wants(l *line, written time.Time) (text []byte, ok bool) {
	switch v.Plugin {
	case plugKmsg:
		text, ok = l.text, l.kmsg
	case plugJournal:
		var name string
		name, text = l.writer()
		ok = name == v.Identifier
	default:
		if text, ok = l.text, !slices.ContainsFunc(v.Skip, func(s string) bool { return bytes.Contains(l.text, []byte(s)) }); l.raw != nil {
			var err error
			if text, _, ok, err = v.lines.Parse(l.raw, written); err != nil {
				v.malformed++
			}
		}
	}
	if ok {
		v.taken++
	}
	return text, ok
}

// matcher returns the matcher for the line's writer in the log.
func (v *view) matcher(set *logpattern.Set, l *line) *logpattern.Matcher {
	writer, names := "", []string{v.Name}
	if v.Plugin == plugJournal {
		writer = l.writtenBy()
	}
	if v.ofKernel() && (v.Plugin == plugKmsg || l.ofKernel()) {
		names = append(names, event.KernelLogs)
	}
	return v.matchers.of(writer, set, names)
}

// viewed returns the events of monitors for a line, and whether a monitor matched the same text as
// the log itself.
func (r *Replay) viewed(l *line, now time.Time) (found []*event.Event, same bool) {
	for _, v := range r.views {
		text, ok := v.wants(l, r.written)
		if !ok || v.Name == r.log() && v.Plugin != plugFile {
			continue // the log itself is matched anyway
		}
		own := *l
		own.text = text
		if v.Plugin == plugFile {
			own.origin, own.unit, own.level, own.further = v.Path, "", -1, false
		}
		var hits logpattern.Hits
		if !v.matcher(r.cfg.Rules.PatternSet(), l).Match(text, &hits) || r.sum.Format != Filelog && !r.asks(&hits, v.Name) {
			continue // rules for any log get the line once, from the log itself
		}
		found = append(found, r.event(&own, now, v.Name, &hits))
		same = same || v.Plugin != plugFile
	}
	return found, same
}

// asks reports whether a matched pattern names the log.
func (r *Replay) asks(hits *logpattern.Hits, name string) bool {
	set := r.cfg.Rules.PatternSet()
	return slices.ContainsFunc(hits.Hits, func(h logpattern.Hit) bool { return slices.Contains(set.Pattern(h.Pattern).Logs, name) })
}

// filelog reads a line in the format of a filelog monitor.
func (r *Replay) filelog(b []byte) (line, error) {
	for _, v := range r.views {
		if v.times == nil {
			continue
		}
		if _, at, _, err := v.times.Parse(b, r.written); err == nil && sane(at) {
			return line{stamp: time.Duration(at.UnixNano()), level: -1, facility: -1, text: b, raw: b}, nil
		}
	}
	return line{}, errFilelog
}

var errFilelog = errors.New("not the time that timestamp and timestampFormat of a filelog monitor describe")

// printViews reports monitors that could read no line, or not all lines.
func (r *Replay) printViews() {
	if r.cfg.Note == nil || r.sum.Format == Journal || r.sum.Format == "" {
		return
	}
	for _, v := range r.views {
		inFile := r.sum.Format == Syslog || r.sum.Format == Filelog || r.sum.Format == Plain
		why := ""
		switch missing := v.missing(r.sum.Format); {
		case v.Plugin == plugFile && !inFile:
			why = "timestamp, message and timestampFormat: ignored, the input is no log file (" + string(r.sum.Format) + "); the patterns were tried on every line"
		case missing != "" && v.taken == 0:
			why = "no line: " + missing
		case v.malformed > 0:
			why = display.Count(v.malformed, "line") + " without the time that timestamp and timestampFormat describe"
		case v.taken == 0 && v.Plugin == plugFile:
			why = "no line of the input matches message, or skipList skips them all"
		case v.taken == 0:
			why = "the input has no line of this log"
		}
		if why != "" {
			r.cfg.Note(v.String() + ": " + why)
		}
	}
}
