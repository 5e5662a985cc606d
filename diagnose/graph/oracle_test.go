package graph_test

import (
	"encoding/binary"
	"fmt"
	"hash/fnv"
	"math/big"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/kernosis/kernosis/diagnose/graph"
)

// world defines what operations do, as a function of the parameters (the seed) and the results of
// declared dependences only.
type world struct {
	g       *graph.Graph
	seed    uint64
	repairs []bool
	// fails is how many of 256 operations fail. Of 256 repairs, 20 more would only have run, and 20
	// more have an unknown outcome.
	fails uint64
}

// run returns the outcome and result of an operation.
func (w *world) run(id int, results map[int]uint64) (graph.Outcome, uint64) {
	h := fnv.New64a()
	put := func(v uint64) { _ = binary.Write(h, binary.LittleEndian, v) }
	put(w.seed)
	put(uint64(id))
	for _, d := range w.g.Node(id).Dependences {
		r, ok := results[d]
		if !ok {
			panic(fmt.Sprintf("node %d runs without its dependence %d", id, d))
		}
		put(r)
	}
	sum := h.Sum64()
	switch dice := sum >> 32 % 256; {
	case dice < w.fails:
		return graph.Failed, sum
	case w.repairs[id] && dice < w.fails+20:
		return graph.WouldRun, sum
	case w.repairs[id] && dice < w.fails+40:
		return graph.Unknown, sum
	}
	return graph.Succeeded, sum
}

// oneByOne is the reference implementation: it tries one path after the other, each from its
// beginning, and remembers only the outcomes of paths.
func oneByOne(w *world) graph.Result {
	res := graph.Result{FailedCount: new(big.Int)}
	var walk func(path []int) bool
	walk = func(path []int) bool {
		last := 0
		if len(path) > 0 {
			last = path[len(path)-1]
		}
		for _, to := range w.g.Node(last).To {
			if walk(append(slices.Clone(path), to)) {
				return true
			}
		}
		return len(w.g.Node(last).To) == 0 && tryPath(w, path, &res)
	}
	if !walk(nil) {
		res.End = graph.NoPath
	}
	return res
}

// tryPath runs one path, and reports whether the diagnosis ends with it.
func tryPath(w *world, path []int, res *graph.Result) bool {
	results, repaired := map[int]uint64{}, 0
	for i, id := range path {
		o, result := w.run(id, results)
		results[id] = result
		switch {
		case o == graph.WouldRun:
			res.End, res.Path, res.Withheld = graph.PathSucceeded, path, id
			return true
		case o == graph.Unknown:
			res.End, res.Path = graph.OutcomeUnknown, path[:i+1]
			return true
		case o == graph.Failed:
			res.FailedCount.Add(res.FailedCount, big.NewInt(1))
			if len(res.Failed) < graph.MaxPaths {
				res.Failed = append(res.Failed, path)
			}
			if repaired != 0 {
				res.End, res.Path, res.Repaired = graph.StoppedAfterRepair, path, repaired
			}
			return repaired != 0
		case w.repairs[id] && repaired == 0:
			repaired = id
		}
	}
	res.End, res.Path = graph.PathSucceeded, path
	return true
}

// step is a node with its outcome.
type step struct {
	id      int
	outcome graph.Outcome
}

// finish continues a run with the results so far, and fails the test if a node runs twice.
func finish(tb testing.TB, w *world, r *graph.Run, results map[int]uint64) (res graph.Result, made []step) {
	tb.Helper()
	for id, ok := r.Next(); ok; id, ok = r.Next() {
		if _, ran := results[id]; ran {
			tb.Fatalf("node %d runs twice", id)
		}
		if path := r.Result().Path; path[len(path)-1] != id {
			tb.Fatalf("node %d is next, on the path %v", id, path)
		}
		o, result := w.run(id, results)
		results[id] = result
		if err := r.Done(id, o); err != nil {
			tb.Fatal(err)
		}
		made = append(made, step{id, o})
	}
	return r.Result(), made
}

