package status

import (
	"cmp"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	"github.com/kernosis/kernosis/cmd/kernosis/output"
	"github.com/kernosis/kernosis/collector/display"
	"github.com/kernosis/kernosis/detector/problem"
)

// View configures how a state is written for people.
type View struct {
	Wide    bool // all details
	Cells   int  // maximum width of a line; 0: unlimited
	Rows    int  // maximum number of problems and of losses, unless Wide; 0: 10
	Colours output.Colours
}

// label is the width of the column of labels.
const label = 12

type page struct {
	*State
	View
	problemsOnly bool // leave out healthy conditions and sources
	b            strings.Builder
}

// WriteText writes a state for people.
func (s *State) WriteText(w io.Writer, v View) error {
	p := newPage(s, v)
	p.head()
	p.agent()
	p.rows("PROBLEMS", p.problems())
	p.rows("CONDITIONS", p.conditions())
	p.rows("SOURCES", p.sources())
	if p.Wide {
		p.list("DEGRADED", p.Degraded)
	}
	p.list("LOSSES", p.losses())
	p.list("API", p.api())
	p.list("COST", p.cost())
	p.list("UNREAD", p.unread())
	return p.write(w)
}

// WriteTop writes the parts that change: problems, the agent's cost, and everything that is not
// healthy.
func (s *State) WriteTop(w io.Writer, v View) error {
	p := newPage(s, v)
	p.problemsOnly = true
	p.head()
	p.list("COST", p.cost())
	p.rows("PROBLEMS", p.problems())
	p.rows("CONDITIONS", p.conditions())
	p.rows("SOURCES", p.sources())
	if len(p.State.Losses) > 0 {
		p.list("LOSSES", p.losses())
	}
	p.list("UNREAD", p.unread())
	return p.write(w)
}

func newPage(s *State, v View) *page {
	v.Rows = cmp.Or(v.Rows, 10)
	return &page{State: s, View: v}
}

func (p *page) write(w io.Writer) error {
	if _, err := io.WriteString(w, p.b.String()); err != nil {
		return fmt.Errorf("write status: %w", err)
	}
	return nil
}

func (p *page) unread() []string {
	var out []string
	for _, u := range p.Unread {
		out = append(out, u.What+": "+u.Why)
	}
	return out
}

// line writes a label and a text. It wraps a long text between words, or cuts it if only problems are
// shown.
func (p *page) line(name, text string) {
	if cells := p.Cells - label; cells > label && p.problemsOnly {
		text = cut(text, cells)
	}
	for text != "" || name != "" {
		now, later := text, ""
		if cells := p.Cells - label; cells > label {
			now, later = split(text, cells)
		}
		p.b.WriteString(strings.TrimRight(fmt.Sprintf("%-*s%s", label, name, now), " ") + "\n")
		name, text = "", later
		if later != "" {
			text = "  " + later
		}
	}
}

// cut shortens a text to cells. Colours must only be at the beginning of the text.
func cut(text string, cells int) string {
	if display.Cells(text) <= cells {
		return text
	}
	runes := []rune(text)
	for len(runes) > 0 && display.Cells(string(runes)) >= cells {
		runes = runes[:len(runes)-1]
	}
	return string(runes) + "…"
}

// split breaks a text after the last word that fits into cells.
func split(text string, cells int) (fits, rest string) {
	if display.Cells(text) <= cells {
		return text, ""
	}
	end := 0
	for at := 0; at < len(text); {
		n := strings.IndexByte(text[at:], ' ')
		if n < 0 || display.Cells(text[:at+n]) > cells {
			break
		}
		at += n + 1
		if strings.TrimSpace(text[:at]) != "" {
			end = at
		}
	}
	if end == 0 {
		return text, "" // a word that is longer than the line
	}
	return text[:end], strings.TrimLeft(text[end:], " ")
}

