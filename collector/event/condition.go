package event

import "strings"

// KubernetesCondition reports whether a type of node condition is Kubernetes' own, which
// only kubelet and the cloud set: Ready, NetworkUnavailable, and all that end in Pressure,
// as kubelet may get more of these. The chart's admission policy refuses a status with one
// from an agent, and with it all conditions that the agent writes.
func KubernetesCondition(conditionType string) bool {
	return conditionType == "Ready" || conditionType == "NetworkUnavailable" || strings.HasSuffix(conditionType, "Pressure")
}
