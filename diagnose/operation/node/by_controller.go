package node

import (
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/kernosis/kernosis/diagnose/operation"
	"github.com/kernosis/kernosis/diagnose/operation/pod"
)

// Values of the parameter "of": whose changes are reverted.
const (
	OwnersSelf = "self" // those of this Diagnosis
	OwnersAll  = "all"  // those of all Diagnoses
)

// ByController returns the operations that change the Node object, and drain.
func ByController() []operation.Builtin {
	all := slices.Concat(taints(), keys(), []operation.Builtin{{
		Name: "cordon", Doc: "Marks the Diagnosis' node unschedulable. If someone else cordoned it already, the cordon remains theirs.",
	}, {
		Name: "uncordon", Doc: "Reverts a cordon by Kernosis on the Diagnosis' node once all Diagnoses that requested it have reverted it. A cordon by a person or another " +
			"program stays.",
		Parameters: []operation.Parameter{ownersParameter()},
	}})
	for i := range all {
		all[i].Results = []operation.Result{{Name: "changed", Doc: "true: the node was changed; false: it already was in that state"}}
	}
	all = append(all, drain())
	for i := range all {
		all[i].Effect, all[i].ByController = operation.Remediate, true
	}
	return all
}

func ownersParameter() operation.Parameter {
	return operation.Parameter{
		Name: "of", Kind: operation.Enum, Values: []string{OwnersSelf, OwnersAll}, Default: OwnersSelf,
		Doc: "self: undo what this Diagnosis did; all: what any Diagnosis did, including deleted ones",
	}
}

func taints() []operation.Builtin {
	key := operation.Parameter{
		Name: "key", Kind: operation.String, Max: 317, Default: "kernosis.io/problem",
		Doc: "key of the taint; the domains kubernetes.io and k8s.io are refused",
	}
	const noSchedule, preferNoSchedule = string(corev1.TaintEffectNoSchedule), string(corev1.TaintEffectPreferNoSchedule)
	effect := func(effects ...string) operation.Parameter {
		return operation.Parameter{
			Name: "effect", Kind: operation.Enum, Values: effects, Default: noSchedule,
			Doc: "effect on pods that do not tolerate it",
		}
	}
	return []operation.Builtin{{
		Name: "taint", Doc: "Adds a taint to the Diagnosis' node. If someone else added it already, it remains theirs. To end pods, " +
			"use drain: it respects PodDisruptionBudgets, which the effect NoExecute would not.",
		Parameters: []operation.Parameter{
			key,
			{Name: "value", Kind: operation.String, Max: 63, Doc: "its value; fails if the key and effect exist with another value"},
			effect(noSchedule, preferNoSchedule),
		},
	}, {
		Name: "untaint", Doc: "Removes a taint added by Kernosis from the Diagnosis' node, whatever its value, once all Diagnoses that requested it have reverted it. A " +
			"taint by a person or another program stays.",
		// Earlier versions could set NoExecute.
		Parameters: []operation.Parameter{key, effect(noSchedule, preferNoSchedule, string(corev1.TaintEffectNoExecute)), ownersParameter()},
	}}
}

// keys returns the operations on labels and annotations.
func keys() []operation.Builtin {
	label := operation.Parameter{
		Name: "key", Kind: operation.String, Required: true, Max: 317,
		Doc: "name of the label; the domains kubernetes.io, k8s.io and kernosis.io are refused except node.kubernetes.io/exclude-from-external-load-balancers",
	}
	annotation := operation.Parameter{
		Name: "key", Kind: operation.String, Required: true, Max: 317,
		Doc: "name of the annotation; the domains kubernetes.io, k8s.io and kernosis.io are refused except cluster-autoscaler.kubernetes.io/scale-down-disabled",
	}
	return []operation.Builtin{{
		Name: "label-node", Doc: "Sets a label on the Diagnosis' node. It replaces another value. unlabel-node reverts it and restores that value.",
		Parameters: []operation.Parameter{label, {Name: "value", Kind: operation.String, Max: 63, Doc: "its value"}},
	}, {
		Name: "unlabel-node", Doc: "Reverts label-node on the Diagnosis' node once all Diagnoses that requested the label have reverted it, and restores the previous value. If " +
			"someone has changed it since, it stays.",
		Parameters: []operation.Parameter{label, ownersParameter()},
	}, {
		Name: "annotate-node", Doc: "Sets an annotation on the Diagnosis' node. It replaces another value, unless that is longer than 4096 bytes. unannotate-node reverts it and " +
			"restores that value.",
		Parameters: []operation.Parameter{annotation, {Name: "value", Kind: operation.String, Max: 1024, Doc: "its value"}},
	}, {
		Name: "unannotate-node", Doc: "Reverts annotate-node on the Diagnosis' node once all Diagnoses that requested the annotation have reverted it, and restores the previous " +
			"value. If someone has changed it since, it stays.",
		Parameters: []operation.Parameter{annotation, ownersParameter()},
	}}
}

func drain() operation.Builtin {
	return operation.Builtin{
		Name: "drain", Doc: "Cordons the Diagnosis' node like cordon, evicts its pods within their PodDisruptionBudgets, and waits until they are gone. Static pods, " +
			"pods of DaemonSets and Kernosis pods stay. If the parameters forbid the eviction of one pod, none is evicted. If it fails, the node stays " +
			"cordoned.",
		Parameters: []operation.Parameter{
			{Name: "timeout", Kind: operation.Duration, Default: "10m", Min: int64(time.Second), Max: int64(time.Hour), Doc: "how long to wait for pods; the Operation's timeoutSeconds does not apply"},
			pod.GracePeriodParameter(),
			{Name: "deleteEmptyDirData", Kind: operation.Boolean, Default: "false", Doc: "evict pods with an emptyDir, whose data is lost"},
			{Name: "force", Kind: operation.Boolean, Default: "false", Doc: "evict pods that nothing recreates"},
			{Name: "ignoreDaemonSets", Kind: operation.Boolean, Default: "true", Doc: "drain a node with DaemonSet pods, which stay"},
		},
		Results: []operation.Result{
			{Name: "evicted", Doc: "accepted evictions"},
			{Name: "stayed", Doc: "pods that stay because of their kind: DaemonSet, static, Kernosis"},
		},
	}
}
