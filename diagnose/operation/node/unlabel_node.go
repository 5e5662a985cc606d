package node

import (
	"github.com/kernosis/kernosis/diagnose/operation"
)

// UnlabelNode takes labels of Kernosis back.
func UnlabelNode(operation.Host) operation.Builtin {
	return operation.Builtin{
		Name: "unlabel-node", Doc: "Takes back a label that label-node has set on the Diagnosis' node, once all Diagnoses that asked for it have, and restores the value that the node had before. Where somebody has changed it since, it stays.",
		Effect: operation.Remediate, ByController: true, Results: nodeResults(),
		Parameters: []operation.Parameter{labelKeyParameter(), ownersParameter()},
	}
}
