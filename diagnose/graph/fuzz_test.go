package graph_test

import (
	"errors"
	"slices"
	"testing"

	"github.com/kernosis/kernosis/diagnose/graph"
)

// decode makes an adjacency list from any bytes: the first is the number of nodes, then each pair
// is an edge, or a dependence if the highest bit of its first byte is set.
func decode(data []byte) []graph.Node {
	if len(data) == 0 {
		return nil
	}
	nodes := make([]graph.Node, data[0]%14)
	for i := range nodes {
		nodes[i] = graph.Node{ID: i, Operation: "op"}
	}
	if len(nodes) > 0 {
		nodes[0].Operation = ""
	}
	for data = data[1:]; len(data) > 1 && len(nodes) > 0; data = data[2:] {
		n, other := &nodes[int(data[0]&0x7f)%len(nodes)], int(data[1])%(len(nodes)+1)
		if data[0]&0x80 != 0 {
			n.Dependences = append(n.Dependences, other)
		} else {
			n.To = append(n.To, other)
		}
	}
	return nodes
}

// valid decides by the bare definitions whether a list is a valid graph: by the transitive closure
// of its edges, and for a dependence by the closure without that node.
func valid(nodes []graph.Node) bool {
	n := len(nodes)
	if n < 2 || nodes[0].Dependences != nil {
		return false
	}
	in := make([]int, n)
	for i := range nodes {
		for at, to := range nodes[i].To {
			if to >= n || slices.Contains(nodes[i].To[:at], to) {
				return false
			}
			in[to]++
		}
		for at, d := range nodes[i].Dependences {
			if d == 0 || d >= n || d == i || slices.Contains(nodes[i].Dependences[:at], d) {
				return false
			}
		}
	}
	all := closure(nodes, -1)
	for i := range nodes {
		if all[i][i] || i > 0 && (in[i] == 0 || !all[0][i]) {
			return false
		}
		for _, d := range nodes[i].Dependences {
			if closure(nodes, d)[0][i] {
				return false
			}
		}
	}
	return true
}

func closure(nodes []graph.Node, without int) [][]bool {
	n := len(nodes)
	leads := make([][]bool, n)
	for i := range leads {
		leads[i] = make([]bool, n)
		for _, to := range nodes[i].To {
			leads[i][to] = i != without && to != without
		}
	}
	for via := range n {
		for a := range n {
			for b := range n {
				leads[a][b] = leads[a][b] || leads[a][via] && leads[via][b]
			}
		}
	}
	return leads
}

func FuzzBuild(f *testing.F) {
	f.Add([]byte{3, 0, 1, 1, 2, 0x82, 1}, uint64(1))
	f.Add([]byte{5, 0, 1, 0, 2, 1, 3, 2, 3, 3, 4, 0x84, 3}, uint64(7))
	f.Add([]byte{4, 0, 1, 1, 2, 2, 1, 2, 3}, uint64(0))
	f.Add([]byte{2, 0, 5}, uint64(0))
	f.Fuzz(func(t *testing.T, data []byte, seed uint64) {
		nodes := decode(data)
		g, err := graph.Build(nodes)
		if want := valid(nodes); (err == nil) != want {
			t.Fatalf("%v is a graph: %v, yet %v", nodes, want, err)
		}
		if err != nil {
			var faults graph.Faults
			if !errors.As(err, &faults) || len(faults) == 0 {
				t.Fatalf("%T", err)
			}
			for _, fault := range faults {
				if fault.Message == "" || fault.Reason == "" || fault.Index >= len(nodes) {
					t.Errorf("%+v", fault)
				}
			}
			return
		}
		paths := g.Paths(1 << 14)
		if g.Count().Int64() != int64(len(paths)) { // 13 nodes have at most 2^11 paths
			t.Fatalf("%v paths, %d listed", g.Count(), len(paths))
		}
		w := &world{g: g, seed: seed, fails: seed % 200, repairs: make([]bool, g.Len())}
		for i := range w.repairs {
			w.repairs[i] = i > 0 && seed>>(8+i)&1 == 1
		}
		compare(t, w)
	})
}
