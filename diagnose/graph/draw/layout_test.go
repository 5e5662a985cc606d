package draw

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/kernosis/kernosis/diagnose/graph"
)

func randomGraph(t *testing.T, seed uint64) *graph.Graph {
	t.Helper()
	rnd := rand.New(rand.NewPCG(seed, 3))
	nodes := make([]graph.Node, 2+rnd.IntN(30))
	density := rnd.Float64() * 0.3
	for i := range nodes {
		nodes[i] = graph.Node{ID: i}
		if i == 0 {
			continue
		}
		nodes[i].Operation = fmt.Sprint("operation-", i)
		always := rnd.IntN(i)
		for from := range i {
			if from == always || rnd.Float64() < density {
				nodes[from].To = append(nodes[from].To, i)
			}
		}
	}
	g, err := graph.Build(nodes)
	if err != nil {
		t.Fatal(err)
	}
	return g
}

// Boxes don't overlap, edges lead downwards through all layers between their ends, and everything
// is inside the picture.
func TestBoxesAndEdgesKeepApart(t *testing.T) {
	for seed := range uint64(300) {
		g := randomGraph(t, seed)
		rnd := rand.New(rand.NewPCG(seed, 4))
		l := place(g, func(int) (float64, float64) { return 60 + rnd.Float64()*200, 34 + rnd.Float64()*20 })
		placed := 0
		for n, layer := range l.layers {
			placed += len(layer)
			for i, it := range layer {
				a := &l.items[it]
				if a.layer != n || math.IsNaN(a.x) || a.x-a.w/2 < -0.01 || a.x+a.w/2 > l.width+0.01 || a.y-a.h/2 < -0.01 || a.y+a.h/2 > l.height+0.01 {
					t.Fatalf("seed %d: item %d is at %v %v, of %v × %v", seed, it, a.x, a.y, l.width, l.height)
				}
				if i == 0 {
					continue
				}
				if gap := a.x - l.items[layer[i-1]].x - l.apart(layer[i-1], it); gap < -0.01 {
					t.Fatalf("seed %d: items %d and %d are %v too near", seed, layer[i-1], it, -gap)
				}
			}
			if n > 0 {
				above, here := l.bottom(n-1), l.top(n)
				if here-above < layerGap-0.01 {
					t.Fatalf("seed %d: layers %d and %d are %v apart", seed, n-1, n, here-above)
				}
			}
		}
		if placed != len(l.items) {
			t.Fatalf("seed %d: %d of %d items are in a layer", seed, placed, len(l.items))
		}
		for _, e := range l.edges {
			last := l.items[e.from].layer
			for _, it := range append(slices.Clone(e.via), e.to) {
				if l.items[it].layer != last+1 {
					t.Fatalf("seed %d: edge %d → %d goes from layer %d to %d", seed, e.from, e.to, last, l.items[it].layer)
				}
				last++
			}
		}
	}
}

func (l *layout) bottom(n int) float64 {
	y := math.Inf(-1)
	for _, it := range l.layers[n] {
		y = max(y, l.items[it].y+l.items[it].h/2)
	}
	return y
}

func (l *layout) top(n int) float64 {
	y := math.Inf(1)
	for _, it := range l.layers[n] {
		y = min(y, l.items[it].y-l.items[it].h/2)
	}
	return y
}

// Two edges that cross in the order of trying are uncrossed.
func TestEdgesAreUncrossed(t *testing.T) {
	nodes := []graph.Node{{ID: 0, To: []int{1, 2}}, {ID: 1, To: []int{4, 3}}, {ID: 2, To: []int{3}}, {ID: 3}, {ID: 4}}
	for i := 1; i < len(nodes); i++ {
		nodes[i].Operation = "op"
	}
	g, err := graph.Build(nodes)
	if err != nil {
		t.Fatal(err)
	}
	l := place(g, func(int) (float64, float64) { return 80, 40 })
	if n := l.crossings(); n != 0 {
		t.Errorf("%d crossings", n)
	}
	if !slices.Equal(l.layers[1], []int{1, 2}) {
		t.Errorf("paths are not tried from left to right: %v", l.layers)
	}
}

func TestInversions(t *testing.T) {
	for seed := range uint64(200) {
		s := rand.New(rand.NewPCG(seed, 5)).Perm(int(seed % 20))
		want := 0
		for i := range s {
			for j := range i {
				if s[j] > s[i] {
					want++
				}
			}
		}
		if got := inversions(s); got != want {
			t.Errorf("%v: %d, want %d", s, got, want)
		}
	}
}
