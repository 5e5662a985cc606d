package draw

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"unicode"

	"github.com/kernosis/kernosis/diagnose/api/v1alpha1"
	"github.com/kernosis/kernosis/diagnose/graph"
)

// Drawing is a graph with the data to draw.
type Drawing struct {
	Title string // the OperationSet's or Diagnosis' name
	Graph *graph.Graph
	// Notes has more data about nodes, by id. There may be fewer notes than nodes.
	Notes []Note
	// Path is the path to mark, without the start; nil: none.
	Path []int
}

// Note is what is known about a node besides the graph.
type Note struct {
	Effect string // Collect, Check, Remediate; empty: unknown
	// State is Succeeded, Failed, Refuted, WouldRun, Withheld, AwaitingApproval, Running, Cancelled
	// or Unknown; empty: the node has not run. Other states are shown unchanged.
	State   string
	Message string // shown if there is room for it
}

// Of returns the drawing of a Diagnosis: its graph with the nodes' effects ("" if unknown), the state
// of each node, and the path that succeeded.
func Of(title string, g *graph.Graph, effect func(id int) v1alpha1.Effect, s *v1alpha1.DiagnosisStatus) *Drawing {
	d := &Drawing{Title: title, Graph: g, Notes: make([]Note, g.Len())}
	for id := 1; id < g.Len(); id++ {
		d.Notes[id].Effect = string(effect(id))
	}
	for i := range s.Results {
		r := &s.Results[i]
		if id := int(r.ID); id > 0 && id < g.Len() { // others may write a status, too
			d.Notes[id].State, d.Notes[id].Message = string(r.State), r.Message
		}
	}
	for _, id := range s.SucceededPath {
		d.Path = append(d.Path, int(id))
	}
	return d
}

// maxLabel bounds a name in a drawing, in characters. Names in the API can be too long for a box.
const maxLabel = 40

// label returns s made safe to print: it replaces unprintable characters and cuts a text that is
// too long.
func label(s string, most int) string {
	s = strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) {
			return unicode.ReplacementChar
		}
		return r
	}, strings.ToValidUTF8(s, string(unicode.ReplacementChar)))
	if runes := []rune(s); len(runes) > most {
		return string(runes[:most-1]) + "…"
	}
	return s
}

func (d *Drawing) note(id int) Note {
	if id < len(d.Notes) {
		return d.Notes[id]
	}
	return Note{}
}

// name returns a node's first line, cut to most characters.
func (d *Drawing) name(id, most int) string {
	if id == 0 {
		return "start"
	}
	return label(d.Graph.Node(id).Operation, most)
}

// lines returns the two lines of a node's box.
func (d *Drawing) lines(id int) (first, second string) {
	if id == 0 {
		return "start", ""
	}
	return strconv.Itoa(id) + " " + d.name(id, maxLabel), d.detail(id)
}

// detail returns a node's second line: its effect, the nodes it uses, its state.
func (d *Drawing) detail(id int) string {
	if id == 0 {
		return ""
	}
	n := d.note(id)
	var parts []string
	if n.Effect != "" {
		parts = append(parts, label(n.Effect, maxLabel))
	}
	if deps := d.Graph.Node(id).Dependences; len(deps) > 0 {
		parts = append(parts, uses(deps))
	}
	if n.State != "" {
		parts = append(parts, label(n.State, maxLabel))
	} else if d.ran() {
		parts = append(parts, "not run")
	}
	return strings.Join(parts, " · ")
}

// uses lists the nodes whose results a node gets.
func uses(dependences []int) string {
	const most = 6
	list := fmt.Sprint(dependences[:min(most, len(dependences))])
	out := "uses " + strings.ReplaceAll(strings.Trim(list, "[]"), " ", ", ")
	if len(dependences) > most {
		out += ", …"
	}
	return out
}

// ran reports whether the drawing shows a run, not just a graph.
func (d *Drawing) ran() bool {
	return slices.ContainsFunc(d.Notes, func(n Note) bool { return n.State != "" })
}

// taken reports whether the marked path contains an edge.
func (d *Drawing) taken(from, to int) bool {
	if from == 0 {
		return len(d.Path) > 0 && d.Path[0] == to
	}
	i := slices.Index(d.Path, from)
	return i >= 0 && i+1 < len(d.Path) && d.Path[i+1] == to
}

// onPath reports whether the marked path contains a node.
func (d *Drawing) onPath(id int) bool {
	return len(d.Path) > 0 && (id == 0 || slices.Contains(d.Path, id))
}

// look is how a state is drawn. The state is also written out, for people who can't distinguish
// colours.
type look struct {
	class, fill, stroke string
	dashed              bool
}

func lookOf(state string) look {
	switch state {
	case "Succeeded":
		return look{"succeeded", "#e3f4e6", "#1a7431", false}
	case "Failed":
		return look{"failed", "#fbe4e4", "#b3261e", false}
	case "Refuted":
		return look{"refuted", "#f3efe6", "#7a6a3f", false}
	case "WouldRun", "Withheld", "AwaitingApproval":
		return look{"withheld", "#e5effb", "#1f5fa8", true}
	case "Running":
		return look{"running", "#fff6d6", "#8a6d00", false}
	case "Cancelled", "Unknown":
		return look{"unknown", "#f1e5f7", "#6f2c91", false}
	}
	return look{"notrun", "#ffffff", "#6b7280", false}
}
