package web

import (
	"net/http"
	"regexp"
	"strings"

	g "maragu.dev/gomponents"
	h "maragu.dev/gomponents/html"

	"github.com/kernosis/kernosis/docs/problems"
)

// problem serves the documentation page of a problem.
func (p *Page) problem(w http.ResponseWriter, r *http.Request) {
	of := r.PathValue("name")
	markdown, ok := problems.Text(of)
	if !ok {
		http.NotFound(w, r)
		return
	}
	write(w, render(problemPage(of, markdown)))
}

// problemPage returns the page of a problem from its Markdown.
func problemPage(name, markdown string) g.Node {
	return document(name, "../", nil,
		bar(h.A(h.Href("../"), text("Overview"))),
		h.Main(h.Class("prose"), each(blocks(markdown), block.node)),
	)
}

// block is a paragraph, a list, a table, a title or commands of a problem page.
type block struct {
	kind  string   // title, section, lead, text, list, table, code; empty between blocks
	lines []string // Markdown; one line, except for a list, table or code
}

func (b block) node() g.Node {
	switch b.kind {
	case "title":
		return h.H1(spans(b.lines[0]))
	case "section":
		return h.H2(spans(b.lines[0]))
	case "lead":
		return h.P(h.Class("lead"), spans(b.lines[0]))
	case "text":
		return h.P(spans(b.lines[0]))
	case "list":
		return h.Ul(each(b.lines, func(line string) g.Node { return h.Li(spans(line)) }))
	case "table":
		return h.Div(h.Class("table"), h.Table(
			h.Tr(g.Map(cells(b.lines[0]), func(cell string) g.Node { return h.Th(h.Scope("col"), spans(cell)) })),
			each(b.lines[1:], func(line string) g.Node {
				return h.Tr(g.Map(cells(line), func(cell string) g.Node { return h.Td(spans(cell)) }))
			}),
		))
	case "code":
		return h.Pre(g.Text(strings.Join(b.lines, "\n")))
	}
	return nil
}

// blocks parses the Markdown used by problem pages: titles, paragraphs, lists, tables and fences.
func blocks(markdown string) []block {
	var out []block
	fenced := false
	for line := range strings.Lines(markdown) {
		line = strings.TrimRight(line, "\n")
		if strings.HasPrefix(line, "```") {
			if fenced = !fenced; fenced {
				out = append(out, block{kind: "code"})
			}
			continue
		}
		last := &block{}
		if len(out) > 0 {
			last = &out[len(out)-1]
		}
		item, isItem := strings.CutPrefix(line, "- ")
		title, isTitle := strings.CutPrefix(line, "# ")
		section, isSection := strings.CutPrefix(line, "## ")
		switch {
		case fenced:
			last.lines = append(last.lines, line)
		case line == "":
			out = append(out, block{})
		case isTitle:
			out = append(out, block{"title", []string{title}})
		case isSection:
			out = append(out, block{"section", []string{section}})
		case isItem && last.kind == "list":
			last.lines = append(last.lines, item)
		case isItem:
			out = append(out, block{"list", []string{item}})
		case strings.HasPrefix(line, "|") && last.kind != "table":
			out = append(out, block{"table", []string{line}})
		case strings.HasPrefix(line, "|"):
			if strings.Trim(line, "|-: ") != "" { // not the line below the headings
				last.lines = append(last.lines, line)
			}
		case len(line) > 1 && line[0] == '*' && line[1] != '*':
			out = append(out, block{"lead", []string{strings.Trim(line, "*")}})
		default:
			out = append(out, block{"text", []string{line}})
		}
	}
	return out
}

// cells splits a row of a table.
func cells(line string) []string {
	out := strings.Split(strings.Trim(line, "|"), "|")
	for i := range out {
		out[i] = strings.TrimSpace(out[i])
	}
	return out
}

// spans converts code, bold text and links within a line.
func spans(line string) (out g.Group) {
	for line != "" {
		m := regexp.MustCompile("`([^`]+)`|\\*\\*([^*]+)\\*\\*|\\[([^\\]]*)\\]\\(([^)]*)\\)").FindStringSubmatchIndex(line)
		if m == nil {
			return append(out, g.Text(line))
		}
		out = append(out, g.Text(line[:m[0]]))
		group := func(n int) string { return line[m[2*n]:m[2*n+1]] }
		switch {
		case m[2] >= 0:
			out = append(out, h.Code(g.Text(group(1))))
		case m[4] >= 0:
			out = append(out, h.Strong(spans(group(2))))
		default:
			// Other pages of the documentation are not served: a link to one becomes plain text.
			label := g.Text(strings.TrimPrefix(group(3), "../"))
			if page, ok := strings.CutSuffix(group(4), ".md"); ok && problems.Has(page) {
				label = h.A(h.Href(page), label)
			}
			out = append(out, label)
		}
		line = line[m[1]:]
	}
	return out
}
