package liveness

import (
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/selection"
	"k8s.io/klog/v2"
)

// Wants reports whether a DaemonSet's next pod on a Node would be made: whether its node selector
// and required affinity match the Node, and it tolerates the Node's taints.
func Wants(d *appsv1.DaemonSet, n *corev1.Node) bool {
	pod := &d.Spec.Template.Spec
	if !labels.SelectorFromSet(pod.NodeSelector).Matches(labels.Set(n.Labels)) {
		return false
	}
	if a := pod.Affinity; a != nil && a.NodeAffinity != nil && a.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution != nil {
		terms := a.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms
		if !slices.ContainsFunc(terms, func(t corev1.NodeSelectorTerm) bool { return selects(&t, n) }) {
			return false
		}
	}
	return !slices.ContainsFunc(n.Spec.Taints, func(t corev1.Taint) bool { return repels(&t, pod.Tolerations) })
}

// selects reports whether a term matches a Node. An empty one matches none.
func selects(t *corev1.NodeSelectorTerm, n *corev1.Node) bool {
	return len(t.MatchExpressions)+len(t.MatchFields) > 0 &&
		meets(t.MatchExpressions, n.Labels) && meets(t.MatchFields, labels.Set{"metadata.name": n.Name})
}

func meets(all []corev1.NodeSelectorRequirement, of labels.Set) bool {
	operators := map[corev1.NodeSelectorOperator]selection.Operator{ // as labels call them
		corev1.NodeSelectorOpIn: selection.In, corev1.NodeSelectorOpNotIn: selection.NotIn,
		corev1.NodeSelectorOpExists: selection.Exists, corev1.NodeSelectorOpDoesNotExist: selection.DoesNotExist,
		corev1.NodeSelectorOpGt: selection.GreaterThan, corev1.NodeSelectorOpLt: selection.LessThan,
	}
	return !slices.ContainsFunc(all, func(r corev1.NodeSelectorRequirement) bool {
		wants, err := labels.NewRequirement(r.Key, operators[r.Operator], r.Values)
		return err != nil || !wants.Matches(of)
	})
}

// repels reports whether a taint keeps a new pod away. Pods of DaemonSets tolerate Kubernetes' own
// taints, such as those of cordoned Nodes.
func repels(t *corev1.Taint, tolerations []corev1.Toleration) bool {
	return t.Effect != corev1.TaintEffectPreferNoSchedule && !strings.HasPrefix(t.Key, "node.kubernetes.io/") &&
		!slices.ContainsFunc(tolerations, func(o corev1.Toleration) bool { return o.ToleratesTaint(klog.Background(), t, true) })
}
