package operation

// DeletePod deletes the pod that a Diagnosis is about.
func DeletePod(Host) Builtin {
	return Builtin{
		Name: "delete-pod", Doc: "Deletes a pod of the Diagnosis' node, whatever its PodDisruptionBudgets say, and waits until it is gone: prefer evict-pod.",
		Effect: Remediate, ByController: true, Parameters: endedPodParameters(), Results: endedPodResults(),
	}
}
