package node

import (
	"github.com/kernosis/kernosis/diagnose/operation"
)

func Untaint(operation.Host) operation.Builtin {
	return operation.Builtin{
		Name: "untaint", Doc: "Removes a taint added by Kernosis from the Diagnosis' node, whatever its value, once all Diagnoses that requested it have reverted it. A " +
			"taint by a person or another program stays.",
		Effect: operation.Remediate, ByController: true, Results: nodeResults(),
		Parameters: []operation.Parameter{
			taintKeyParameter(),
			taintEffectParameter(TaintNoSchedule, TaintPreferNoSchedule, TaintNoExecute), // earlier versions could set NoExecute
			ownersParameter(),
		},
	}
}
