package operation

// AnnotateNode sets an annotation of the node.
func AnnotateNode(Host) Builtin {
	return Builtin{
		Name: "annotate-node", Doc: "Sets an annotation of the Diagnosis' node. It is not taken back.",
		Effect: Remediate, ByController: true, Results: nodeResults(),
		Parameters: []Parameter{
			{Name: "key", Kind: String, Required: true, Max: 317, Doc: "name of the annotation; none of the domains kubernetes.io, k8s.io and kernosis.io but `cluster-autoscaler.kubernetes.io/scale-down-disabled`"},
			{Name: "value", Kind: String, Max: 1024, Doc: "its value"},
		},
	}
}
