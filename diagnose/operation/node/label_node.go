package node

import (
	"github.com/kernosis/kernosis/diagnose/operation"
)

func LabelNode(operation.Host) operation.Builtin {
	return operation.Builtin{
		Name: "label-node", Doc: "Sets a label on the Diagnosis' node. It replaces another value. unlabel-node reverts it and restores that value.",
		Effect: operation.Remediate, ByController: true, Results: nodeResults(),
		Parameters: []operation.Parameter{
			labelKeyParameter(),
			{Name: "value", Kind: operation.String, Max: 63, Doc: "its value"},
		},
	}
}

func labelKeyParameter() operation.Parameter {
	return operation.Parameter{
		Name: "key", Kind: operation.String, Required: true, Max: 317,
		Doc: "name of the label; the domains kubernetes.io, k8s.io and kernosis.io are refused except node.kubernetes.io/exclude-from-external-load-balancers",
	}
}
