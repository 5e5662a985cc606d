package node

import (
	"github.com/kernosis/kernosis/diagnose/operation"
)

// Effects of a taint, named as in Kubernetes.
const (
	TaintNoSchedule       = "NoSchedule"
	TaintPreferNoSchedule = "PreferNoSchedule"
	TaintNoExecute        = "NoExecute"
)

// DefaultTaintKey is the key of a taint if none is given.
const DefaultTaintKey = "kernosis.io/problem"

func Taint(operation.Host) operation.Builtin {
	return operation.Builtin{
		Name: "taint", Doc: "Adds a taint to the Diagnosis' node. If someone else added it already, it remains theirs. To end pods, " +
			"use drain: it respects PodDisruptionBudgets, which the effect NoExecute would not.",
		Effect: operation.Remediate, ByController: true, Results: nodeResults(),
		Parameters: []operation.Parameter{
			taintKeyParameter(),
			{Name: "value", Kind: operation.String, Max: 63, Doc: "its value; fails if the key and effect exist with another value"},
			taintEffectParameter(TaintNoSchedule, TaintPreferNoSchedule),
		},
	}
}

func taintKeyParameter() operation.Parameter {
	return operation.Parameter{
		Name: "key", Kind: operation.String, Max: 317, Default: DefaultTaintKey,
		Doc: "key of the taint; the domains kubernetes.io and k8s.io are refused",
	}
}

func taintEffectParameter(effects ...string) operation.Parameter {
	return operation.Parameter{
		Name: "effect", Kind: operation.Enum, Values: effects, Default: TaintNoSchedule,
		Doc: "effect on pods that do not tolerate it",
	}
}
