package pod

import (
	"time"

	"github.com/kernosis/kernosis/diagnose/operation"
)

// ByController returns the operations that end a pod.
func ByController() []operation.Builtin {
	all := []operation.Builtin{{
		Name: "evict-pod", Doc: "Evicts a pod of the Diagnosis' node within its PodDisruptionBudgets, and waits until it is gone. While a budget refuses the eviction, it " +
			"retries until timeout.",
	}, {
		Name: "delete-pod", Doc: "Deletes a pod of the Diagnosis' node regardless of PodDisruptionBudgets, and waits until it is gone. Prefer evict-pod.",
	}}
	for i := range all {
		all[i].Effect, all[i].ByController = operation.Remediate, true
		all[i].Parameters = []operation.Parameter{
			{Name: "podNamespace", Kind: operation.String, Required: true, Max: 63, Doc: "namespace of the pod"},
			{Name: "podName", Kind: operation.String, Required: true, Max: 253, Doc: "name of the pod; static pods and Kernosis pods are refused"},
			{Name: "podUID", Kind: operation.String, Max: 64, Doc: "its UID; none: the pod must be older than the Diagnosis. A recreated pod of the same name is left alone"},
			GracePeriodParameter(),
			{Name: "timeout", Kind: operation.Duration, Default: "5m", Min: int64(time.Second), Max: int64(time.Hour), Doc: "how long to wait for the pod to end"},
		}
		all[i].Results = []operation.Result{{Name: "pod", Doc: "the ended pod, as namespace/name"}}
	}
	return all
}

// GracePeriodParameter is for operations that end pods.
func GracePeriodParameter() operation.Parameter {
	return operation.Parameter{
		Name: "gracePeriod", Kind: operation.Duration, Min: int64(time.Second), Max: int64(time.Hour),
		Doc: "termination grace period; none: the pod's own",
	}
}
