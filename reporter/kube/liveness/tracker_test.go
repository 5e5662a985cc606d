package liveness

import (
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"
)

// What keeps a DaemonSet's pod off a Node, and what does not.
func TestWants(t *testing.T) {
	node := &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: "n7", Labels: map[string]string{"pool": "gpu", "cores": "8"}},
		Spec: corev1.NodeSpec{Taints: []corev1.Taint{
			{Key: "gpu", Value: "a100", Effect: corev1.TaintEffectNoSchedule}, {Key: "old", Effect: corev1.TaintEffectPreferNoSchedule},
			{Key: corev1.TaintNodeUnschedulable, Effect: corev1.TaintEffectNoSchedule}, {Key: corev1.TaintNodeNotReady, Effect: corev1.TaintEffectNoExecute},
		}},
	}
	const tolerates = "tolerations: [{operator: Exists}]\n"
	required := func(terms string) string {
		return tolerates + "affinity: {nodeAffinity: {requiredDuringSchedulingIgnoredDuringExecution: {nodeSelectorTerms: [" + terms + "]}}}"
	}
	for name, c := range map[string]struct {
		pod  string // YAML
		want bool
	}{
		"all nodes":                {tolerates, true},
		"its label":                {tolerates + "nodeSelector: {pool: gpu}", true},
		"another label":            {tolerates + "nodeSelector: {pool: gpu, disk: ssd}", false},
		"a preference":             {tolerates + "affinity: {nodeAffinity: {preferredDuringSchedulingIgnoredDuringExecution: [{weight: 1, preference: {matchExpressions: [{key: pool, operator: In, values: [cpu]}]}}]}}", true},
		"in":                       {required("{matchExpressions: [{key: pool, operator: In, values: [cpu, gpu]}]}"), true},
		"not in":                   {required("{matchExpressions: [{key: pool, operator: NotIn, values: [gpu]}]}"), false},
		"a label that is not here": {required("{matchExpressions: [{key: disk, operator: NotIn, values: [ssd]}, {key: disk, operator: DoesNotExist}]}"), true},
		"numbers":                  {required("{matchExpressions: [{key: cores, operator: Gt, values: ['7']}, {key: cores, operator: Lt, values: ['9']}]}"), true},
		"one of two terms":         {required("{matchExpressions: [{key: disk, operator: Exists}]}, {matchFields: [{key: metadata.name, operator: In, values: [n7]}]}"), true},
		"another node's name":      {required("{matchFields: [{key: metadata.name, operator: In, values: [n8]}]}"), false},
		"an empty term":            {required("{}"), false},
		"no toleration":            {"", false},
		"that toleration":          {"tolerations: [{key: gpu, value: a100, effect: NoSchedule}]", true},
		"of another value":         {"tolerations: [{key: gpu, value: h100, effect: NoSchedule}]", false},
	} {
		d := &appsv1.DaemonSet{}
		if err := yaml.UnmarshalStrict([]byte(c.pod), &d.Spec.Template.Spec); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if got := Wants(d, node); got != c.want {
			t.Errorf("%s: %t", name, got)
		}
	}
}
