package event

import "strings"

// KubernetesCondition reports whether a type of node condition belongs to Kubernetes, so that only
// kubelet and the cloud provider set it: Ready, NetworkUnavailable, and all that end in Pressure,
// as kubelet may get more of these. The chart's admission policy refuses a status update of an
// agent with such a condition, and with it all conditions that the agent writes.
func KubernetesCondition(conditionType string) bool {
	return conditionType == "Ready" || conditionType == "NetworkUnavailable" || strings.HasSuffix(conditionType, "Pressure")
}
