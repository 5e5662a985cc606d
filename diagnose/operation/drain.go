package operation

import "time"

// Drain ends the pods of the node.
func Drain(Host) Builtin {
	return Builtin{
		Name: "drain", Doc: "Cordons the Diagnosis' node as cordon does, evicts its pods as their PodDisruptionBudgets allow, and waits until they are gone. Static pods, pods of DaemonSets and those of Kernosis stay. If one pod must not be evicted by the parameters, none is. If it fails, the node stays cordoned.",
		Effect: Remediate, ByController: true,
		Parameters: []Parameter{
			{Name: "timeout", Kind: Duration, Default: "10m", Min: int64(time.Second), Max: int64(time.Hour), Doc: "for how long pods are waited for; the Operation's `timeoutSeconds` does not count"},
			gracePeriodParameter(),
			{Name: "deleteEmptyDirData", Kind: Boolean, Default: "false", Doc: "whether pods with an `emptyDir` are evicted, whose data goes with them"},
			{Name: "force", Kind: Boolean, Default: "false", Doc: "whether pods that nobody makes anew are evicted"},
			{Name: "ignoreDaemonSets", Kind: Boolean, Default: "true", Doc: "whether a node with pods of DaemonSets is drained, which stay"},
		},
		Results: []Result{
			{"evicted", "how many evictions were accepted"},
			{"stayed", "how many pods stay by their kind: of DaemonSets, static, of Kernosis"},
		},
	}
}
