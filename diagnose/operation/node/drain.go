package node

import (
	"time"

	"github.com/kernosis/kernosis/diagnose/operation"
	"github.com/kernosis/kernosis/diagnose/operation/pod"
)

// Drain ends the pods of the node.
func Drain(operation.Host) operation.Builtin {
	return operation.Builtin{
		Name: "drain", Doc: "Cordons the Diagnosis' node as cordon does, evicts its pods as their PodDisruptionBudgets allow, and waits until they are gone. Static pods, pods of DaemonSets and those of Kernosis stay. If one pod must not be evicted by the parameters, none is. If it fails, the node stays cordoned.",
		Effect: operation.Remediate, ByController: true,
		Parameters: []operation.Parameter{
			{Name: "timeout", Kind: operation.Duration, Default: "10m", Min: int64(time.Second), Max: int64(time.Hour), Doc: "for how long pods are waited for; the Operation's `timeoutSeconds` does not count"},
			pod.GracePeriodParameter(),
			{Name: "deleteEmptyDirData", Kind: operation.Boolean, Default: "false", Doc: "whether pods with an `emptyDir` are evicted, whose data goes with them"},
			{Name: "force", Kind: operation.Boolean, Default: "false", Doc: "whether pods that nobody makes anew are evicted"},
			{Name: "ignoreDaemonSets", Kind: operation.Boolean, Default: "true", Doc: "whether a node with pods of DaemonSets is drained, which stay"},
		},
		Results: []operation.Result{
			{Name: "evicted", Doc: "how many evictions were accepted"},
			{Name: "stayed", Doc: "how many pods stay by their kind: of DaemonSets, static, of Kernosis"},
		},
	}
}