func differ(tb testing.TB, got, want graph.Result) bool {
	tb.Helper()
	if got.End == want.End && slices.Equal(got.Path, want.Path) && got.Repaired == want.Repaired && got.Withheld == want.Withheld &&
		got.FailedCount.Cmp(want.FailedCount) == 0 && slices.EqualFunc(got.Failed, want.Failed, slices.Equal) {
		return false
	}
	tb.Errorf("got  %+v\nwant %+v", got, want)
	return true
}

// compare checks a run against the reference, and each run that is resumed from one of its
// checkpoints against the uninterrupted run.
func compare(tb testing.TB, w *world) (end graph.End, differs bool) {
	tb.Helper()
	want := oneByOne(w)
	isRepair := func(id int) bool { return w.repairs[id] }
	whole := graph.NewRun(w.g, isRepair)
	got, steps := finish(tb, w, whole, map[int]uint64{})
	if differ(tb, got, want) {
		return want.End, true
	}
	for n := range len(steps) + 1 {
		resumed, results := graph.NewRun(w.g, isRepair), map[int]uint64{}
		for _, s := range steps[:n] {
			if err := resumed.Done(s.id, s.outcome); err != nil {
				tb.Fatal(err)
			}
			_, results[s.id] = w.run(s.id, results)
		}
		got, rest := finish(tb, w, resumed, results)
		if differ(tb, got, want) {
			tb.Errorf("resumed after %d of %d steps", n, len(steps))
			return want.End, true
		}
		if !slices.Equal(rest, steps[n:]) {
			tb.Errorf("resumed after %d steps: made %v, without interruption %v", n, rest, steps[n:])
			return want.End, true
		}
	}
	return want.End, false
}

// randomGraph returns a graph with up to ten nodes besides the start, ids in random order, and
// dependences on nodes that always run before.
func randomGraph(tb testing.TB, rnd *rand.Rand) *graph.Graph {
	tb.Helper()
	n := 2 + rnd.IntN(10)
	id := rnd.Perm(n) // of the node at each position of a topological order
	at := slices.Index(id, 0)
	id[0], id[at] = id[at], id[0]
	nodes := make([]graph.Node, n)
	for i := range nodes {
		nodes[i] = graph.Node{ID: i, Operation: "op"}
	}
	nodes[0].Operation = ""
	density := 0.15 + rnd.Float64()/2
	for to := 1; to < n; to++ {
		always := rnd.IntN(to) // each node but the start has an edge to it
		for from := range to {
			if from == always || rnd.Float64() < density {
				nodes[id[from]].To = append(nodes[id[from]].To, id[to])
			}
		}
	}
	for i := range nodes {
		rnd.Shuffle(len(nodes[i].To), func(a, b int) { nodes[i].To[a], nodes[i].To[b] = nodes[i].To[b], nodes[i].To[a] })
	}
	g := build(tb, nodes)
	for i := range nodes {
		for _, d := range g.AlwaysBefore(i) {
			if rnd.IntN(2) == 0 {
				nodes[i].Dependences = append(nodes[i].Dependences, d)
			}
		}
	}
	return build(tb, nodes)
}

func randomWorld(tb testing.TB, seed uint64) *world {
	tb.Helper()
	rnd := rand.New(rand.NewPCG(seed, 1))
	w := &world{g: randomGraph(tb, rnd), seed: seed, fails: rnd.Uint64N(200)}
	w.repairs = make([]bool, w.g.Len())
	often := []int{1, 3, 1000}[rnd.IntN(3)]
	for i := 1; i < len(w.repairs); i++ {
		w.repairs[i] = rnd.IntN(often+1) == 0
	}
	return w
}

func TestARunEqualsTryingAllPaths(t *testing.T) {
	ends := map[graph.End]int{}
	for seed := range uint64(6000) {
		end, differs := compare(t, randomWorld(t, seed))
		if differs {
			t.Fatalf("seed %d", seed)
		}
		ends[end]++
	}
	for _, e := range []graph.End{graph.PathSucceeded, graph.NoPath, graph.StoppedAfterRepair, graph.OutcomeUnknown} {
		if ends[e] < 100 {
			t.Errorf("only %d runs ended with %s", ends[e], e)
		}
	}
	t.Log(ends)
}