func (p *page) list(name string, lines []string) {
	for _, l := range lines {
		p.line(name, l)
		name = ""
	}
}

func (p *page) rows(name string, r *output.Rows) {
	for l := range strings.Lines(r.String()) {
		p.line(name, strings.TrimSuffix(l, "\n"))
		name = ""
	}
}

// head writes the outcome in one line.
func (p *page) head() {
	subject := "this machine"
	if p.Node != "" {
		subject = "node " + p.Node
	}
	verdict := p.summary()
	switch p.Outcome {
	case Problems:
		verdict = p.Colours.Bad(verdict)
	case Unknown:
		verdict = p.Colours.Doubtful(verdict)
	}
	fmt.Fprintf(&p.b, "%s: %s\n", subject, verdict)
}

func (p *page) summary() string {
	switch {
	case p.Outcome == Healthy:
		return "healthy"
	case !p.Agent.Running:
		return "no agent is running"
	case p.Outcome == Unknown:
		return "unknown: an agent is running, but its state can't be read"
	}
	return strings.Join(p.findings(), ", ")
}

// agent writes whether the agent runs, and its details.
func (p *page) agent() {
	a := &p.Agent
	p.line("VERSION", "kernosis "+cmp.Or(a.Version, "(version unknown)")+", Linux "+p.Kernel)
	parts := []string{"not running"}
	if a.Running {
		parts = []string{"running"}
		if a.Health == "" && a.PID == 0 {
			parts = []string{"seems to be running: it saved its state " + p.ago(a.Saved)}
		}
		if a.PID != 0 {
			parts = append(parts, fmt.Sprintf("pid %d", a.PID))
		}
		if !a.Started.IsZero() {
			parts = append(parts, fmt.Sprintf("since %s (%s)", p.clock(a.Started), display.Duration(p.At.Sub(a.Started).Round(time.Second))))
		}
	}
	if a.Health != "" {
		parts = append(parts, a.Endpoint+" answers "+a.Health)
	}
	p.line("AGENT", strings.Join(parts, ", "))
	var state []string
	if a.Journal != "" {
		state = append(state, a.Journal)
	}
	if !a.Saved.IsZero() {
		state = append(state, "state saved "+p.ago(a.Saved))
	}
	p.line("", strings.Join(state, "; "))
}

func (p *page) clock(t time.Time) string { return display.Clock(t, p.At) }

func (p *page) since(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return "since " + p.clock(t)
}

func (p *page) ago(t time.Time) string {
	return display.Duration(max(p.At.Sub(t).Round(time.Second), 0)) + " ago"
}

func (p *page) problems() *output.Rows {
	rows := &output.Rows{}
	hidden, more := 0, 0
	for i := range p.State.Problems {
		q := &p.State.Problems[i]
		switch {
		case p.Wide:
		case q.HiddenBy != "":
			hidden++
			continue
		case rows.Len() == p.Rows:
			more++
			continue
		}
		severity := string(q.Severity)
		if q.Severity == problem.Critical && q.counts() {
			severity = p.Colours.Bad(severity)
		}
		times := ""
		if q.Count > 1 {
			times = fmt.Sprintf("×%d", q.Count)
		}
		rows.Add(severity, cmp.Or(q.Reason, q.Rule), q.Subject, p.since(q.Since), times, p.about(q))
	}
	if more > 0 {
		rows.Add(fmt.Sprintf("and %d more (-o wide)", more))
	}
	if hidden > 0 {
		rows.Add(display.Count(hidden, "problem") + " hidden by their cause (-o wide)")
	}
	if len(p.State.Problems) == 0 && p.Outcome != Unknown {
		rows.Add("none")
	}
	return rows
}

