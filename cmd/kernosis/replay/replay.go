// Package replay runs what was recorded, a journal of the agent or a dump of the
// kernel's log, through rules, and reports what would have been reported.
//
// Time comes from the records: the engine is ticked at its deadlines in between,
// no clock is read, and the same input gives the same output to the byte. What
// can't be read is reported with file and line, counted, and passed by.
package replay

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/kernosis/kernosis/collector/event"
	"github.com/kernosis/kernosis/collector/logpattern"
	"github.com/kernosis/kernosis/collector/logs/journald"
	"github.com/kernosis/kernosis/detector"
	"github.com/kernosis/kernosis/detector/problem"
)

// maxLine bounds a line, in bytes: an entry with the transitions of a flood that
// ended at once is long, and more than this was written by nobody of ours.
const maxLine = 4 << 20

// Config says what to replay, and by what.
type Config struct {
	Rules  *detector.RuleSet
	Format Format // "": detected
	// Log is what rules call the log that lines are of; "": journald, syslog or kmsg, as the
	// format is; of a Plain file its base name.
	Log string
	// Monitors are node-problem-detector's, whose rules are in Rules; nil: none.
	Monitors *Monitors
	// Written is when the file was written last: times of a Syslog have no year, lines of a
	// Plain file need have no time.
	Written time.Time
	// Mutes are in force from the start, in place of recorded ones; nil: those.
	Mutes *[]problem.Mute
	// Boot is the wall clock time of boot, for dumps that count from it; zero: they
	// are reported by their own count.
	Boot time.Time
	// Until ends the replay before the first record later than it, and lets time
	// pass up to it behind the last one; nil: it ends with the last record.
	Until *Until
	// Compare notes where a journal has other transitions.
	Compare bool

	// Step is called with each input, and each deadline at which something
	// happened. The Step is valid during the call.
	Step func(*Step) error
	// Bad is called with each line that can't be read.
	Bad func(file string, line int, err error)
	// Note is called at the end with what Monitors could not read, unless it is nil.
	Note func(string)
}

// Until is a time to stop at; one of its fields is set.
type Until struct {
	At    time.Time
	After time.Duration // since boot where the dump counts from it, else since the first record
	Past  time.Duration // behind the last record
}

// Step is one input, or a deadline, and what followed.
type Step struct {
	Now         time.Time            `json:"now"`
	File        string               `json:"file,omitempty"` // where the input stands; "": a deadline
	Line        int                  `json:"line,omitempty"`
	Started     bool                 `json:"started,omitempty"` // the agent started
	Event       *event.Event         `json:"event,omitempty"`
	Transitions []problem.Transition `json:"transitions,omitempty"`
	Differs     []string             `json:"differs,omitempty"` // "- recorded" and "+ replayed", as JSON
}

// Summary is the outcome of a replay.
type Summary struct {
	Format      Format    `json:"format"`
	Lines       int       `json:"lines"`              // read, without blank ones
	Bad         int       `json:"bad"`                // of them
	Events      int       `json:"events"`             // given to the rules
	Repeated    int       `json:"repeated,omitempty"` // records that came before
	From        time.Time `json:"from"`
	To          time.Time `json:"to"`
	Firing      uint64    `json:"firing"`      // transitions to it
	Resolved    uint64    `json:"resolved"`    // transitions to it
	Differences int       `json:"differences"` // from what was recorded
	SinceBoot   bool      `json:"sinceBoot"`   // times count from boot, shown as 1970
	EvalErrors  uint64    `json:"evalErrors,omitempty"`

	Problems   []problem.Problem   `json:"problems"` // that fire at the end
	Conditions []problem.Condition `json:"conditions"`
}

// Replay is one replay. It is not safe for concurrent use.
type Replay struct {
	cfg    Config
	engine *detector.Engine
	sum    Summary
	boot   string
	to     event.Moment // of the latest record
	until  time.Time    // zero: none, or not known yet
	ended  bool
	err    error

	file string
	line int

	matchers matchers
	views    []*view
	plain    *plain // of a Plain file
	hits     logpattern.Hits
	last     line  // the latest, which others may go on
	have     bool  // last is set
	same     int64 // lines with the stamp of last
}

// New returns a replay at its beginning.
func New(cfg Config) *Replay {
	r := &Replay{cfg: cfg, matchers: matchers{}}
	if cfg.Monitors != nil {
		for i := range cfg.Monitors.logs {
			r.views = append(r.views, &view{monitor: &cfg.Monitors.logs[i], matchers: matchers{}})
		}
	}
	r.newEngine()
	return r
}

func (r *Replay) newEngine() {
	if r.engine != nil {
		r.countErrors()
	}
	r.engine = detector.NewEngine(r.cfg.Rules)
}

// SetWritten says when the next file was written last, see [Config].Written.
func (r *Replay) SetWritten(at time.Time) { r.cfg.Written = at }

// StandardInput is what the standard input is called as a file.
const StandardInput = "standard input"

