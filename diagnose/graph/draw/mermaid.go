package draw

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
)

// Mermaid returns the drawing as a Mermaid flowchart.
func Mermaid(d *Drawing) string {
	var b strings.Builder
	if d.Title != "" {
		title, err := json.Marshal(label(d.Title, 80)) // a JSON string is also a YAML string
		if err == nil {
			// %%{ begins a directive anywhere.
			fmt.Fprintf(&b, "---\ntitle: %s\n---\n", strings.ReplaceAll(string(title), "%", `\u0025`))
		}
	}
	b.WriteString("flowchart TD\n")
	var links, taken []string
	var classes []string // in the order of their first use
	members := map[string][]string{}
	for id := range d.Graph.Len() {
		name := fmt.Sprintf("n%d", id)
		if id == 0 {
			fmt.Fprintf(&b, "  %s([%q])\n", name, "start")
		} else {
			first, second := d.lines(id)
			text := escapeMermaid(first)
			if second != "" {
				text += "<br/>" + escapeMermaid(second)
			}
			fmt.Fprintf(&b, "  %s[\"%s\"]\n", name, text)
			class := lookOf(d.note(id).State).class
			if members[class] == nil {
				classes = append(classes, class)
				fmt.Fprintf(&b, "  classDef %s %s\n", class, mermaidStyle(lookOf(d.note(id).State)))
			}
			members[class] = append(members[class], name)
		}
		for _, to := range d.Graph.Node(id).To {
			arrow := "-->"
			if d.taken(id, to) {
				arrow = "==>"
				taken = append(taken, strconv.Itoa(len(links)))
			}
			links = append(links, fmt.Sprintf("  %s %s n%d\n", name, arrow, to))
		}
	}
	for _, l := range links {
		b.WriteString(l)
	}
	for _, c := range classes {
		fmt.Fprintf(&b, "  class %s %s\n", strings.Join(members[c], ","), c)
	}
	if len(taken) > 0 {
		fmt.Fprintf(&b, "  linkStyle %s stroke:%s,stroke-width:3px\n", strings.Join(taken, ","), takenColour)
	}
	return b.String()
}

func mermaidStyle(l look) string {
	style := fmt.Sprintf("fill:%s,stroke:%s,color:%s", l.fill, l.stroke, textColour)
	if l.dashed {
		style += ",stroke-dasharray:5 3"
	}
	return style
}

// escapeMermaid escapes text for a quoted label. Mermaid has its own entities, and interprets HTML,
// Markdown and directives (%%{) even in labels.
func escapeMermaid(s string) string {
	return strings.NewReplacer(
		"#", "#35;", "&", "#amp;", "<", "#lt;", ">", "#gt;", `"`, "#quot;", "`", "#96;", `\`, "#92;",
		"*", "#42;", "_", "#95;", "~", "#126;", ";", "#59;",
		"%", "#37;", "{", "#123;", "}", "#125;",
	).Replace(s)
}
