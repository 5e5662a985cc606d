package operation

// UnlabelNode takes labels of Kernosis back.
func UnlabelNode(Host) Builtin {
	return Builtin{
		Name: "unlabel-node", Doc: "Takes back a label that label-node has set on the Diagnosis' node, once all Diagnoses that asked for it have, and restores the value that the node had before. Where somebody has changed it since, it stays.",
		Effect: Remediate, ByController: true, Results: nodeResults(),
		Parameters: []Parameter{labelKeyParameter(), ownersParameter()},
	}
}
