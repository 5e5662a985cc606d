package node

import (
	"github.com/kernosis/kernosis/diagnose/operation"
)

// Effects of a taint, as Kubernetes names them.
const (
	TaintNoSchedule       = "NoSchedule"
	TaintPreferNoSchedule = "PreferNoSchedule"
	TaintNoExecute        = "NoExecute"
)

// DefaultTaintKey is the key of a taint where none is given.
const DefaultTaintKey = "kernosis.io/problem"

// Taint adds a taint to the node.
func Taint(operation.Host) operation.Builtin {
	return operation.Builtin{
		Name: "taint", Doc: "Adds a taint to the Diagnosis' node. One that is there already, by somebody else, stays theirs. NoExecute ends pods that don't tolerate it at once, whatever their PodDisruptionBudget says: prefer drain.",
		Effect: operation.Remediate, ByController: true, Results: nodeResults(),
		Parameters: []operation.Parameter{
			taintKeyParameter(),
			{Name: "value", Kind: operation.String, Max: 63, Doc: "value of the taint; another one with the key and effect that is there already is a failure"},
			taintEffectParameter(),
		},
	}
}

func taintKeyParameter() operation.Parameter {
	return operation.Parameter{
		Name: "key", Kind: operation.String, Max: 317, Default: DefaultTaintKey,
		Doc: "key of the taint; none of the domains kubernetes.io and k8s.io",
	}
}

func taintEffectParameter() operation.Parameter {
	return operation.Parameter{
		Name: "effect", Kind: operation.Enum, Values: []string{TaintNoSchedule, TaintPreferNoSchedule, TaintNoExecute}, Default: TaintNoSchedule,
		Doc: "what becomes of pods that don't tolerate it",
	}
}