// File replays one file. Those of a journal come in their order. An error of the
// Config's Step ends it.
func (r *Replay) File(name string, in io.Reader) error {
	br := bufio.NewReaderSize(in, 256<<10)
	head, err := br.Peek(256 << 10)
	if err != nil && !errors.Is(err, io.EOF) {
		return fmt.Errorf("%s: %w", name, err)
	}
	if r.sum.Format = r.cfg.Format; r.sum.Format == "" {
		if r.sum.Format, err = r.detect(head); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
	}
	r.file, r.line, r.have = name, 0, false
	if r.sum.Format == Plain {
		if err := r.beginPlain(head); err != nil {
			return err
		}
	}
	if r.sum.Format == JournalExport {
		return r.exported(br)
	}
	for !r.ended {
		b, err := readLine(br)
		if errors.Is(err, io.EOF) {
			return r.err
		}
		r.line++
		if errors.Is(err, errTooLong) {
			r.bad(err)
			continue
		}
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		if len(bytes.TrimSpace(b)) > 0 {
			r.read(b)
		}
		if r.err != nil {
			return r.err
		}
	}
	return r.err
}

var errTooLong = fmt.Errorf("line is longer than %d bytes", maxLine)

// readLine returns the next line without its end. Of one that is too long all is
// passed by.
func readLine(br *bufio.Reader) ([]byte, error) {
	var long []byte
	tooLong := false
	for {
		part, err := br.ReadSlice('\n')
		if tooLong = tooLong || len(long)+len(part) > maxLine; !tooLong {
			long = append(long, part...)
		}
		switch {
		case errors.Is(err, bufio.ErrBufferFull):
			continue
		case errors.Is(err, io.EOF) && len(long) == 0 && !tooLong:
			return nil, io.EOF
		case err != nil && !errors.Is(err, io.EOF):
			return nil, err
		case tooLong:
			return nil, errTooLong
		}
		return bytes.TrimSuffix(bytes.TrimSuffix(long, []byte{'\n'}), []byte{'\r'}), nil
	}
}

func (r *Replay) bad(err error) {
	r.sum.Lines++
	r.sum.Bad++
	if r.cfg.Bad != nil {
		r.cfg.Bad(r.file, r.line, err)
	}
}

// read takes one line that is not blank.
func (r *Replay) read(b []byte) {
	switch r.sum.Format {
	case Journal:
		e, err := parseEntry(b)
		if err != nil {
			r.bad(err)
			return
		}
		r.sum.Lines++
		r.entry(&e)
	case JournalJSON:
		var e journald.Entry
		if err := journald.ParseJSON(b, &e); err != nil {
			r.bad(err)
			return
		}
		r.journalEntry(&e)
	default:
		r.logLine(b)
	}
}

// begin notes the time of a record, and reports whether it is to be replayed.
func (r *Replay) begin(now event.Moment) bool {
	if r.sum.From.IsZero() {
		r.sum.From = now.Wall
		if r.cfg.Mutes != nil {
			r.step(&Step{Now: now.Wall, Transitions: r.engine.SetMutes(*r.cfg.Mutes, now)})
		}
		if u := r.cfg.Until; u != nil && u.Past == 0 {
			r.until = u.At
			if u.At.IsZero() {
				r.until = r.origin(now.Wall).Add(u.After)
			}
		}
	}
	if !r.until.IsZero() && now.Wall.After(r.until) {
		r.ended = true
		return false
	}
	if now.Boot >= r.to.Boot {
		r.to = now
	}
	return true
}

// origin is what a duration counts from.
func (r *Replay) origin(first time.Time) time.Time {
	if r.sum.Format.sinceBoot() {
		return r.base()
	}
	return first
}

// advance lets time pass up to a time, deadline by deadline.
func (r *Replay) advance(to event.Moment) {
	for {
		d, ok := r.engine.NextDeadline()
		if !ok || d.Boot > to.Boot {
			return
		}
		s := Step{Now: d.Wall, Transitions: r.engine.Tick(d)}
		if r.cfg.Compare && r.sum.Format == Journal {
			r.compare(&s, nil)
		}
		r.step(&s)
		if next, ok := r.engine.NextDeadline(); ok && next.Boot <= d.Boot {
			return // of a time before those of the records
		}
	}
}

func (r *Replay) step(s *Step) {
	for _, t := range s.Transitions {
		if t.Problem == nil {
			continue
		}
		t.Problem.Evidence = nil // the input itself is shown
		switch t.Problem.State {
		case problem.Firing:
			r.sum.Firing++
		case problem.Resolved:
			r.sum.Resolved++
		case problem.Pending:
		}
	}
	if r.err == nil && r.cfg.Step != nil {
		r.err = r.cfg.Step(s)
	}
}

// End lets time pass to its end, and returns the outcome.
func (r *Replay) End() (Summary, error) {
	if end := r.to; !end.Wall.IsZero() {
		if u := r.cfg.Until; u != nil && u.Past > 0 {
			end = end.Add(u.Past)
		} else if r.until.After(end.Wall) {
			end = end.Add(r.until.Sub(end.Wall))
		}
		r.advance(end)
		r.step(&Step{Now: end.Wall, Transitions: r.engine.Tick(end)})
		r.sum.To = end.Wall
	}
	r.countErrors()
	r.printViews()
	r.sum.SinceBoot = r.SinceBoot()
	r.sum.Problems = []problem.Problem{}
	for _, p := range r.engine.Problems() {
		if p.State == problem.Firing {
			p.Evidence = nil
			r.sum.Problems = append(r.sum.Problems, p)
		}
	}
	r.sum.Conditions = r.engine.Conditions()
	return r.sum, r.err
}

func (r *Replay) countErrors() {
	for _, n := range r.engine.Stats().EvalErrors {
		r.sum.EvalErrors += n
	}
}
