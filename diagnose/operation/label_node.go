package operation

// LabelNode sets a label of the node.
func LabelNode(Host) Builtin {
	return Builtin{
		Name: "label-node", Doc: "Sets a label of the Diagnosis' node. Another value is replaced. unlabel-node takes it back and restores that.",
		Effect: Remediate, ByController: true, Results: nodeResults(),
		Parameters: []Parameter{
			labelKeyParameter(),
			{Name: "value", Kind: String, Max: 63, Doc: "its value"},
		},
	}
}

func labelKeyParameter() Parameter {
	return Parameter{
		Name: "key", Kind: String, Required: true, Max: 317,
		Doc: "name of the label; none of the domains kubernetes.io, k8s.io and kernosis.io but `node.kubernetes.io/exclude-from-external-load-balancers`",
	}
}
