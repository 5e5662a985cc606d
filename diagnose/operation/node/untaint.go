package node

import (
	"github.com/kernosis/kernosis/diagnose/operation"
)

// Untaint takes taints of Kernosis back.
func Untaint(operation.Host) operation.Builtin {
	return operation.Builtin{
		Name: "untaint", Doc: "Takes back a taint that Kernosis has added to the Diagnosis' node, whatever its value, once all Diagnoses that asked for it have. That of a person or another program stays.",
		Effect: operation.Remediate, ByController: true, Results: nodeResults(),
		Parameters: []operation.Parameter{taintKeyParameter(), taintEffectParameter(), ownersParameter()},
	}
}
