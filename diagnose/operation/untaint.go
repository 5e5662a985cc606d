package operation

// Untaint takes taints of Kernosis back.
func Untaint(Host) Builtin {
	return Builtin{
		Name: "untaint", Doc: "Takes back a taint that Kernosis has added to the Diagnosis' node, whatever its value, once all Diagnoses that asked for it have. That of a person or another program stays.",
		Effect: Remediate, ByController: true, Results: nodeResults(),
		Parameters: []Parameter{taintKeyParameter(), taintEffectParameter(), ownersParameter()},
	}
}
