package why

import (
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/kernosis/kernosis/collector/display"
	"github.com/kernosis/kernosis/detector/problem"
)

// Outcome is the conclusion of an answer.
type Outcome string

// Outcomes.
const (
	Found   Outcome = "cause"   // at least one cause
	Healthy Outcome = "healthy" // none, and all sources work
	Unsure  Outcome = "blind"   // none, but some sources were down or could not be read
)

// Answer is the result of Build. Its text is safe to print.
type Answer struct {
	Subject Subject   `json:"subject"`
	At      time.Time `json:"at"`
	Outcome Outcome   `json:"outcome"`
	State   string    `json:"state"` // state of the subject in a few words
	// Causes are the causes found, the most conclusive first.
	Causes []Cause `json:"causes,omitempty"`
	// MoreCauses is the number of causes left out.
	MoreCauses int      `json:"moreCauses,omitempty"`
	Node       []string `json:"node,omitempty"` // for a pod: conditions of its node that are True
	Seen       []Moment `json:"seen,omitempty"` // the latest, oldest first
	// Earlier is the number of moments left out before these.
	Earlier int      `json:"earlier,omitempty"`
	Not     []string `json:"not,omitempty"` // excluded causes, with their evidence
	Do      []string `json:"do,omitempty"`
	Held    []string `json:"held,omitempty"` // repairs that are due and were not made
	Blind   []string `json:"blind,omitempty"`
	Unread  []string `json:"unread,omitempty"`
	Read    []string `json:"read,omitempty"`
}

// Cause is one cause of what is wrong with the subject.
type Cause struct {
	Reason    string           `json:"reason"`
	Message   string           `json:"message"`
	Why       []string         `json:"why,omitempty"`     // the explanation
	Effects   []string         `json:"effects,omitempty"` // what it led to
	Severity  problem.Severity `json:"severity,omitempty"`
	Lasts     bool             `json:"lasts"`
	First     time.Time        `json:"first,omitzero"`
	Last      time.Time        `json:"last,omitzero"`
	Count     uint64           `json:"count,omitempty"`
	Diagnosis string           `json:"diagnosis,omitempty"` // the one that found it
	Doc       string           `json:"doc,omitempty"`
	Muted     string           `json:"muted,omitempty"` // until when, and why
}

// Moment is something that happened.
type Moment struct {
	At      time.Time `json:"at"`
	Text    string    `json:"text"`
	Details []string  `json:"details,omitempty"`
}

const (
	maxCauses     = 3
	maxNodeCauses = 6
	maxMoments    = 10
	maxList       = 8
	// maxText bounds one text from elsewhere, in bytes.
	maxText = 512
)

const label = 8

// minWidth is the width below which lines are not wrapped, because single words would fill them.
const minWidth = 40

// View configures how an answer is printed.
type View struct {
	// Cells is the width of a line; lines are not wrapped if it is below 40.
	Cells int
	// Label styles the label of a line, such as CAUSE. May be nil.
	Label func(label string) string
}

// WriteText writes the answer as text.
func (a *Answer) WriteText(w io.Writer, v View) error {
	p := &page{View: v}
	if p.Label == nil {
		p.Label = func(label string) string { return label }
	}
	p.line("", a.head())
	for i := range a.Causes {
		a.cause(p, &a.Causes[i])
	}
	if a.MoreCauses > 0 {
		p.line("", fmt.Sprintf("and %d more", a.MoreCauses))
	}
	if len(a.Causes) == 0 {
		p.line("CAUSE", "none known")
	}
	p.list("NODE", a.Node)
	a.seen(p)
	p.list("NOT", a.Not)
	p.list("DO", a.Do)
	p.list("HELD", a.Held)
	p.list("BLIND", a.Blind)
	p.list("UNREAD", a.Unread)
	if len(a.Causes) == 0 {
		p.list("READ", a.Read)
	}
	if _, err := io.WriteString(w, p.b.String()); err != nil {
		return fmt.Errorf("write answer: %w", err)
	}
	return nil
}

func (a *Answer) head() string {
	text := a.Subject.String()
	if a.Subject.Container != "" {
		text += " container " + a.Subject.Container
	}
	return text + ": " + a.State
}

func (a *Answer) cause(p *page, c *Cause) {
	text := c.Message
	if !strings.Contains(text, c.Reason) {
		text = c.Reason + ": " + text
	}
	switch {
	case c.Lasts && !c.First.IsZero():
		text += " (since " + display.Clock(c.First, a.At) + ")"
	case !c.Last.IsZero():
		text += " (at " + display.Clock(c.Last, a.At) + ")"
	}
	p.line("CAUSE", text)
	if c.Muted != "" {
		p.line("", c.Muted)
	}
	p.list("WHY", c.Why)
	p.list("LED TO", c.Effects)
}

func (a *Answer) seen(p *page) {
	label := "SEEN"
	if a.Earlier > 0 {
		p.line(label, fmt.Sprintf("… and %d before", a.Earlier))
		label = ""
	}
	for _, m := range a.Seen {
		at := display.Clock(m.At, a.At)
		p.hanging(label, at+" "+m.Text, display.Cells(at)+1)
		for _, d := range m.Details {
			p.hanging("", strings.Repeat(" ", display.Cells(at)+1)+d, display.Cells(at)+3)
		}
		label = ""
	}
}

type page struct {
	View
	b strings.Builder
}

func (p *page) list(label string, texts []string) {
	for _, t := range texts {
		p.line(label, t)
		label = ""
	}
}

// line writes a text after its label. The first line has no label and starts at the left.
func (p *page) line(label, text string) {
	if p.b.Len() == 0 {
		p.wrap("", text, 2)
		return
	}
	p.hanging(label, text, 0)
}

// hanging writes a text after its label, with continuation lines indented further.
func (p *page) hanging(name, text string, further int) {
	p.wrap(p.Label(name)+strings.Repeat(" ", label-len(name)), text, label+further)
}

// wrap breaks a text between words if it is too long.
func (p *page) wrap(start, text string, indent int) {
	line, at := start, display.Cells(start)
	lead := text[:len(text)-len(strings.TrimLeft(text, " "))]
	line, at = line+lead, at+len(lead)
	empty := true
	for word := range strings.FieldsSeq(text) {
		n := display.Cells(word)
		if !empty && p.Cells >= minWidth && at+1+n > p.Cells {
			p.b.WriteString(strings.TrimRight(line, " ") + "\n")
			line, at, empty = strings.Repeat(" ", indent), indent, true
		}
		if !empty {
			line, at = line+" ", at+1
		}
		line, at, empty = line+word, at+n, false
	}
	p.b.WriteString(strings.TrimRight(line, " ") + "\n")
}
