package draw

import (
	"fmt"
	"slices"
	"strings"
	"unicode"

	"github.com/kernosis/kernosis/diagnose/graph"
)

// Drawing is what is shown of a graph.
type Drawing struct {
	Title string // the OperationSet's or Diagnosis' name
	Graph *graph.Graph
	// Notes say more of nodes, by id. There may be fewer than nodes.
	Notes []Note
	// Path is the way that was taken, without the start; nil: none is marked.
	Path []int
}

// Note is what is known of a node besides the graph.
type Note struct {
	Effect string // Collect, Check, Remediate; empty: not known
	// State is what became of it: Succeeded, Failed, Refuted, WouldRun, Withheld,
	// AwaitingApproval, Running, Cancelled, Unknown; empty: it has not run. Others are
	// shown as they are.
	State   string
	Message string // shown where there is room for it
}

// maxLabel bounds a name in a drawing, in characters. The API's names may be longer than
// any box should be.
const maxLabel = 40

// label is text that can be shown: characters that can't are replaced, what is too long
// is cut.
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

// name is a node's first line, full its whole name.
func (d *Drawing) name(id, most int) string {
	if id == 0 {
		return "start"
	}
	return label(d.Graph.Node(id).Operation, most)
}

// detail is a node's second line: its effect, what it uses, what became of it.
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

// uses names the nodes whose results a node is given.
func uses(dependences []int) string {
	const most = 6
	list := fmt.Sprint(dependences[:min(most, len(dependences))])
	out := "uses " + strings.ReplaceAll(strings.Trim(list, "[]"), " ", ", ")
	if len(dependences) > most {
		out += ", …"
	}
	return out
}

// ran reports whether the drawing is of a run, and not of a graph alone.
func (d *Drawing) ran() bool {
	return slices.ContainsFunc(d.Notes, func(n Note) bool { return n.State != "" })
}

// taken reports whether the way that was taken goes over an edge.
func (d *Drawing) taken(from, to int) bool {
	if from == 0 {
		return len(d.Path) > 0 && d.Path[0] == to
	}
	i := slices.Index(d.Path, from)
	return i >= 0 && i+1 < len(d.Path) && d.Path[i+1] == to
}

// onPath reports whether the way that was taken comes to a node.
func (d *Drawing) onPath(id int) bool {
	return len(d.Path) > 0 && (id == 0 || slices.Contains(d.Path, id))
}

// look is how a state is shown, in words too, for people who can't distinguish colours.
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
