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
		fmt.Fprintf(&b, "  label=%s\n  labelloc=t\n", quoteDOT(label(d.Title, 80)))
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
		text := fmt.Sprintf("%d %s", id, d.name(id, maxLabel))
		quoted := quoteDOT(text)
		if detail := d.detail(id); detail != "" {
			quoted = strings.TrimSuffix(quoted, `"`) + `\n` + strings.TrimPrefix(quoteDOT(detail), `"`)
		}
		fmt.Fprintf(&b, "  n%d [label=%s style=%q fillcolor=%q color=%q penwidth=%d]\n", id, quoted, style, l.fill, l.stroke, width)
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

// quoteDOT quotes a string so that nothing in it is an escape: Graphviz replaces \N, \G and others
// in labels, so each backslash is doubled. It also reads HTML entities in labels.
func quoteDOT(s string) string {
	return `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`, "&", "&amp;").Replace(s) + `"`
}
