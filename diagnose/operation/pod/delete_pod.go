package pod

import (
	"github.com/kernosis/kernosis/diagnose/operation"
)

// DeletePod deletes the pod that a Diagnosis is about.
func DeletePod(operation.Host) operation.Builtin {
	return operation.Builtin{
		Name: "delete-pod", Doc: "Deletes a pod of the Diagnosis' node, whatever its PodDisruptionBudgets say, and waits until it is gone: prefer evict-pod.",
		Effect: operation.Remediate, ByController: true, Parameters: endedPodParameters(), Results: endedPodResults(),
	}
}
