package graph

import (
	"fmt"
	"strconv"
	"strings"
)

// Reason is the stable name of a mistake in an adjacency list.
type Reason string

// Reasons. They equal those of the API (kernosis.io/v1alpha1) where the API has them.
const (
	Empty                Reason = "Empty"                // no node but the start
	TooLarge             Reason = "TooLarge"             // more than MaxNodes or MaxEdges
	WrongID              Reason = "IDMismatch"           // an id that is not the index
	StartHasOperation    Reason = "StartOperation"       // node 0 runs something
	NoOperation          Reason = "NoOperation"          // another node runs nothing
	UnknownNode          Reason = "UnknownNode"          // an edge to a node that doesn't exist
	DoubledEdge          Reason = "DoubledEdge"          // an edge that is listed twice
	SecondSource         Reason = "SecondSource"         // a node other than the start without incoming edges
	Unreachable          Reason = "UnreachableNode"      // nodes that can't be reached from the start
	Cycle                Reason = "Cycle"                // a path that returns to a node
	UnknownDependence    Reason = "UnknownDependence"    // a dependence on a node that doesn't exist, on the start or on itself
	DoubledDependence    Reason = "DoubledDependence"    // a dependence that is listed twice
	DependenceNotOnAPath Reason = "DependenceNotOnAPath" // a dependence that some path to the node bypasses
)

// Fault is one mistake in an adjacency list.
type Fault struct {
	Reason Reason
	Index  int    // of the node in the list; -1: the mistake is in the list itself
	Field  string // of this node: "id", "to", "operation", "dependences"; empty: none
	// Nodes are the ids of the nodes concerned: of a cycle in order, with the first again at the
	// end; of a DependenceNotOnAPath the path.
	Nodes   []int
	Message string // one line that names the nodes
}

func (f *Fault) Error() string { return f.Message }

// maxFaults bounds the faults in an error's text, since one mistake can cause many.
const maxFaults = 50

// Faults are all mistakes in an adjacency list, printed one a line. There is at least one.
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

// join formats the first maxNamed ids with a separator.
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

// named formats ids: "node 3" or "nodes 3, 4".
func named(ids []int) string {
	if len(ids) == 1 {
		return "node " + strconv.Itoa(ids[0])
	}
	return "nodes " + join(ids, ", ")
}
