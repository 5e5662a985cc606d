package node

import (
	"github.com/kernosis/kernosis/diagnose/operation"
)

func Uncordon(operation.Host) operation.Builtin {
	return operation.Builtin{
		Name: "uncordon", Doc: "Reverts a cordon by Kernosis on the Diagnosis' node once all Diagnoses that requested it have reverted it. A cordon by a person or another " +
			"program stays.",
		Effect: operation.Remediate, ByController: true, Parameters: []operation.Parameter{ownersParameter()}, Results: nodeResults(),
	}
}

// Values of the parameter "of": whose changes are reverted.
const (
	OwnersSelf = "self" // those of this Diagnosis
	OwnersAll  = "all"  // those of all Diagnoses
)

func ownersParameter() operation.Parameter {
	return operation.Parameter{
		Name: "of", Kind: operation.Enum, Values: []string{OwnersSelf, OwnersAll}, Default: OwnersSelf,
		Doc: "self: undo what this Diagnosis did; all: what any Diagnosis did, including deleted ones",
	}
}
