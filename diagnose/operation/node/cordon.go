package node

import (
	"github.com/kernosis/kernosis/diagnose/operation"
)

func Cordon(operation.Host) operation.Builtin {
	return operation.Builtin{
		Name: "cordon", Doc: "Marks the Diagnosis' node unschedulable. If someone else cordoned it already, the cordon remains theirs.",
		Effect: operation.Remediate, ByController: true, Results: nodeResults(),
	}
}

// nodeResults returns the results of an operation that changes the Node object.
func nodeResults() []operation.Result {
	return []operation.Result{{Name: "changed", Doc: "true: the node was changed; false: it already was in that state"}}
}
