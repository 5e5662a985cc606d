// Package replay runs a recorded journal of the agent, or a dump of the kernel's log, through
// rules, and reports what an agent would have reported.
//
// Time comes from the records, and no clock is read: between records, replay ticks the engine at its
// deadlines. So the same input gives the same output to the byte. Lines that can't be read are reported
// with file and line, counted, and skipped.
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

// maxLine bounds a line, in bytes. An entry with the transitions of a flood that ended at once is
// long, but the agent never writes more than this.
const maxLine = 4 << 20

// Config configures a replay.
type Config struct {
	Rules  *detector.RuleSet
	Format Format // "": detected
	// Log is the name that rules use for the log; "": journald, syslog or kmsg, depending on the
	// format; for a Plain file its base name.
	Log string
	// Monitors are node-problem-detector's monitors, whose rules are in Rules; may be nil.
	Monitors *Monitors
	// Mutes are in force from the start and replace recorded mutes; nil: use the recorded ones.
	Mutes *[]problem.Mute
	// Boot is the wall clock time of boot, for dumps whose times count from it; zero: times are
	// reported since boot. Other formats are refused.
	Boot time.Time
	// Until ends the replay before the first later record, or else advances time to Until after
	// the last record; nil: the replay ends with the last record.
	Until *Until
	// Compare reports where the transitions differ from those in a journal. Other formats are refused.
	Compare bool

	// Step is called with each input, and each deadline that has transitions. The Step is valid
	// only during the call.
	Step func(*Step) error
	// Bad is called with each line that can't be read.
	Bad func(file string, line int, err error)
	// Note is called at the end with what Monitors could not read. May be nil.
	Note func(string)
}

// Until is a time to stop at. Exactly one field is set.
type Until struct {
	At    time.Time
	After time.Duration // since boot if the dump counts from it, else since the first record
	Past  time.Duration // after the last record
}

// Step is one input, or a deadline, and its results.
type Step struct {
	Now         time.Time            `json:"now"`
	File        string               `json:"file,omitempty"` // file of the input; "": a deadline
	Line        int                  `json:"line,omitempty"`
	Started     bool                 `json:"started,omitempty"` // the agent started
	Event       *event.Event         `json:"event,omitempty"`
	Transitions []problem.Transition `json:"transitions,omitempty"`
	Differs     []string             `json:"differs,omitempty"` // "- recorded" and "+ replayed", as JSON
	SinceBoot   bool                 `json:"-"`                 // whether times count from boot, see [Summary]
}

// Summary is the outcome of a replay.
type Summary struct {
	Format      Format    `json:"format"`
	Lines       int       `json:"lines"`              // lines read, without blank ones
	Bad         int       `json:"bad"`                // of Lines, those that could not be read
	Events      int       `json:"events"`             // passed to the rules
	Repeated    int       `json:"repeated,omitempty"` // records that were already replayed
	From        time.Time `json:"from"`
	To          time.Time `json:"to"`
	Firing      uint64    `json:"firing"`      // transitions to it
	Resolved    uint64    `json:"resolved"`    // transitions to it
	Differences int       `json:"differences"` // differences from the recorded transitions
	SinceBoot   bool      `json:"sinceBoot"`   // whether times count from boot; then they are shown as 1970
	EvalErrors  uint64    `json:"evalErrors,omitempty"`

	Problems   []problem.Problem   `json:"problems"` // problems that fire at the end
	Conditions []problem.Condition `json:"conditions"`
}

// Replay is one replay. It is not safe for concurrent use.
type Replay struct {
	cfg    Config
	engine *detector.Engine
	sum    Summary
	boot   string
	to     event.Moment // time of the latest record
	until  time.Time    // zero: none, or not yet known
	ended  bool
	err    error

	file    string
	written time.Time // when the file was last written
	line    int

	matchers matchers
	views    []*view
	plain    *plain // of a Plain file
	hits     logpattern.Hits
	last     line  // the latest line, which further lines may continue
	have     bool  // whether last is set
	same     int64 // number of previous lines with the timestamp of last
}

// New returns a Replay that has replayed nothing yet.
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

// startOver drops all state but the mutes, as an agent does in a new boot.
func (r *Replay) startOver(now event.Moment) {
	r.to = now
	r.newEngine()
	clear(r.matchers)
	for _, v := range r.views {
		clear(v.matchers)
	}
	r.setMutes(now)
}

func (r *Replay) setMutes(now event.Moment) {
	if r.cfg.Mutes != nil {
		r.step(&Step{Now: now.Wall, Transitions: r.engine.SetMutes(*r.cfg.Mutes, now)})
	}
}

// StandardInput is the file name used for the standard input.
const StandardInput = "standard input"

// File replays one file, which was last written at a time: times of a Syslog have no year, and lines of
// a Plain file may have no time. Files of a journal must be replayed in order. An error of [Config].Step
// ends the replay.
func (r *Replay) File(name string, written time.Time, in io.Reader) error {
	r.file, r.written, r.line, r.have = name, written, 0, false
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
	if err := r.unused(); err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	if r.sum.Format == Plain {
		r.beginPlain(head)
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

// unused returns an error if a setting has no effect on recordings of the format.
func (r *Replay) unused() error {
	switch f := r.sum.Format; {
	case r.cfg.Compare && f != Journal:
		return fmt.Errorf("compare: only a %s of Kernosis has transitions to compare with, and the format is %s", Journal, f)
	case !r.cfg.Boot.IsZero() && !f.sinceBoot():
		return fmt.Errorf("boot: only times of %s and %s count from boot, and the format is %s", Kmsg, Dmesg, f)
	}
	return nil
}

var errTooLong = fmt.Errorf("line is longer than %d bytes", maxLine)

// readLine returns the next line without its end. It skips the whole of a line that is too long.
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

// read replays one line that is not blank.
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

// begin records the time of a record, and reports whether the record is replayed.
func (r *Replay) begin(now event.Moment) bool {
	if r.sum.From.IsZero() {
		r.sum.From = now.Wall
		r.setMutes(now)
		if u := r.cfg.Until; u != nil && u.Past == 0 {
			r.until = u.At
			if u.At.IsZero() {
				from := now.Wall
				if r.sum.Format.sinceBoot() {
					from = r.base()
				}
				r.until = from.Add(u.After)
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

// advance advances time to to, deadline by deadline.
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
			return // the deadline is before the records' times
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
		}
	}
	s.SinceBoot = r.sinceBoot()
	if r.err == nil && r.cfg.Step != nil {
		r.err = r.cfg.Step(s)
	}
}

// End advances time to the end of the replay, and returns the outcome.
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
	r.sum.SinceBoot = r.sinceBoot()
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