// about returns a problem's message, with its mute and what hides it.
func (p *page) about(q *Problem) string {
	text := q.Message
	if !q.counts() {
		muted := "muted until " + p.clock(q.MutedUntil)
		if q.MutedWhy != "" {
			muted += " (" + q.MutedWhy + ")"
		}
		text = muted + ": " + text
	}
	if q.HiddenBy != "" {
		text = "hidden by " + q.HiddenBy + ": " + text
	}
	if p.Wide {
		text += " [" + q.Rule + "]"
	}
	return text
}

func (p *page) conditions() *output.Rows {
	rows := &output.Rows{}
	var well []string
	for _, status := range []problem.Status{problem.True, problem.Unknown, problem.False} {
		for _, c := range p.Conditions {
			switch {
			case c.Status != status:
			case status == problem.False && !p.Wide:
				well = append(well, c.Type)
			default:
				text := strings.TrimPrefix(c.Reason+": "+c.Message, ": ")
				rows.Add(p.Colours.Status(string(status)), c.Type, p.since(c.LastTransition), text)
			}
		}
	}
	if len(well) > 0 && !p.problemsOnly {
		rows.Add(string(problem.False), p.some(well))
	}
	return rows
}

// some joins names, as many as fit on a line.
func (p *page) some(names []string) string {
	room := p.Cells - label - len("attached") - 2
	n := len(names)
	for room > 0 && n > 1 && display.Cells(display.List(names, n)) > room {
		n--
	}
	return display.List(names, n)
}

func (p *page) sources() *output.Rows {
	rows := &output.Rows{}
	names := map[SourceState][]string{}
	for _, s := range p.Sources {
		switch {
		case s.State == Blind:
			why := s.Why
			if since := p.since(s.Since); since != "" {
				why += ", " + since
			}
			rows.Add(p.Colours.Doubtful(string(s.State)), s.Name+": "+why)
		case s.State == Fallback && !p.problemsOnly, p.Wide:
			rows.Add(string(s.State), strings.TrimSuffix(s.Name+": "+s.Why, ": "))
		default:
			names[s.State] = append(names[s.State], s.Name)
		}
	}
	for _, state := range []SourceState{Attached, Up} {
		if len(names[state]) > 0 && !p.problemsOnly {
			rows.Add(string(state), p.some(names[state]))
		}
	}
	return rows
}

func (p *page) losses() []string {
	var out []string
	for _, l := range p.State.Losses {
		count := "perhaps some"
		if l.Count > 0 {
			count = strconv.FormatUint(l.Count, 10)
		}
		text := l.What + ": " + count
		if l.Reason != "" {
			text += " (" + l.Reason + ")"
		}
		out = append(out, text)
	}
	switch {
	case len(out) > p.Rows && !p.Wide:
		return append(out[:p.Rows:p.Rows], fmt.Sprintf("and %d more (-o wide)", len(out)-p.Rows))
	case len(out) == 0 && p.Outcome != Unknown:
		return []string{"none since the agent started"}
	}
	return out
}

func (p *page) api() []string {
	a := &p.State.API
	if !a.Known {
		return nil
	}
	var parts []string
	for _, w := range a.Writes {
		parts = append(parts, w.Object+" "+p.ago(w.Last))
	}
	text := "not used: the agent does not report to an API server"
	switch {
	case len(parts) > 0:
		text = "last write accepted: " + strings.Join(parts, ", ")
	case a.Used:
		text = p.Colours.Doubtful("no write accepted yet")
	}
	if a.Pending {
		text += "; " + p.Colours.Doubtful("some conditions are not yet written")
	}
	return []string{text}
}

func (p *page) cost() []string {
	c := &p.State.Cost
	if c.RSSBytes == 0 {
		return nil
	}
	text := "RSS " + display.Bytes(c.RSSBytes)
	if c.Over > 0 {
		text += fmt.Sprintf(", CPU %.2f %% of one in %s", c.CPUPercent, display.Duration(c.Over.Round(time.Second)))
	}
	return []string{text + ", " + display.Duration(time.Duration(c.CPUSeconds*float64(time.Second))) + " of CPU time"}
}
