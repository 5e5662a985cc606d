package graph_test

import (
	"errors"
	"fmt"
	"math/big"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/kernosis/kernosis/diagnose/graph"
)

// list parses an adjacency list: the line at index i has the edges of node i, as in "1 2", or edges
// and then dependences, as in "3 <1 2". All nodes but the start run "op".
func list(lines ...string) []graph.Node {
	nodes := make([]graph.Node, len(lines))
	for i, line := range lines {
		to, dependences, _ := strings.Cut(line, "<")
		nodes[i] = graph.Node{ID: i, To: ints(to), Dependences: ints(dependences)}
		if i > 0 {
			nodes[i].Operation = "op"
		}
	}
	return nodes
}

func ints(s string) []int {
	var out []int
	for f := range strings.FieldsSeq(s) {
		var n int
		if _, err := fmt.Sscan(f, &n); err != nil {
			panic(err)
		}
		out = append(out, n)
	}
	return out
}

func build(tb testing.TB, nodes []graph.Node) *graph.Graph {
	tb.Helper()
	g, err := graph.Build(nodes)
	if err != nil {
		tb.Fatal(err)
	}
	return g
}

func TestBuildRefuses(t *testing.T) {
	alter := func(nodes []graph.Node, change func(n []graph.Node)) []graph.Node {
		change(nodes)
		return nodes
	}
	many := make([]string, graph.MaxNodes+1)
	for i := range many {
		many[i] = strconv.Itoa(i + 1)
	}
	many[len(many)-1] = ""
	for name, c := range map[string]struct {
		nodes []graph.Node
		want  []string // "Reason message", each
	}{
		"empty list":   {nil, []string{"Empty the list has 0 nodes; want a start, node 0, and at least one node that it leads to"}},
		"only a start": {list(""), []string{"Empty the list has 1 nodes; want a start, node 0, and at least one node that it leads to"}},
		"too many nodes": {list(many...), []string{
			"TooLarge the list has 257 nodes, at most 256"}},
		"too many edges": {alter(list("1", ""), func(n []graph.Node) { n[0].To = make([]int, graph.MaxEdges+1) }), []string{
			"TooLarge the list has 2049 edges, at most 2048"}},
		"cycle": {list("1", "2 4", "3", "1", ""), []string{"Cycle nodes 1 → 2 → 3 → 1 form a cycle"}},
		"two cycles": {list("1 3", "2", "1", "3 4", ""), []string{
			"Cycle nodes 1 → 2 → 1 form a cycle", "Cycle nodes 3 → 3 form a cycle"}},
		"back to the start": {list("1", "0"), []string{"Cycle nodes 0 → 1 → 0 form a cycle"}},
		"second source": {list("1", "", "1 3", ""), []string{
			"SecondSource node 2: no edge leads to it; only the start, node 0, may have none", "UnreachableNode node 3: no path from the start leads there"}},
		"island": {list("1", "", "3", "2"), []string{
			"Cycle nodes 2 → 3 → 2 form a cycle", "UnreachableNode nodes 2, 3: no path from the start leads there"}},
		"edge to nowhere": {list("1 7 -1", ""), []string{
			"UnknownNode node 0: to: there is no node 7; the last is 1", "UnknownNode node 0: to: there is no node -1; the last is 1"}},
		"doubled edge": {list("1", "2 2", ""), []string{"DoubledEdge node 1: to: node 2 is listed twice"}},
		"id is not the index": {alter(list("1", "2", ""), func(n []graph.Node) { n[2].ID = 1 }), []string{
			"IDMismatch node 2: id is 1; want the node's position in the list, counted from 0"}},
		"operation at the start": {alter(list("1", ""), func(n []graph.Node) { n[0].Operation = "x\n" }), []string{
			`StartOperation node 0: operation is "x\n"; node 0 is the start and must have none`}},
		"no operation": {alter(list("1", ""), func(n []graph.Node) { n[1].Operation = "" }), []string{
			"NoOperation node 1: operation is missing; only the start, node 0, has none"}},
		"start that depends": {list("1 <1", ""), []string{"UnknownDependence node 0: dependences: the start runs nothing and depends on nothing"}},
		"dependences": {list("1", "2", "<9 0 2 1 1"), []string{
			"UnknownDependence node 2: dependences: there is no node 9; the last is 2",
			"UnknownDependence node 2: dependences: node 0 is the start and has no results",
			"UnknownDependence node 2: dependences: it depends on itself",
			"DoubledDependence node 2: dependences: node 1 is listed twice"}},
		"dependence behind its node": {list("1", "2 <2", ""), []string{
			"DependenceNotOnAPath node 1: dependences: node 2 does not run on the path 0 → 1; a dependence must be on every path"}},
		"dependence on another branch": {list("1 2", "", "<1"), []string{
			"DependenceNotOnAPath node 2: dependences: node 1 does not run on the path 0 → 2; a dependence must be on every path"}},
		"dependence on one of two branches": {list("1", "2 3", "4", "4", "<1 2"), []string{
			"DependenceNotOnAPath node 4: dependences: node 2 does not run on the path 0 → 1 → 3 → 4; a dependence must be on every path"}},
		"all at once": {alter(list("1", "1", "5"), func(n []graph.Node) { n[1].Operation = "" }), []string{
			"NoOperation node 1: operation is missing; only the start, node 0, has none", "UnknownNode node 2: to: there is no node 5; the last is 2"}},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := graph.Build(c.nodes)
			var faults graph.Faults
			if !errors.As(err, &faults) {
				t.Fatalf("error %v", err)
			}
			var got []string
			for _, f := range faults {
				got = append(got, fmt.Sprint(f.Reason, " ", f.Message))
			}
			if !slices.Equal(got, c.want) {
				t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(c.want, "\n"))
			}
			if n := strings.Count(err.Error(), "\n") + 1; n != len(c.want) {
				t.Errorf("%d lines: %v", n, err)
			}
		})
	}
}

