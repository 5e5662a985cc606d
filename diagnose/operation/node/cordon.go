package node

import (
	"github.com/kernosis/kernosis/diagnose/operation"
)

// Cordon keeps new pods off the node.
func Cordon(operation.Host) operation.Builtin {
	return operation.Builtin{
		Name: "cordon", Doc: "Marks the Diagnosis' node as unschedulable. One that somebody else has cordoned is left as it is, and stays theirs.",
		Effect: operation.Remediate, ByController: true, Results: nodeResults(),
	}
}

// nodeResults are those of an operation that changes the Node object.
func nodeResults() []operation.Result {
	return []operation.Result{{Name: "changed", Doc: "whether the node was changed: `true`, or `false` where it was so already"}}
}
