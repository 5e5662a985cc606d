package web

import (
	"bytes"
	"io"
	"strconv"
	"strings"
	"time"

	g "maragu.dev/gomponents"
	h "maragu.dev/gomponents/html"

	"github.com/kernosis/kernosis/collector/display"
	"github.com/kernosis/kernosis/docs/problems"
)

const (
	// maxText bounds a displayed text.
	maxText = 1024
	// maxName bounds a displayed name, which is not wrapped.
	maxName = 80
)

func safe(s string) string { return display.Safe(s, maxText) }

// name makes a name, such as a reason, safe to display.
func name(s string) string { return display.Safe(s, maxName) }

// text returns an untrusted text, safe and escaped.
func text(s string) g.Node { return g.Text(safe(s)) }

func number[N int | uint64](n N) g.Node { return g.Text(strconv.FormatUint(uint64(n), 10)) }

// render returns the HTML of a node.
func render(n g.Node) []byte {
	var b bytes.Buffer
	_ = n.Render(&b) // a buffer never fails
	return b.Bytes()
}

// each returns a node, or nil, for each item. It builds one only when the previous one is written,
// so that a long list takes little memory.
func each[T any](list []T, of func(T) g.Node) g.Node {
	return g.NodeFunc(func(w io.Writer) error {
		for _, item := range list {
			if err := (g.Group{of(item)}).Render(w); err != nil {
				return err
			}
		}
		return nil
	})
}

// first returns at most the given number of items.
func first[T any](list []T, most int) []T { return list[:min(len(list), most)] }

// section returns a section of the page. The frame's links lead to its heading.
func section(id, heading string, content ...g.Node) g.Node {
	return h.Section(h.Aria("labelledby", id),
		h.H2(h.ID(id), h.TabIndex("-1"), text(heading)),
		g.Group(content),
	)
}

// part returns an element whose content page.js replaces when it changes.
func part(id string, content ...g.Node) g.Node {
	return h.Div(h.ID(id), g.Attr("data-part"), g.Group(content))
}

// keyed marks an element whose children have keys: page.js replaces only those that change.
func keyed() g.Node { return g.Attr("data-list") }

// facts returns the values in the header of the page.
func facts(list ...g.Node) g.Node { return h.Dl(h.ID("facts"), g.Attr("data-part"), g.Group(list)) }

func fact(term string, value ...g.Node) g.Node {
	return h.Div(h.Dt(text(term)), h.Dd(value...))
}

// summary returns one line on the state of a table, in the color of the worst severity. That is empty
// if all is well.
func summary(worst, line string) g.Node {
	return part("summary", h.Role("status"), h.P(h.Class("summary "+worst), text(line)))
}

// failure returns what does not work and why, or nothing without an error.
func failure(what string, err error) g.Node {
	if err == nil {
		return nil
	}
	return h.P(h.Class("note bad"), text(what+": "+err.Error()))
}

func note(content ...g.Node) g.Node { return h.P(h.Class("note"), g.Group(content)) }

// notShown returns how many rows a table lacks.
func notShown(n int) g.Node {
	return part("more", g.If(n > 0, note(number(n), text(" more are not shown."))))
}

// empty returns the text that page.css shows in place of a table or list without items.
func empty(s string) g.Node { return h.P(h.Class("empty"), text(s)) }

// filters returns the fields by which page.js hides rows. noun names the rows in the plural; levels
// are the options for the least severity.
func filters(heading, rows, noun, severity string, levels ...g.Node) g.Node {
	return h.Div(h.Class("filters"), h.Role("search"), h.Aria("label", heading),
		h.Label(text("Filter "), h.Input(h.ID("filter"), h.Data("rows", rows), h.Data("noun", noun), h.Type("search"),
			h.AutoComplete("off"), g.Attr("spellcheck", "false"), h.Placeholder("text in any column"))),
		h.Label(text(severity+" "), h.Select(h.ID("severity"), g.Group(levels))),
		h.Span(h.ID("shown"), h.Role("status")),
	)
}

func level(severity, s string) g.Node { return h.Option(h.Value(severity), text(s)) }

// table returns a table. rows may contain attributes of its body.
func table(caption, columns g.Node, rows ...g.Node) g.Node {
	return h.Div(h.Class("table"), h.Table(caption, h.THead(h.Tr(columns)), h.TBody(rows...)))
}

// hiddenCaption returns a caption for screen readers, where the heading says it to others.
func hiddenCaption(s string) g.Node { return h.Caption(h.Class("hidden"), text(s)) }

func columns(names ...string) g.Group {
	return g.Map(names, func(name string) g.Node { return h.Th(h.Scope("col"), text(name)) })
}

func numberColumn(name string) g.Node { return h.Th(h.Scope("col"), h.Class("number"), text(name)) }

// rowHeader returns the cell that names a row.
func rowHeader(content ...g.Node) g.Node { return h.Th(h.Scope("row"), g.Group(content)) }

// cell returns a cell of the given class.
func cell(class string, content ...g.Node) g.Node { return h.Td(h.Class(class), g.Group(content)) }

// labelled returns a cell that keeps its column's name on narrow screens, which show no headings.
func labelled(column string, content ...g.Node) g.Node {
	return h.Td(h.Data("label", column), g.Group(content))
}

// badge returns a word on a colored background. page.css has the colors by class.
func badge(class string, content ...g.Node) g.Node {
	return h.Span(h.Class("badge "+class), g.Group(content))
}

// sub returns a second line in small print, or nothing if it is empty.
func sub(s string) g.Node { return g.If(s != "", h.Span(h.Class("sub"), text(s))) }

// moment returns a time.
func moment(t time.Time, attributes ...g.Node) g.Node {
	t = t.UTC()
	return h.Time(h.DateTime(t.Format("2006-01-02T15:04:05.000Z")), g.Group(attributes), text(t.Format(time.DateTime)))
}

// since returns a time after which page.js shows its age, or nothing if it is zero.
func since(t time.Time) g.Node {
	if t.IsZero() {
		return nil
	}
	return moment(t, g.Attr("data-age"))
}

// problemLink returns the name of a problem, which links to the page in docs/problems if there is one.
func problemLink(page, s string) g.Node {
	if !problems.Has(page) {
		return text(s)
	}
	return h.A(h.Href("problems/"+strings.TrimPrefix(page, problems.Folder)), text(s))
}
