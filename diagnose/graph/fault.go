package graph

import (
	"fmt"
	"strconv"
	"strings"
)

// Reasons are stable names of mistakes in an adjacency list, also in the condition Accepted of an
// OperationSet.
const (
	Empty                = "Empty"                // no node but the start
	TooLarge             = "TooLarge"             // more than MaxNodes or MaxEdges
	WrongID              = "IDMismatch"           // an id that is not the index
	StartHasOperation    = "StartOperation"       // node 0 runs something
	NoOperation          = "NoOperation"          // another node runs nothing
	UnknownNode          = "UnknownNode"          // an edge to a node that doesn't exist
	DoubledEdge          = "DoubledEdge"          // an edge that is listed twice
	SecondSource         = "SecondSource"         // a node other than the start without incoming edges
	Unreachable          = "UnreachableNode"      // nodes that can't be reached from the start
	Cycle                = "Cycle"                // a path that returns to a node
	UnknownDependence    = "UnknownDependence"    // a dependence on a node that doesn't exist, on the start or on itself
	DoubledDependence    = "DoubledDependence"    // a dependence that is listed twice
	DependenceNotOnAPath = "DependenceNotOnAPath" // a dependence that some path to the node bypasses
)

// Fault is one mistake in an adjacency list.
type Fault struct {
	Reason  string
	Index   int    // of the node in the list; -1: the mistake is in the list itself
	Field   string // of this node: "id", "to", "operation", "dependences"; empty: none
	Message string // one line that names the nodes
}

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
