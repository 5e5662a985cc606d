package node

import (
	"github.com/kernosis/kernosis/diagnose/operation"
)

// AnnotateNode sets an annotation of the node.
func AnnotateNode(operation.Host) operation.Builtin {
	return operation.Builtin{
		Name: "annotate-node", Doc: "Sets an annotation of the Diagnosis' node. Another value is replaced, unless it is longer than 4096 bytes. unannotate-node takes it back and restores that.",
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
		Doc: "name of the annotation; none of the domains kubernetes.io, k8s.io and kernosis.io but `cluster-autoscaler.kubernetes.io/scale-down-disabled`",
	}
}
