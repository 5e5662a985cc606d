package node

import (
	"time"

	"github.com/kernosis/kernosis/diagnose/operation"
	"github.com/kernosis/kernosis/diagnose/operation/pod"
)

func Drain(operation.Host) operation.Builtin {
	return operation.Builtin{
		Name: "drain", Doc: "Cordons the Diagnosis' node like cordon, evicts its pods within their PodDisruptionBudgets, and waits until they are gone. Static pods, " +
			"pods of DaemonSets and Kernosis pods stay. If the parameters forbid the eviction of one pod, none is evicted. If it fails, the node stays " +
			"cordoned.",
		Effect: operation.Remediate, ByController: true,
		Parameters: []operation.Parameter{
			{Name: "timeout", Kind: operation.Duration, Default: "10m", Min: int64(time.Second), Max: int64(time.Hour), Doc: "how long to wait for pods; the Operation's timeoutSeconds does not apply"},
			pod.GracePeriodParameter(),
			{Name: "deleteEmptyDirData", Kind: operation.Boolean, Default: "false", Doc: "evict pods with an emptyDir, whose data is lost"},
			{Name: "force", Kind: operation.Boolean, Default: "false", Doc: "evict pods that nothing recreates"},
			{Name: "ignoreDaemonSets", Kind: operation.Boolean, Default: "true", Doc: "drain a node with DaemonSet pods, which stay"},
		},
		Results: []operation.Result{
			{Name: "evicted", Doc: "accepted evictions"},
			{Name: "stayed", Doc: "pods that stay because of their kind: DaemonSet, static, Kernosis"},
		},
	}
}
