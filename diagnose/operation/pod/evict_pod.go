package pod

import (
	"time"

	"github.com/kernosis/kernosis/diagnose/operation"
)

// EvictPod evicts the pod that a Diagnosis is about.
func EvictPod(operation.Host) operation.Builtin {
	return operation.Builtin{
		Name: "evict-pod", Doc: "Evicts a pod of the Diagnosis' node as its PodDisruptionBudgets allow, and waits until it is gone. One that does not allow it is asked again until the time is up.",
		Effect: operation.Remediate, ByController: true, Parameters: endedPodParameters(), Results: endedPodResults(),
	}
}

// endedPodParameters name the pod that is ended.
func endedPodParameters() []operation.Parameter {
	return []operation.Parameter{
		{Name: "podNamespace", Kind: operation.String, Required: true, Max: 63, Doc: "namespace of the pod"},
		{Name: "podName", Kind: operation.String, Required: true, Max: 253, Doc: "the pod; neither a static pod, nor one of Kernosis"},
		{Name: "podUID", Kind: operation.String, Max: 64, Doc: "its UID; without one the pod must be older than the Diagnosis. One that was made anew under the name is left alone"},
		GracePeriodParameter(),
		{Name: "timeout", Kind: operation.Duration, Default: "5m", Min: int64(time.Second), Max: int64(time.Hour), Doc: "for how long the pod is waited for"},
	}
}

func GracePeriodParameter() operation.Parameter {
	return operation.Parameter{
		Name: "gracePeriod", Kind: operation.Duration, Min: int64(time.Second), Max: int64(time.Hour),
		Doc: "how long a pod has to end; without it what the pod says itself",
	}
}

func endedPodResults() []operation.Result {
	return []operation.Result{{Name: "pod", Doc: "the pod that was ended, as `namespace/name`"}}
}
