package liveness

import (
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	corev1helpers "k8s.io/component-helpers/scheduling/corev1"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"
	"k8s.io/klog/v2"
)

// Wants reports whether a DaemonSet would create a pod on a Node: its node selector and required
// affinity match the Node, and it tolerates the Node's taints. Pods of DaemonSets tolerate
// Kubernetes' own taints, such as those of cordoned Nodes.
func Wants(d *appsv1.DaemonSet, n *corev1.Node) bool {
	pod := &corev1.Pod{Spec: d.Spec.Template.Spec}
	if selected, _ := nodeaffinity.GetRequiredNodeAffinity(pod).Match(n); !selected { // the API server has checked the terms
		return false
	}
	_, repelled := corev1helpers.FindMatchingUntoleratedTaint(klog.Background(), n.Spec.Taints, pod.Spec.Tolerations, func(t *corev1.Taint) bool {
		return t.Effect != corev1.TaintEffectPreferNoSchedule && !strings.HasPrefix(t.Key, "node.kubernetes.io/")
	}, true)
	return !repelled
}
