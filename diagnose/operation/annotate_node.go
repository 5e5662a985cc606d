package operation

// AnnotateNode sets an annotation of the node.
func AnnotateNode(Host) Builtin {
	return Builtin{
		Name: "annotate-node", Doc: "Sets an annotation of the Diagnosis' node. Another value is replaced, unless it is longer than 4096 bytes. unannotate-node takes it back and restores that.",
		Effect: Remediate, ByController: true, Results: nodeResults(),
		Parameters: []Parameter{
			annotationKeyParameter(),
			{Name: "value", Kind: String, Max: 1024, Doc: "its value"},
		},
	}
}

func annotationKeyParameter() Parameter {
	return Parameter{
		Name: "key", Kind: String, Required: true, Max: 317,
		Doc: "name of the annotation; none of the domains kubernetes.io, k8s.io and kernosis.io but `cluster-autoscaler.kubernetes.io/scale-down-disabled`",
	}
}
