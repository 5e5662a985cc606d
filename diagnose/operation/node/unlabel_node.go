package node

import (
	"github.com/kernosis/kernosis/diagnose/operation"
)

func UnlabelNode(operation.Host) operation.Builtin {
	return operation.Builtin{
		Name: "unlabel-node", Doc: "Reverts label-node on the Diagnosis' node once all Diagnoses that requested the label have reverted it, and restores the previous value. If " +
			"someone has changed it since, it stays.",
		Effect: operation.Remediate, ByController: true, Results: nodeResults(),
		Parameters: []operation.Parameter{labelKeyParameter(), ownersParameter()},
	}
}
