package graph

import (
	"fmt"
	"math/big"
)

// Outcome is what became of a node.
type Outcome string

// Outcomes. The zero value is a node that has not run.
const (
	Succeeded Outcome = "Succeeded"
	Failed    Outcome = "Failed" // its path fails, and every other path through it
	// WouldRun is a repair that was withheld. It counts as done without effect: nothing
	// behind it can be judged or given its results, so that the first path that goes on
	// from it is the succeeded one, and the run ends.
	WouldRun Outcome = "WouldRun"
	// Unknown is a repair of which nobody can say whether it was done. The run ends: what
	// to do is for a person to say.
	Unknown Outcome = "Unknown"
)

// End is how a run ended.
type End string

// Ends. The zero value is a run that goes on.
const (
	PathSucceeded End = "PathSucceeded" // a path succeeded to its end
	NoPath        End = "NoPath"        // every path failed
	// StoppedAfterRepair: a repair succeeded and a later node of that path failed. Other
	// paths are not tried: they were written for a node that nobody had repaired.
	StoppedAfterRepair End = "StoppedAfterRepair"
	OutcomeUnknown     End = "OutcomeUnknown" // of the last node of Result.Path
)

// Result is what a run has come to.
type Result struct {
	End End
	// Path is the one on which the run ended: the succeeded one; the one that failed
	// behind a repair; the one up to the node whose outcome is unknown. Else the one that
	// is being tried, up to the next node.
	Path []int
	// Failed are the first MaxPaths paths that failed, in the order in which they are
	// tried, and FailedCount is how many did.
	Failed      [][]int
	FailedCount *big.Int
	// Repaired is the repair that succeeded on Path, of a run that stopped behind it;
	// Withheld the one that would have run; 0: none.
	Repaired, Withheld int
}

// Run is a state machine that runs a graph's nodes: [Run.Next] names the node to run,
// [Run.Done] takes what became of it. No node is named twice, all steps together cost
// O(nodes + edges), and succeeded and failed paths are those of trying one path after
// the other. It must not be used by several goroutines at once.
type Run struct {
	g       *Graph
	repairs func(id int) bool
	outcome []Outcome
	dead    []bool // all paths from here have failed
	// trying is the path being tried, from the start, each with the index of the edge
	// that is taken.
	trying []taken
	next   int
	result Result
}

type taken struct{ node, edge int }

// NewRun returns a run at its beginning. repairs says of a node whether it changes
// something (a Remediate); nil: none does.
func NewRun(g *Graph, repairs func(id int) bool) *Run {
	if repairs == nil {
		repairs = func(int) bool { return false }
	}
	r := &Run{
		g: g, repairs: repairs,
		outcome: make([]Outcome, len(g.nodes)), dead: make([]bool, len(g.nodes)),
		trying: []taken{{}},
		result: Result{FailedCount: new(big.Int)},
	}
	r.advance()
	return r
}

// Next returns the node to run; false: the run has ended.
func (r *Run) Next() (id int, ok bool) { return r.next, r.result.End == "" }

// Done reports what became of the node that Next names, and of no other.
func (r *Run) Done(id int, o Outcome) error {
	if r.result.End != "" {
		return fmt.Errorf("node %d: the run has ended (%s)", id, r.result.End)
	}
	if id != r.next {
		return fmt.Errorf("node %d: the next to run is node %d", id, r.next)
	}
	switch o {
	case Succeeded:
	case Failed:
		r.dead[id] = true
	case WouldRun:
		r.result.Withheld = id
		r.end(PathSucceeded, r.firstPath(id))
	case Unknown:
		r.end(OutcomeUnknown, append(r.prefix(), id))
	default:
		return fmt.Errorf("node %d: %.40q is no outcome", id, o)
	}
	r.outcome[id] = o
	if r.result.End == "" {
		r.advance()
	}
	return nil
}

// Result returns what the run has come to. Failed must not be changed.
func (r *Run) Result() Result {
	out := r.result
	out.FailedCount = new(big.Int).Set(out.FailedCount)
	if out.End == "" {
		out.Path = append(r.prefix(), r.next)
	}
	return out
}

// advance goes on along the path being tried, to the next node that has to run or to
// the end.
func (r *Run) advance() {
	for {
		top := &r.trying[len(r.trying)-1]
		to := r.g.nodes[top.node].To
		switch {
		case len(to) == 0:
			r.end(PathSucceeded, r.prefix())
			return
		case top.edge == len(to):
			r.dead[top.node] = true
			r.trying = r.trying[:len(r.trying)-1]
			if len(r.trying) == 0 {
				r.end(NoPath, nil)
				return
			}
			r.trying[len(r.trying)-1].edge++
			continue
		}
		n := to[top.edge]
		switch {
		case r.dead[n]:
			if r.pathsFail(n) {
				return
			}
			top.edge++
		case r.outcome[n] == "":
			r.next = n
			return
		default:
			r.trying = append(r.trying, taken{node: n})
		}
	}
}

// pathsFail takes it that all paths that go on with n fail, and reports whether that
// ends the run.
func (r *Run) pathsFail(n int) bool {
	for _, t := range r.trying[1:] {
		if !r.repairs(t.node) {
			continue
		}
		path := r.firstPath(n)
		if len(r.result.Failed) < MaxPaths {
			r.result.Failed = append(r.result.Failed, path)
		}
		r.result.FailedCount.Add(r.result.FailedCount, big.NewInt(1))
		r.result.Repaired = t.node
		r.end(StoppedAfterRepair, path)
		return true
	}
	if most := MaxPaths - len(r.result.Failed); most > 0 {
		r.result.Failed = append(r.result.Failed, r.g.pathsFrom(r.prefix(), n, most)...)
	}
	r.result.FailedCount.Add(r.result.FailedCount, r.g.count[n])
	return false
}

func (r *Run) end(e End, path []int) { r.result.End, r.result.Path, r.next = e, path, 0 }

// prefix is the path being tried, without the start and what comes next.
func (r *Run) prefix() []int {
	out := make([]int, 0, len(r.trying))
	for _, t := range r.trying[1:] {
		out = append(out, t.node)
	}
	return out
}

// firstPath is the first path that goes on with n.
func (r *Run) firstPath(n int) []int { return r.g.pathsFrom(r.prefix(), n, 1)[0] }
