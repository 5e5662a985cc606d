package web

import (
	"bytes"
	"net/http"
	"regexp"
	"strings"

	"github.com/kernosis/kernosis/docs/problems"
)

// problem serves the documentation page of a problem.
func (p *Page) problem(w http.ResponseWriter, r *http.Request) {
	of := r.PathValue("name")
	text, ok := problems.Text(of)
	if !ok {
		http.NotFound(w, r)
		return
	}
	var b bytes.Buffer
	err := p.parse().ExecuteTemplate(&b, "problem.html", map[string]any{"Name": of, "Blocks": blocks(text)})
	write(w, r, b.Bytes(), err)
}

// block is a paragraph, a list, a table, a title or commands of a problem page.
type block struct {
	Kind  string   // title, section, lead, text, list, table, code
	Lines [][]span // one, except for a list or code
	Rows  [][][]span
}

type span struct {
	Kind   string // empty, code, link
	Strong bool
	Text   string
	Page   string // the page that a link points to
}

// blocks parses the Markdown used by problem pages: titles, paragraphs, lists, tables and fences.
func blocks(text string) []block {
	var out []block
	fenced := false
	for line := range strings.Lines(text) {
		line = strings.TrimRight(line, "\n")
		if strings.HasPrefix(line, "```") {
			if fenced = !fenced; fenced {
				out = append(out, block{Kind: "code"})
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
			last.Lines = append(last.Lines, []span{{Text: line}})
		case line == "":
			out = append(out, block{})
		case isTitle:
			out = append(out, block{Kind: "title", Lines: [][]span{spans(title)}})
		case isSection:
			out = append(out, block{Kind: "section", Lines: [][]span{spans(section)}})
		case isItem && last.Kind == "list":
			last.Lines = append(last.Lines, spans(item))
		case isItem:
			out = append(out, block{Kind: "list", Lines: [][]span{spans(item)}})
		case strings.HasPrefix(line, "|"):
			if last.Kind != "table" {
				out = append(out, block{Kind: "table"})
				last = &out[len(out)-1]
			}
			if strings.Trim(line, "|-: ") != "" {
				last.Rows = append(last.Rows, cells(line))
			}
		case len(line) > 1 && line[0] == '*' && line[1] != '*':
			out = append(out, block{Kind: "lead", Lines: [][]span{spans(strings.Trim(line, "*"))}})
		default:
			out = append(out, block{Kind: "text", Lines: [][]span{spans(line)}})
		}
	}
	return out
}

func cells(line string) (out [][]span) {
	for cell := range strings.SplitSeq(strings.Trim(line, "|"), "|") {
		out = append(out, spans(strings.TrimSpace(cell)))
	}
	return out
}

// spans splits a line into code, bold text, links and plain text.
func spans(line string) (out []span) {
	for line != "" {
		m := regexp.MustCompile("`([^`]+)`|\\*\\*([^*]+)\\*\\*|\\[([^\\]]*)\\]\\(([^)]*)\\)").FindStringSubmatchIndex(line)
		if m == nil {
			return append(out, span{Text: line})
		}
		if m[0] > 0 {
			out = append(out, span{Text: line[:m[0]]})
		}
		group := func(n int) string { return line[m[2*n]:m[2*n+1]] }
		switch {
		case m[2] >= 0:
			out = append(out, span{Kind: "code", Text: group(1)})
		case m[4] >= 0:
			for _, inner := range spans(group(2)) {
				inner.Strong = true
				out = append(out, inner)
			}
		default:
			// Other pages of the documentation are not served: a link to one becomes plain text.
			s := span{Text: strings.TrimPrefix(group(3), "../")}
			if page, ok := strings.CutSuffix(group(4), ".md"); ok && problems.Has(page) {
				s.Kind, s.Page = "link", page
			}
			out = append(out, s)
		}
		line = line[m[1]:]
	}
	return out
}
