package operation

// Uncordon takes cordons of Kernosis back.
func Uncordon(Host) Builtin {
	return Builtin{
		Name: "uncordon", Doc: "Takes back a cordon that Kernosis has made on the Diagnosis' node, once all Diagnoses that asked for it have. That of a person or another program stays.",
		Effect: Remediate, ByController: true, Parameters: []Parameter{ownersParameter()}, Results: nodeResults(),
	}
}

// Whose acts are taken back.
const (
	OwnersSelf = "self" // those of this Diagnosis
	OwnersAll  = "all"  // those of all Diagnoses
)

func ownersParameter() Parameter {
	return Parameter{
		Name: "of", Kind: Enum, Values: []string{OwnersSelf, OwnersAll}, Default: OwnersSelf,
		Doc: "`self`: what this Diagnosis has done; `all`: what any Diagnosis has, also one that is gone",
	}
}
