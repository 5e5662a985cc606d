package graph

import (
	"fmt"
	"math/big"
)

// Outcome is the outcome of a node.
type Outcome string

// Outcomes. The zero value means that the node has not run.
const (
	Succeeded Outcome = "Succeeded"
	Failed    Outcome = "Failed" // its path fails, and every other path through it
	// WouldRun is a repair that was withheld. It counts as done without effect. The nodes after it
	// need its effect and results and can't run, so the first path that continues from it counts as
	// succeeded, and the run ends.
	WouldRun Outcome = "WouldRun"
	// Unknown is a repair that may or may not have been made. The run ends, and a person must
	// decide.
	Unknown Outcome = "Unknown"
)

// End is how a run ended.
type End string

// Ends. The zero value means that the run has not ended.
const (
	PathSucceeded End = "PathSucceeded" // a path succeeded to its end
	NoPath        End = "NoPath"        // every path failed
	// StoppedAfterRepair: a repair succeeded and a later node of that path failed. Other paths are
	// not tried: they were written for a node that has not been repaired.
	StoppedAfterRepair End = "StoppedAfterRepair"
	OutcomeUnknown     End = "OutcomeUnknown" // the last node of Result.Path
)

// Result is the state of a run.
type Result struct {
	End End
	// Path is the path on which the run ended: it succeeded, failed after a repair, or led to a
	// node with an unknown outcome. During the run, it is the path being tried, up to the next
	// node.
	Path []int
	// Failed are the first MaxPaths failed paths, in the order in which they are tried. FailedCount
	// counts all.
	Failed      [][]int
	FailedCount *big.Int
	// Repaired is the repair on Path that succeeded before the run stopped. Withheld is the repair
	// that would have run; 0: none.
	Repaired, Withheld int
}

// Run is a state machine that runs a graph's nodes: [Run.Next] returns the node to run, [Run.Done]
// takes its outcome. No node is returned twice. All steps together cost O(nodes + edges). The
// succeeded and failed paths are the same as if one path after the other were tried. It must not be
// used by several goroutines at once.
type Run struct {
	g       *Graph
	repairs func(id int) bool
	outcome []Outcome
	dead    []bool // all paths from here have failed
	// trying is the path being tried, from the start; each node has the index of the edge that was
	// taken.
	trying []taken
	next   int
	result Result
}

type taken struct{ node, edge int }

// NewRun returns a run at its beginning. repairs reports whether a node changes something (a
// Remediate).
func NewRun(g *Graph, repairs func(id int) bool) *Run {
	r := &Run{
		g: g, repairs: repairs,
		outcome: make([]Outcome, len(g.nodes)), dead: make([]bool, len(g.nodes)),
		trying: []taken{{}},
		result: Result{FailedCount: new(big.Int)},
	}
	r.advance()
	return r
}

// Next returns the node to run; false if the run has ended.
func (r *Run) Next() (id int, ok bool) { return r.next, r.result.End == "" }

// Done records the outcome of the node that Next returned; other nodes are an error.
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
		return fmt.Errorf("node %d: unknown outcome %.40q", id, o)
	}
	r.outcome[id] = o
	if r.result.End == "" {
		r.advance()
	}
	return nil
}

// Result returns the current state of the run. Failed must not be changed.
func (r *Run) Result() Result {
	out := r.result
	out.FailedCount = new(big.Int).Set(out.FailedCount)
	if out.End == "" {
		out.Path = append(r.prefix(), r.next)
	}
	return out
}

// advance follows the path being tried, to the next node that has to run or to the end.
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

// pathsFail records that all paths that continue with n fail, and reports whether that ends the
// run.
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

// prefix returns the path being tried, without the start and the next node.
func (r *Run) prefix() []int {
	out := make([]int, 0, len(r.trying))
	for _, t := range r.trying[1:] {
		out = append(out, t.node)
	}
	return out
}

// firstPath returns the first path that continues with n.
func (r *Run) firstPath(n int) []int { return r.g.pathsFrom(r.prefix(), n, 1)[0] }
