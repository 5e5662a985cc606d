package console

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"time"

	"github.com/kernosis/kernosis/collector/event"
	"github.com/kernosis/kernosis/detector/problem"
	"github.com/kernosis/kernosis/reporter/journal"
)

// Writer writes journal entries and completed Diagnoses. It is not safe for concurrent use.
type Writer interface {
	Write(journal.Entry) error
	// Diagnosis writes a Diagnosis that has ended.
	Diagnosis(now time.Time, d *Diagnosis) error
	// Flush writes out what was buffered since the last call. lost is how many lines were not
	// written, or in part.
	Flush() (lost int, err error)
}

// lines buffers lines until Flush writes them to w.
type lines struct {
	w   io.Writer
	buf bytes.Buffer
}

func (l *lines) Flush() (lost int, err error) {
	if l.buf.Len() == 0 {
		return 0, nil
	}
	defer l.buf.Reset() // also after an error: writing the rest of a line later would not repair it
	n, err := l.w.Write(l.buf.Bytes())
	if err != nil {
		lost = bytes.Count(l.buf.Bytes()[n:], []byte{'\n'})
		err = fmt.Errorf("write %d lines: %w", lost, err)
	}
	return lost, err
}

// NewText returns a Writer of lines for people. Entries without transitions write nothing.
func NewText(w io.Writer) Writer { return &text{lines{w: w}} }

// NewJSON returns a Writer that writes each entry as one JSON object, including entries without
// transitions.
func NewJSON(w io.Writer) Writer {
	j := &jsonLines{lines: lines{w: w}}
	j.enc = json.NewEncoder(&j.buf)
	j.enc.SetEscapeHTML(false) // like the journal
	return j
}

type jsonLines struct {
	lines
	enc *json.Encoder // writes into buf
}

func (j *jsonLines) Write(s journal.Entry) error {
	if s.Line != nil {
		j.buf.Write(s.Line)
		return nil
	}
	if err := j.enc.Encode(s); err != nil {
		return fmt.Errorf("write line: %w", err)
	}
	return nil
}

type text struct{ lines }

// Column widths: the longest shipped reason is ProbeTargetAcceptQueueFull (26),
// but most are shorter, and a longer one only shifts its own line.
const reasonWidth = 20

func (t *text) Write(s journal.Entry) error {
	for _, tr := range s.Transitions {
		switch {
		case tr.Problem != nil && !tr.Problem.MutedUntil.IsZero():
			// The problem is muted.
		case tr.Problem != nil:
			t.problem(s, tr.Problem)
		case tr.Condition != nil:
			c := tr.Condition
			fmt.Fprintf(&t.buf, "%s %-8s %s=%s %s: %s\n", s.Now.Local().Format("15:04:05.000"), "node", c.Type, c.Status, c.Reason, c.Message)
		case tr.Mute != nil:
			t.mute(s, tr.Mute)
		}
	}
	return nil
}

func (t *text) problem(s journal.Entry, p *problem.Problem) {
	at := s.Now
	if s.Event != nil && p.State == problem.Firing {
		at = s.Event.Time // the time of the fault, not of its detection
	}
	fmt.Fprintf(&t.buf, "%s %-8s %-*s %s", at.Local().Format("15:04:05.000"), label(p), reasonWidth, p.Reason, p.Message)
	t.buf.WriteString(After(p, s.Now))
	if s.Event != nil && p.State == problem.Firing && s.Event.CPU != event.NoCPU {
		fmt.Fprintf(&t.buf, " (%s)", latency(s.Now.Sub(s.Event.Time)))
	}
	t.buf.WriteByte('\n')
}

// After returns what follows the message of a problem: how long it fired if it is resolved, how often
// it occurred, its rule, and the rule of its cause.
func After(p *problem.Problem, now time.Time) string {
	var text string
	if p.State == problem.Resolved {
		text = fmt.Sprintf(" — after %s", now.Sub(p.FirstSeen).Round(time.Second))
	}
	if p.Count > 1 {
		text += fmt.Sprintf(" (x%d)", p.Count)
	}
	text += " [" + p.Rule
	if p.SuppressedBy != "" {
		text += ", caused by " + p.SuppressedBy
	}
	return text + "]"
}

// label returns one word for the state of the problem: its severity while it fires.
func label(p *problem.Problem) string {
	switch p.State {
	case problem.Resolved:
		return "resolved"
	case problem.Pending:
		return "pending"
	default:
		return string(p.Severity)
	}
}

func (t *text) mute(s journal.Entry, m *problem.MuteChange) {
	what := "muted until " + m.Until.Local().Format(time.DateTime)
	if m.Over {
		what = "no longer muted"
	}
	fmt.Fprintf(&t.buf, "%s %-8s %s %s: %s\n", s.Now.Local().Format("15:04:05.000"), "node", m.Subject(), what, m.Reason)
}

// latency formats the time from the fault to this line, with three digits.
func latency(d time.Duration) string {
	switch {
	case d < 0:
		return "0s" // the wall clock was stepped in between
	case d < time.Millisecond:
		return d.Round(time.Microsecond).String()
	case d < time.Second:
		return d.Round(10 * time.Microsecond).String()
	}
	return d.Round(10 * time.Millisecond).String()
}