func TestManyFaultsAreBoundedAndCounted(t *testing.T) {
	nodes := list(strings.Split(strings.Repeat("9999,", 200)+"9999", ",")...)
	_, err := graph.Build(nodes)
	if lines := strings.Split(err.Error(), "\n"); len(lines) != 51 || lines[50] != "and 151 more" {
		t.Errorf("%d lines, the last is %q", len(lines), lines[len(lines)-1])
	}
	if faults, _ := errors.AsType[graph.Faults](err); len(faults) != 201 || faults[0].Reason != graph.UnknownNode {
		t.Errorf("%d faults in %T", len(faults), err)
	}
	big := make([]string, graph.MaxNodes)
	for i := range big {
		big[i] = strconv.Itoa((i + 1) % graph.MaxNodes)
	}
	if _, err := graph.Build(list(big...)); len(err.Error()) > 300 || !strings.Contains(err.Error(), "… (225 more)") {
		t.Errorf("a cycle of %d nodes: %v", graph.MaxNodes, err)
	}
}

func TestBuildTakesWhatIsRunOnEveryPath(t *testing.T) {
	// 1 leads to the two branches 2 and 3, which meet again in 4.
	g := build(t, list("1", "2 3", "4 <1", "4", "5 <1", "<4 1"))
	if got := g.AlwaysBefore(5); !slices.Equal(got, []int{1, 4}) {
		t.Errorf("always before node 5: %v", got)
	}
	if got := g.AlwaysBefore(1); got != nil {
		t.Errorf("always before node 1: %v", got)
	}
	if got := fmt.Sprint(g.Paths(graph.MaxPaths)); got != "[[1 2 4 5] [1 3 4 5]]" || g.Count().Int64() != 2 {
		t.Errorf("%v paths: %s", g.Count(), got)
	}
}

