package node

import (
	"github.com/kernosis/kernosis/diagnose/operation"
)

func UnannotateNode(operation.Host) operation.Builtin {
	return operation.Builtin{
		Name: "unannotate-node", Doc: "Reverts annotate-node on the Diagnosis' node once all Diagnoses that requested the annotation have reverted it, and restores the previous " +
			"value. If someone has changed it since, it stays.",
		Effect: operation.Remediate, ByController: true, Results: nodeResults(),
		Parameters: []operation.Parameter{annotationKeyParameter(), ownersParameter()},
	}
}
