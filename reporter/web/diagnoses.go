package web

import (
	"cmp"
	"net/url"
	"time"

	g "maragu.dev/gomponents"
	h "maragu.dev/gomponents/html"

	"github.com/kernosis/kernosis/collector/display"
)

const (
	maxDiagnoses = 50
	// maxSteps bounds the steps, repairs and files shown of a run: a graph has at most 256 nodes.
	maxSteps = 256
)

// Diagnosis is a Diagnosis as the page shows it.
type Diagnosis struct {
	ID   string // of the run
	Name string
	// Trigger is what created it; empty if a person did.
	Trigger, OperationSet, Subject string
	Phase                          string
	// Outcome is one word; empty if Cause or Phase says it.
	Outcome        string
	Started, Ended time.Time // Ended is zero while it runs
	// Cause is the verdict. If it is nil, Message says why there is none.
	Cause    *Cause
	Message  string
	Excluded []Cause
	Steps    []Step
	Path     string // the path on which it ended
	Repairs  []string
	Files    []string
	// Graph reports whether the run has a drawing.
	Graph bool
}

// Cause is a cause as one word and as a sentence.
type Cause struct{ Reason, Message string }

// Step is the result of one node of the graph.
type Step struct {
	ID                int
	Operation, Effect string
	// Result is one of: yes, no, done, failed, would run.
	Result, Text string
	Took         time.Duration // 0 if it did not run
	OnPath       bool
}

// diagnoses are the Diagnoses of a node.
type diagnoses struct {
	newest []Diagnosis
	all    int // how many there are
	err    error
	off    bool
}

func (d *diagnoses) section() g.Node {
	shown := first(d.newest, maxDiagnoses)
	none := "No Diagnosis has run on this node."
	if d.off {
		none = "Diagnoses are switched off."
	}
	older := d.all - len(shown)
	return section("diagnoses", "Diagnoses",
		part("diagnoses-error", failure("Diagnoses can't be read", d.err)),
		h.Div(h.ID("diagnosis-list"), h.Class("diagnoses"), keyed(), each(shown, diagnosis)),
		empty(none),
		part("more-diagnoses", g.If(older > 0,
			note(number(older), text(" older ones are not shown; "), h.Code(text("kernosis diagnose show")), text(" lists all.")))),
	)
}

func diagnosis(d Diagnosis) g.Node {
	class, word, verdict := "unknown", cmp.Or(name(d.Outcome), d.Phase), cmp.Or(d.Message, "No verdict.")
	if d.Cause != nil {
		class, word, verdict = "found", name(d.Cause.Reason), d.Cause.Message
	}
	return h.Details(h.Data("key", key(d.ID)),
		h.Summary(
			badge(class, text(word)), text(" "),
			h.Span(h.Class("what"), text(d.Name), g.If(d.Subject != "", g.Group{text(" "), h.Span(h.Class("mono"), text(d.Subject))})), text(" "),
			since(d.Started),
		),
		h.Div(h.Class("inside"),
			h.P(h.Class("verdict"), text(verdict)),
			d.facts(),
			g.If(d.Graph, d.graph()),
			g.If(len(d.Steps) > 0, d.results()),
		),
	)
}

func (d *Diagnosis) facts() g.Node {
	took := ""
	if !d.Started.IsZero() && !d.Ended.IsZero() {
		took = display.Duration(d.Ended.Sub(d.Started))
	}
	optional := func(term, value string) g.Node { return g.If(value != "", fact(term, text(value))) }
	return h.Dl(h.Class("plain"),
		fact("Trigger", text(cmp.Or(d.Trigger, "none (created by a person)"))),
		optional("OperationSet", d.OperationSet),
		fact("Phase", text(d.Phase)),
		optional("Took", took),
		optional("Path", d.Path),
		each(d.Excluded, func(c Cause) g.Node { return fact("Excluded", text(c.Reason), text(": "), text(c.Message)) }),
		each(first(d.Repairs, maxSteps), func(repair string) g.Node { return fact("Repair", text(repair)) }),
		each(first(d.Files, maxSteps), func(file string) g.Node { return fact("File", h.Class("mono"), text(file)) }),
	)
}

// graph returns the drawing, which the browser loads when it is visible.
func (d *Diagnosis) graph() g.Node {
	of := "Graph of " + safe(d.Name)
	alt := of
	if d.Path != "" {
		alt += "; path taken: " + safe(d.Path)
	}
	file := "diagnoses/" + url.PathEscape(d.ID) + ".svg"
	return g.Group{
		h.Div(h.Class("graph"), h.TabIndex("0"), h.Role("region"), h.Aria("label", of),
			h.Img(h.Src(file), h.Loading("lazy"), h.Alt(alt+". The table has the results."))),
		h.P(h.A(h.Href(file), text("Open the graph on its own page"))),
	}
}

func (d *Diagnosis) results() g.Node {
	return table(hiddenCaption("Results of "+d.Name), g.Group{numberColumn("Node"), columns("Operation", "Result", "Took", "Finding")},
		each(first(d.Steps, maxSteps), stepRow))
}

func stepRow(s Step) g.Node {
	took := ""
	if s.Took > 0 {
		took = display.Duration(s.Took)
	}
	return h.Tr(g.If(s.OnPath, h.Class("path")),
		cell("number", number(s.ID)),
		rowHeader(text(s.Operation), sub(s.Effect)),
		h.Td(text(s.Result), g.If(s.OnPath, h.Span(h.Class("hidden"), text(", on the path taken")))),
		labelled("Took", text(took)),
		cell("text", text(s.Text)),
	)
}
