package replay

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/kernosis/kernosis/collector/display"
	"github.com/kernosis/kernosis/collector/event"
	"github.com/kernosis/kernosis/detector/problem"
	"github.com/kernosis/kernosis/reporter/console"
)

// Writer writes the results of a replay. Times are UTC, so that the output is the same on every
// machine.
type Writer interface {
	Step(*Step) error
	Summary(*Summary) error
}

// NewText returns a Writer of lines for people. Verbose also shows inputs without effect, muted
// problems, and all conditions at the end.
func NewText(w io.Writer, verbose bool) Writer { return &text{w: w, verbose: verbose} }

type text struct {
	w       io.Writer
	verbose bool
}

// timeText formats a time, or the time since boot as in the kernel's log.
func timeText(at time.Time, sinceBoot bool) string {
	if sinceBoot {
		return fmt.Sprintf("[%12.6f]", float64(at.UnixNano()/1000)/1e6)
	}
	return at.UTC().Format("2006-01-02T15:04:05.000Z")
}

func (t *text) Step(s *Step) error {
	var b strings.Builder
	at := timeText(s.Now, s.SinceBoot)
	if t.verbose && s.Started {
		fmt.Fprintf(&b, "%s %s:%d: the agent started\n", at, s.File, s.Line)
	}
	if t.verbose && s.Event != nil && len(s.Transitions) == 0 {
		fmt.Fprintf(&b, "%s %s:%d: %s of %s: nothing to report\n", at, s.File, s.Line,
			display.Safe(string(s.Event.Kind), 64), display.Safe(subject(s.Event), 200))
	}
	for _, tr := range s.Transitions {
		switch {
		case tr.Problem != nil:
			t.problem(&b, at, tr.Problem, s.Now)
		case tr.Condition != nil:
			fmt.Fprintf(&b, "%s %-8s %s=%s %s: %s\n", at, "node", tr.Condition.Type, tr.Condition.Status, tr.Condition.Reason, tr.Condition.Message)
		case tr.Mute != nil:
			fmt.Fprintf(&b, "%s %-8s %s\n", at, "node", display.Safe(muteText(tr.Mute), 4096)) // as it was recorded
		}
	}
	for _, d := range s.Differs {
		where := "nothing recorded" // a deadline
		if s.File != "" {
			where = fmt.Sprintf("%s:%d", s.File, s.Line)
		}
		fmt.Fprintf(&b, "%s %s: %s\n", at, where, display.Safe(d, 4096))
	}
	_, err := io.WriteString(t.w, b.String())
	return err
}

func subject(ev *event.Event) string {
	if ev.Log != nil {
		return ev.Log.Text[strings.LastIndexByte(ev.Log.Text, '\n')+1:]
	}
	if ev.SourceUp != nil {
		return ev.SourceUp.Stem
	}
	return ev.Subject()
}

func (t *text) problem(b *strings.Builder, at string, p *problem.Problem, now time.Time) {
	label := string(p.Severity)
	if p.State == problem.Resolved {
		label = string(p.State)
	}
	if !p.MutedUntil.IsZero() {
		if !t.verbose {
			return
		}
		label = "muted"
	}
	fmt.Fprintf(b, "%s %-8s %s %s%s\n", at, label, p.Reason, p.Message, console.After(p, now))
}

func muteText(m *problem.MuteChange) string {
	if m.Over {
		return m.Subject() + " no longer muted: " + m.Reason
	}
	return m.Subject() + " muted until " + m.Until.UTC().Format(time.RFC3339) + ": " + m.Reason
}

func (t *text) Summary(s *Summary) error {
	var b strings.Builder
	if t.verbose {
		for _, c := range s.Conditions {
			fmt.Fprintf(&b, "at the end: %s=%s %s: %s\n", c.Type, c.Status, c.Reason, c.Message)
		}
	}
	for i := range s.Problems {
		p := &s.Problems[i]
		fmt.Fprintf(&b, "still there: %s %s [%s] (x%d)\n", p.Reason, p.Message, p.Rule, p.Count)
	}
	fmt.Fprintf(&b, "%d lines of %s, %s to %s: %d events, fired %d times, resolved %d times, %d bad lines",
		s.Lines, s.Format, timeText(s.From, s.SinceBoot), timeText(s.To, s.SinceBoot), s.Events, s.Firing, s.Resolved, s.Bad)
	if s.Differences > 0 {
		fmt.Fprintf(&b, ", %d differences", s.Differences)
	}
	if s.EvalErrors > 0 {
		fmt.Fprintf(&b, ", %d failed expressions", s.EvalErrors)
	}
	b.WriteByte('\n')
	_, err := io.WriteString(t.w, b.String())
	return err
}

// NewJSON returns a Writer of one object per line: a step with transitions or differences, and at
// the end {"summary": …}. Verbose writes all inputs.
func NewJSON(w io.Writer, verbose bool) Writer {
	enc := json.NewEncoder(w)
	enc.SetEscapeHTML(false)
	return &jsonLines{enc: enc, verbose: verbose}
}

type jsonLines struct {
	enc     *json.Encoder
	verbose bool
}

func (j *jsonLines) Step(s *Step) error {
	if len(s.Transitions) == 0 && len(s.Differs) == 0 && !(j.verbose && s.File != "") {
		return nil
	}
	inUTC := *s
	inUTC.Now = s.Now.UTC()
	return j.enc.Encode(inUTC)
}

func (j *jsonLines) Summary(s *Summary) error {
	s.From, s.To = s.From.UTC(), s.To.UTC()
	return j.enc.Encode(map[string]*Summary{"summary": s})
}
