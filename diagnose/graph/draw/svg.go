package draw

import (
	"bytes"
	"cmp"
	"encoding/xml"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

const (
	textColour  = "#111827"
	quietColour = "#4b5563"
	edgeColour  = "#9aa1ab"
	takenColour = "#0b57d0"

	margin   = 20.0
	nameSize = 13.0
	// For a monospaced font; the first available font of the list is at most this wide.
	charWidth = 0.62 * nameSize
	fonts     = "ui-monospace, 'DejaVu Sans Mono', Menlo, Consolas, monospace"
)

// SVG returns the drawing as an SVG document.
func SVG(d *Drawing) []byte {
	l := place(d.Graph, func(id int) (w, h float64) {
		first, second := d.lines(id)
		w = max(cells(first), cells(second)*0.85)*charWidth + 26
		w = max(w, min(600, float64(len(d.Graph.Node(id).To))*14+16)) // room for the edges' numbers
		h = 34.0
		if second != "" {
			h = 50
		}
		return w, h
	})
	p := painter{d: d, l: l, top: margin}
	if d.Title != "" {
		p.top += 30
	}
	p.document()
	return p.b.Bytes()
}

// cells returns the width in terminal columns: East Asian characters have two.
func cells(s string) float64 {
	n := 0
	for _, r := range s {
		n++
		if r >= 0x1100 {
			n++
		}
	}
	return float64(n)
}

type painter struct {
	d   *Drawing
	l   *layout
	b   bytes.Buffer
	top float64
}

func (p *painter) document() {
	title := label(p.d.Title, 80)
	w := max(p.l.width, cells(title)*charWidth*1.25) + 2*margin
	h := p.l.height + p.top + margin
	fmt.Fprintf(&p.b, `<svg xmlns="http://www.w3.org/2000/svg" width="%s" height="%s" viewBox="0 0 %s %s" role="img" font-family="%s">`+"\n",
		px(w), px(h), px(w), px(h), escape(fonts))
	fmt.Fprintf(&p.b, "<title>%s</title>\n", escape(cmp.Or(title, "diagnosis graph")))
	fmt.Fprintf(&p.b, `<rect width="100%%" height="100%%" fill="#ffffff"/>`+"\n")
	if title != "" {
		p.text(margin, margin+12, 16, "start", textColour, true, title)
	}
	fmt.Fprintf(&p.b, `<g transform="translate(%s %s)">`+"\n", px((w-p.l.width)/2), px(p.top))
	ports := p.ports()
	for _, taken := range []bool{false, true} { // draw the marked path above the others
		for i := range p.l.edges {
			if e := &p.l.edges[i]; p.d.taken(e.from, e.to) == taken {
				p.edge(e, ports[i], taken)
			}
		}
	}
	for id := range p.d.Graph.Len() {
		p.node(id)
	}
	for i := range p.l.edges {
		p.number(&p.l.edges[i], ports[i].out)
	}
	p.b.WriteString("</g>\n</svg>\n")
}

// port has the horizontal positions where an edge leaves a box and where it enters one.
type port struct{ out, in float64 }

// ports distributes the edges of a box along its side, ordered by where they lead.
func (p *painter) ports() []port {
	l := p.l
	ports := make([]port, len(l.edges))
	at := func(i int) float64 { return l.items[i].x }
	spread := func(id int, edges []int, far func(e *route) int, set func(*port, float64)) {
		slices.SortStableFunc(edges, func(a, b int) int { return cmp.Compare(at(far(&l.edges[a])), at(far(&l.edges[b]))) })
		n := &l.items[id]
		step := min(22, (n.w-20)/float64(max(1, len(edges)-1)))
		for i, e := range edges {
			set(&ports[e], n.x+(float64(i)-float64(len(edges)-1)/2)*step)
		}
	}
	out, in := make([][]int, p.d.Graph.Len()), make([][]int, p.d.Graph.Len())
	for i := range l.edges {
		out[l.edges[i].from] = append(out[l.edges[i].from], i)
		in[l.edges[i].to] = append(in[l.edges[i].to], i)
	}
	for id := range p.d.Graph.Len() {
		spread(id, out[id], func(e *route) int { return append(slices.Clone(e.via), e.to)[0] }, func(q *port, x float64) { q.out = x })
		spread(id, in[id], func(e *route) int { return append([]int{e.from}, e.via...)[len(e.via)] }, func(q *port, x float64) { q.in = x })
	}
	return ports
}

func (p *painter) edge(e *route, at port, taken bool) {
	colour, width := edgeColour, 1.4
	if taken {
		colour, width = takenColour, 3
	}
	from, to := &p.l.items[e.from], &p.l.items[e.to]
	x, y := at.out, from.y+from.h/2
	fmt.Fprintf(&p.b, `<path fill="none" stroke="%s" stroke-width="%s" d="M%s %s`, colour, px(width), px(x), px(y))
	curve := func(toX, toY float64) {
		mid := (y + toY) / 2
		fmt.Fprintf(&p.b, " C%s %s %s %s %s %s", px(x), px(mid), px(toX), px(mid), px(toX), px(toY))
		x, y = toX, toY
	}
	for _, bend := range e.via {
		n := &p.l.items[bend]
		curve(n.x, n.y-n.h/2)
		if y = n.y + n.h/2; n.h > 0 {
			fmt.Fprintf(&p.b, " V%s", px(y))
		}
	}
	end := to.y - to.h/2
	curve(at.in, end-8)
	fmt.Fprintf(&p.b, `"/><path fill="%s" d="M%s %s l-5 -9 h10 z"/>`+"\n", colour, px(at.in), px(end))
}

// number draws an edge's number in the order of trying, where the edge leaves its box.
func (p *painter) number(e *route, x float64) {
	if e.number == 0 {
		return
	}
	from := &p.l.items[e.from]
	fmt.Fprintf(&p.b, `<text x="%s" y="%s" font-size="10" text-anchor="middle" fill="%s" stroke="#ffffff" stroke-width="4" paint-order="stroke">%d</text>`+"\n",
		px(x), px(from.y+from.h/2+13), textColour, e.number)
}

func (p *painter) node(id int) {
	n, note := &p.l.items[id], p.d.note(id)
	lk := lookOf(note.State)
	width, dash, radius := 1.3, "", 7.0
	if p.d.onPath(id) {
		width = 3
	}
	if lk.dashed {
		dash = ` stroke-dasharray="6 4"`
	}
	if id == 0 {
		radius = n.h / 2
	}
	first, second := p.d.lines(id)
	p.b.WriteString("<g>")
	if id > 0 {
		hover := label(p.d.Graph.Node(id).Operation, 253)
		if note.Message != "" {
			hover += ": " + label(note.Message, 1024)
		}
		fmt.Fprintf(&p.b, "<title>%s</title>", escape(hover))
	}
	fmt.Fprintf(&p.b, `<rect x="%s" y="%s" width="%s" height="%s" rx="%s" fill="%s" stroke="%s" stroke-width="%s"%s/>`,
		px(n.x-n.w/2), px(n.y-n.h/2), px(n.w), px(n.h), px(radius), lk.fill, lk.stroke, px(width), dash)
	if second == "" {
		p.text(n.x, n.y+4.5, nameSize, "middle", textColour, id > 0, first)
	} else {
		p.text(n.x, n.y-4, nameSize, "middle", textColour, true, first)
		p.text(n.x, n.y+14, nameSize*0.85, "middle", quietColour, false, second)
	}
	p.b.WriteString("</g>\n")
}

func (p *painter) text(x, y, size float64, anchor, colour string, bold bool, s string) {
	weight := ""
	if bold {
		weight = ` font-weight="600"`
	}
	fmt.Fprintf(&p.b, `<text x="%s" y="%s" font-size="%s" text-anchor="%s" fill="%s"%s>%s</text>`, px(x), px(y), px(size), anchor, colour, weight, escape(s))
}

// px formats a length with at most one decimal.
func px(v float64) string {
	s := strings.TrimSuffix(strconv.FormatFloat(v, 'f', 1, 64), ".0")
	if s == "-0" {
		return "0"
	}
	return s
}

// escape escapes text for XML.
func escape(s string) string {
	var b bytes.Buffer
	_ = xml.EscapeText(&b, []byte(s)) // writing to memory can't fail
	return b.String()
}
