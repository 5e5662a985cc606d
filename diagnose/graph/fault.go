package graph

import (
	"fmt"
	"strconv"
	"strings"
)

// Reason is what is wrong with an adjacency list, in a word that stays.
type Reason string

// Reasons. Those of the API (kernosis.io/v1alpha1) are the same where it has them.
const (
	Empty                Reason = "Empty"                // no node but the start
	TooLarge             Reason = "TooLarge"             // more than MaxNodes or MaxEdges
	WrongID              Reason = "IDMismatch"           // an id that is not the index
	StartHasOperation    Reason = "StartOperation"       // node 0 runs something
	NoOperation          Reason = "NoOperation"          // another node runs nothing
	UnknownNode          Reason = "UnknownNode"          // an edge to nowhere
	DoubledEdge          Reason = "DoubledEdge"          // an edge that is there twice
	SecondSource         Reason = "SecondSource"         // a node, not the start, to which no edge leads
	Unreachable          Reason = "UnreachableNode"      // nodes that no path from the start comes to
	Cycle                Reason = "Cycle"                // a path that comes back
	UnknownDependence    Reason = "UnknownDependence"    // a dependence that is no node, or is the start
	DoubledDependence    Reason = "DoubledDependence"    // a dependence that is there twice
	DependenceNotOnAPath Reason = "DependenceNotOnAPath" // a dependence that some path to the node passes by
)

// Fault is one thing that is wrong with an adjacency list.
type Fault struct {
	Reason Reason
	Index  int    // of the node in the list that it is reported for; -1: for the list itself
	Field  string // of that node: "id", "to", "operation", "dependences"; empty: none
	// Nodes are the ids that it is about, those of a cycle in order, the first again
	// at the end; of a DependenceNotOnAPath the path.
	Nodes   []int
	Message string // one line, names the nodes
}

func (f *Fault) Error() string { return f.Message }

// maxFaults bounds the faults reported of one list. So many come of a single mistake.
const maxFaults = 50

// Faults is all that is wrong with an adjacency list, a line each. It has at least one.
type Faults []*Fault

func (f Faults) Error() string {
	var b strings.Builder
	for i, one := range f {
		if i > 0 {
			b.WriteByte('\n')
		}
		if i == maxFaults {
			fmt.Fprintf(&b, "and %d more", len(f)-maxFaults)
			break
		}
		b.WriteString(one.Message)
	}
	return b.String()
}

// Unwrap returns each fault.
func (f Faults) Unwrap() []error {
	out := make([]error, len(f))
	for i, one := range f {
		out[i] = one
	}
	return out
}

// maxNamed bounds the ids in one message.
const maxNamed = 32

// join writes ids with a separator between them, the first maxNamed.
func join(ids []int, separator string) string {
	var b strings.Builder
	for i, id := range ids {
		if i > 0 {
			b.WriteString(separator)
		}
		if i == maxNamed {
			fmt.Fprintf(&b, "… (%d more)", len(ids)-maxNamed)
			break
		}
		b.WriteString(strconv.Itoa(id))
	}
	return b.String()
}

// named is "node 3" or "nodes 3, 4".
func named(ids []int) string {
	if len(ids) == 1 {
		return "node " + strconv.Itoa(ids[0])
	}
	return "nodes " + join(ids, ", ")
}
