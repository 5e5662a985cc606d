package draw

import (
	"cmp"
	"slices"

	"github.com/kernosis/kernosis/diagnose/graph"
)

// Distances of the layout, in pixels.
const (
	nodeGap  = 28.0 // between boxes of a layer
	bendGap  = 14.0 // between an edge that crosses a layer and its neighbours there
	layerGap = 52.0 // between layers: room for edges and their numbers
)

// maxBends bounds the number of bends, where edges cross layers. Graphs made by people have some
// dozen bends. Further edges are drawn straight, across other elements.
const maxBends = 4000

// layout has the positions of boxes and edges.
type layout struct {
	width, height float64
	items         []item // the graph's nodes by id, then bends
	layers        [][]int
	edges         []route
}

// item is a node's box or a bend of an edge, which has no width.
type item struct {
	x, y, w, h float64 // centre, size
	layer      int
	bend       bool
	up, down   []int // connected items in the layers above and below
}

// route is an edge with its bends, from top to bottom.
type route struct {
	from, to int
	number   int // position in the order of trying, from 1; 0: the only edge
	via      []int
}

// place lays a graph out: nodes in layers from top to bottom, each below all of its predecessors.
func place(g *graph.Graph, size func(id int) (w, h float64)) *layout {
	l := &layout{}
	for id := range g.Len() {
		w, h := size(id)
		l.items = append(l.items, item{w: w, h: h})
	}
	depth := 0
	for _, id := range g.Order() {
		for _, to := range g.Node(id).To {
			l.items[to].layer = max(l.items[to].layer, l.items[id].layer+1)
			depth = max(depth, l.items[to].layer)
		}
	}
	l.layers = make([][]int, depth+1)
	l.route(g)
	l.firstOrder(g)
	l.uncross()
	l.spread()
	l.rows()
	return l
}

// route adds the edges and their bends, short edges first: they keep their bends if there are too
// many.
func (l *layout) route(g *graph.Graph) {
	for id := range g.Len() {
		to := g.Node(id).To
		for i, t := range to {
			r := route{from: id, to: t}
			if len(to) > 1 {
				r.number = i + 1
			}
			l.edges = append(l.edges, r)
		}
	}
	short := make([]int, len(l.edges))
	for i := range short {
		short[i] = i
	}
	span := func(e int) int { return l.items[l.edges[e].to].layer - l.items[l.edges[e].from].layer }
	slices.SortStableFunc(short, func(a, b int) int { return cmp.Compare(span(a), span(b)) })
	bends := 0
	for _, i := range short {
		e := &l.edges[i]
		if bends += span(i) - 1; bends > maxBends {
			break
		}
		last := e.from
		for layer := l.items[e.from].layer + 1; layer < l.items[e.to].layer; layer++ {
			bend := len(l.items)
			l.items = append(l.items, item{layer: layer, bend: true})
			e.via = append(e.via, bend)
			l.link(last, bend)
			last = bend
		}
		l.link(last, e.to)
	}
}

func (l *layout) link(above, below int) {
	l.items[above].down = append(l.items[above].down, below)
	l.items[below].up = append(l.items[below].up, above)
}

// firstOrder orders each layer by when a depth-first walk of the paths reaches its items, so that
// paths are tried from left to right unless edges would cross.
func (l *layout) firstOrder(g *graph.Graph) {
	seen := make([]bool, g.Len())
	first := make([]int, g.Len()) // a node's first edge
	for i, e := range slices.Backward(l.edges) {
		first[e.from] = i
	}
	var visit func(id int)
	visit = func(id int) {
		if seen[id] {
			return
		}
		seen[id] = true
		l.layers[l.items[id].layer] = append(l.layers[l.items[id].layer], id)
		for i := range g.Node(id).To {
			e := &l.edges[first[id]+i]
			for _, bend := range e.via {
				l.layers[l.items[bend].layer] = append(l.layers[l.items[bend].layer], bend)
			}
			visit(e.to)
		}
	}
	visit(0)
}

// rows sets the height of each layer and moves all items into the picture.
func (l *layout) rows() {
	left, right, y := 0.0, 0.0, 0.0
	for i, layer := range l.layers {
		high := 0.0
		for _, it := range layer {
			high = max(high, l.items[it].h)
		}
		for _, it := range layer {
			n := &l.items[it]
			n.y = y + high/2
			if n.bend {
				n.h = high // an edge passes the whole layer straight
			}
			if i == 0 && it == 0 {
				left, right = n.x-n.w/2, n.x+n.w/2
			}
			left, right = min(left, n.x-n.w/2), max(right, n.x+n.w/2)
		}
		y += high + layerGap
	}
	l.height = y - layerGap
	l.width = right - left
	for i := range l.items {
		l.items[i].x -= left
	}
}
