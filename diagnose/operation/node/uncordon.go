package node

import (
	"github.com/kernosis/kernosis/diagnose/operation"
)

// Uncordon takes cordons of Kernosis back.
func Uncordon(operation.Host) operation.Builtin {
	return operation.Builtin{
		Name: "uncordon", Doc: "Takes back a cordon that Kernosis has made on the Diagnosis' node, once all Diagnoses that asked for it have. That of a person or another program stays.",
		Effect: operation.Remediate, ByController: true, Parameters: []operation.Parameter{ownersParameter()}, Results: nodeResults(),
	}
}

// Whose acts are taken back.
const (
	OwnersSelf = "self" // those of this Diagnosis
	OwnersAll  = "all"  // those of all Diagnoses
)

func ownersParameter() operation.Parameter {
	return operation.Parameter{
		Name: "of", Kind: operation.Enum, Values: []string{OwnersSelf, OwnersAll}, Default: OwnersSelf,
		Doc: "`self`: what this Diagnosis has done; `all`: what any Diagnosis has, also one that is gone",
	}
}
