package node

import (
	"github.com/kernosis/kernosis/diagnose/operation"
)

// UnannotateNode takes annotations of Kernosis back.
func UnannotateNode(operation.Host) operation.Builtin {
	return operation.Builtin{
		Name: "unannotate-node", Doc: "Takes back an annotation that annotate-node has set on the Diagnosis' node, once all Diagnoses that asked for it have, and restores the value that the node had before. Where somebody has changed it since, it stays.",
		Effect: operation.Remediate, ByController: true, Results: nodeResults(),
		Parameters: []operation.Parameter{annotationKeyParameter(), ownersParameter()},
	}
}
