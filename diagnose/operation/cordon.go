package operation

// Cordon keeps new pods off the node.
func Cordon(Host) Builtin {
	return Builtin{
		Name: "cordon", Doc: "Marks the Diagnosis' node as unschedulable. One that somebody else has cordoned is left as it is, and stays theirs.",
		Effect: Remediate, ByController: true, Results: nodeResults(),
	}
}

// nodeResults are those of an operation that changes the Node object.
func nodeResults() []Result {
	return []Result{{"changed", "whether the node was changed: `true`, or `false` where it was so already"}}
}
