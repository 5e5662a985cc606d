package node

import (
	"github.com/kernosis/kernosis/diagnose/operation"
)

func AnnotateNode(operation.Host) operation.Builtin {
	return operation.Builtin{
		Name: "annotate-node", Doc: "Sets an annotation on the Diagnosis' node. It replaces another value, unless that is longer than 4096 bytes. unannotate-node reverts it and " +
			"restores that value.",
		Effect: operation.Remediate, ByController: true, Results: nodeResults(),
		Parameters: []operation.Parameter{
			annotationKeyParameter(),
			{Name: "value", Kind: operation.String, Max: 1024, Doc: "its value"},
		},
	}
}

func annotationKeyParameter() operation.Parameter {
	return operation.Parameter{
		Name: "key", Kind: operation.String, Required: true, Max: 317,
		Doc: "name of the annotation; the domains kubernetes.io, k8s.io and kernosis.io are refused except cluster-autoscaler.kubernetes.io/scale-down-disabled",
	}
}
