package web

import (
	"io"

	g "maragu.dev/gomponents"
	h "maragu.dev/gomponents/html"
)

// frame is the static part of a page, around its state.
type frame struct {
	title    string
	sections []link // the skip link leads to the first one
	command  string // the command that explains the shown state
}

// link leads to a section of the page.
type link struct{ id, name string }

// around returns the whole page with the rendered state in it.
func (f *frame) around(state []byte) g.Node {
	return document(f.title, "", h.Script(h.Src("page.js"), h.Defer()),
		h.A(h.Class("skip"), h.Href("#"+f.sections[0].id), text("Skip to "+f.sections[0].name)),
		bar(
			each(f.sections, func(to link) g.Node { return h.A(h.Href("#"+to.id), text(to.name)) }),
			h.Span(h.ID("live"), h.Class("live"), h.Role("status"), text("not live: reload to update")),
		),
		g.NodeFunc(func(w io.Writer) error {
			_, err := w.Write(state)
			return err
		}),
		h.Footer(text("Times are in UTC. This page only reads; "), h.Code(text(f.command)), text(" explains what it shows.")),
	)
}

// document returns a page. root is the relative path from it to the start page.
func document(title, root string, script g.Node, body ...g.Node) g.Node {
	return h.Doctype(h.HTML(h.Lang("en"),
		h.Head(
			h.Meta(h.Charset("utf-8")),
			h.Meta(h.Name("viewport"), h.Content("width=device-width, initial-scale=1")),
			h.Meta(h.Name("color-scheme"), h.Content("light dark")),
			h.TitleEl(text(title+" · Kernosis")),
			h.Link(h.Rel("icon"), h.Href(root+"icon.svg")),
			h.Link(h.Rel("stylesheet"), h.Href(root+"page.css")),
			script,
		),
		h.Body(body...),
	))
}

// bar returns the bar at the top of a page.
func bar(links g.Node, more ...g.Node) g.Node {
	return h.Div(h.Class("bar"),
		h.Span(h.Class("brand"), text("Kernosis")),
		h.Nav(h.Aria("label", "Sections"), links),
		g.Group(more),
	)
}
