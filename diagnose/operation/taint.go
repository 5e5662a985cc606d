package operation

// Effects of a taint, as Kubernetes names them.
const (
	TaintNoSchedule       = "NoSchedule"
	TaintPreferNoSchedule = "PreferNoSchedule"
	TaintNoExecute        = "NoExecute"
)

// DefaultTaintKey is the key of a taint where none is given.
const DefaultTaintKey = "kernosis.io/problem"

// Taint adds a taint to the node.
func Taint(Host) Builtin {
	return Builtin{
		Name: "taint", Doc: "Adds a taint to the Diagnosis' node. One that is there already, by somebody else, stays theirs. NoExecute ends pods that don't tolerate it at once, whatever their PodDisruptionBudget says: prefer drain.",
		Effect: Remediate, ByController: true, Results: nodeResults(),
		Parameters: []Parameter{
			taintKeyParameter(),
			{Name: "value", Kind: String, Max: 63, Doc: "value of the taint; another one with the key and effect that is there already is a failure"},
			taintEffectParameter(),
		},
	}
}

func taintKeyParameter() Parameter {
	return Parameter{
		Name: "key", Kind: String, Max: 317, Default: DefaultTaintKey,
		Doc: "key of the taint; none of the domains kubernetes.io and k8s.io",
	}
}

func taintEffectParameter() Parameter {
	return Parameter{
		Name: "effect", Kind: Enum, Values: []string{TaintNoSchedule, TaintPreferNoSchedule, TaintNoExecute}, Default: TaintNoSchedule,
		Doc: "what becomes of pods that don't tolerate it",
	}
}
