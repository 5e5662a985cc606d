package draw

import (
	"fmt"
	"strings"
)

// DOT returns the drawing in the language of Graphviz.
func DOT(d *Drawing) string {
	var b strings.Builder
	b.WriteString("digraph {\n")
	if d.Title != "" {
		fmt.Fprintf(&b, "  label=\"%s\"\n  labelloc=t\n", escapeDOT(label(d.Title, 80)))
	}
	b.WriteString("  ordering=out\n  node [shape=box style=\"rounded,filled\" fontname=\"sans-serif\"]\n")
	for id := range d.Graph.Len() {
		l := lookOf(d.note(id).State)
		style := "rounded,filled"
		if l.dashed {
			style += ",dashed"
		}
		width := 1
		if d.onPath(id) {
			width = 3
		}
		if id == 0 {
			fmt.Fprintf(&b, "  n0 [label=\"start\" shape=oval style=filled fillcolor=\"#ffffff\" penwidth=%d]\n", width)
			continue
		}
		first, second := d.lines(id)
		text := escapeDOT(first)
		if second != "" {
			text += `\n` + escapeDOT(second)
		}
		fmt.Fprintf(&b, "  n%d [label=\"%s\" style=%q fillcolor=%q color=%q penwidth=%d]\n", id, text, style, l.fill, l.stroke, width)
	}
	for id := range d.Graph.Len() {
		for _, to := range d.Graph.Node(id).To {
			attributes := ""
			if d.taken(id, to) {
				attributes = fmt.Sprintf(" [color=%q penwidth=3]", takenColour)
			}
			fmt.Fprintf(&b, "  n%d -> n%d%s\n", id, to, attributes)
		}
	}
	b.WriteString("}\n")
	return b.String()
}

// escapeDOT escapes text for a quoted label. Graphviz replaces \N, \G and others there, so each
// backslash is doubled, and reads HTML entities.
func escapeDOT(s string) string {
	return strings.NewReplacer(`\`, `\\`, `"`, `\"`, "&", "&amp;").Replace(s)
}
