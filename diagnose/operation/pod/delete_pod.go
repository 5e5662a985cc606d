package pod

import (
	"github.com/kernosis/kernosis/diagnose/operation"
)

func DeletePod(operation.Host) operation.Builtin {
	return operation.Builtin{
		Name: "delete-pod", Doc: "Deletes a pod of the Diagnosis' node regardless of PodDisruptionBudgets, and waits until it is gone. Prefer evict-pod.",
		Effect: operation.Remediate, ByController: true, Parameters: endedPodParameters(), Results: endedPodResults(),
	}
}