func TestOperationsRequireOthers(t *testing.T) {
	nodes := list("1", "2 3", "4", "4 <1", "")
	for i, name := range []string{"", "stacks", "disk", "disk", "cordon"} {
		nodes[i].Operation = name
	}
	nodes[0].To = []int{1}
	needs := map[string][]string{"disk": {"stacks"}}
	g, err := build(t, nodes).Require(func(operation string) []string { return needs[operation] })
	if err != nil {
		t.Fatal(err)
	}
	for id, want := range map[int][]int{1: nil, 2: {1}, 3: {1}, 4: nil} {
		if got := g.Node(id).Dependences; !slices.Equal(got, want) {
			t.Errorf("node %d depends on %v, want %v", id, got, want)
		}
	}
	// On each path some node runs it, but not the same node.
	needs["cordon"] = []string{"stacks", "disk", "mounts"}
	_, err = g.Require(func(operation string) []string { return needs[operation] })
	const disk = `node 4: operation "cordon" depends on operation "disk", which does not run on every path to the node`
	if err == nil || err.Error() != disk+"\n"+strings.Replace(disk, "disk", "mounts", 1) {
		t.Error(err)
	}
}

func TestWhatIsGivenToBuildMayBeChangedLater(t *testing.T) {
	nodes := list("1", "2", "<1")
	g := build(t, nodes)
	nodes[0].To[0], nodes[2].Dependences[0] = 2, 2
	if n := g.Node(2); g.Node(0).To[0] != 1 || n.Dependences[0] != 1 || g.Len() != 3 {
		t.Errorf("the graph has changed: %v", n)
	}
	g.Count().SetInt64(9)
	if g.Count().Int64() != 1 {
		t.Error("the number of paths has changed")
	}
}

// ladder returns a row of n diamonds, one after the other: 2^n paths.
func ladder(n int) []graph.Node {
	lines := []string{"1"}
	for i := range n {
		top := 1 + 3*i
		lines = append(lines, fmt.Sprintf("%d %d", top+1, top+2), strconv.Itoa(top+3), strconv.Itoa(top+3))
	}
	return list(append(lines, "")...)
}

// 2^40 paths, which KubeDiag would list and can't.
func TestLadderOfDiamonds(t *testing.T) {
	began := time.Now()
	g := build(t, ladder(40))
	want := new(big.Int).Lsh(big.NewInt(1), 40)
	if g.Count().Cmp(want) != 0 {
		t.Errorf("%v paths", g.Count())
	}
	paths := g.Paths(graph.MaxPaths)
	if len(paths) != graph.MaxPaths || len(paths[0]) != 81 || fmt.Sprint(paths[1][76:]) != "[115 116 118 120 121]" {
		t.Errorf("%d paths, the second ends %v", len(paths), paths[1][76:])
	}
	// The last node fails, and therefore each path.
	r := graph.NewRun(g, noRepairs)
	ran := 0
	for id, ok := r.Next(); ok; id, ok = r.Next() {
		o := graph.Succeeded
		if id == g.Len()-1 {
			o = graph.Failed
		}
		if err := r.Done(id, o); err != nil {
			t.Fatal(err)
		}
		ran++
	}
	took := time.Since(began)
	res := r.Result()
	if res.End != graph.NoPath || res.FailedCount.Cmp(want) != 0 || len(res.Failed) != graph.MaxPaths || ran != g.Len()-1 {
		t.Errorf("%s after %d nodes, %v paths failed, %d listed", res.End, ran, res.FailedCount, len(res.Failed))
	}
	if !slices.EqualFunc(res.Failed, paths, slices.Equal) {
		t.Error("failed paths are not the first paths")
	}
	if took > time.Second { // milliseconds; a busy machine with the race detector is slower
		t.Errorf("took %v", took)
	}
}

func BenchmarkLadder(b *testing.B) {
	nodes := ladder(40)
	for b.Loop() {
		g := build(b, nodes)
		r := graph.NewRun(g, noRepairs)
		for id, ok := r.Next(); ok; id, ok = r.Next() {
			o := graph.Succeeded
			if id == g.Len()-1 {
				o = graph.Failed
			}
			if err := r.Done(id, o); err != nil {
				b.Fatal(err)
			}
		}
	}
}
