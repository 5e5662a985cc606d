package chart_test

import (
	"maps"
	"reflect"
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"
)

// Service accounts with other names, created by the chart or not, have the rights and are subject
// to the policies.
func TestServiceAccounts(t *testing.T) {
	all := rendered(t, parse(t, `
agent:
  serviceAccount: {create: false, name: node-agent}
controller:
  serviceAccount: {name: watcher, annotations: {example.com/role: b}, automount: false}
repairs: {enabled: true}
flowControl: {enabled: true}
`))
	if object(all, "ServiceAccount", "node-agent") != nil || object(all, "ServiceAccount", "kernosis-agent") != nil {
		t.Error("the chart creates an account that exists already")
	}
	created := typed[corev1.ServiceAccount](t, all, "ServiceAccount", "watcher")
	if want := map[string]string{"example.com/role": "b"}; !maps.Equal(created.Annotations, want) {
		t.Errorf("annotations %v, want %v", created.Annotations, want)
	}

	pods := podsOf(t, all)
	if p := pods["kernosis-agent"].Spec; p.ServiceAccountName != "node-agent" || !*p.AutomountServiceAccountToken {
		t.Errorf("the agent runs as %s, with its token: %t", p.ServiceAccountName, *p.AutomountServiceAccountToken)
	}
	if p := pods["kernosis-controller"].Spec; p.ServiceAccountName != "watcher" || *p.AutomountServiceAccountToken {
		t.Errorf("the controller runs as %s, with its token: %t", p.ServiceAccountName, *p.AutomountServiceAccountToken)
	}

	uses := map[string]int{}
	for _, o := range all {
		text, err := yaml.Marshal(o.Object)
		if err != nil {
			t.Fatal(err)
		}
		for _, old := range []string{"serviceaccount:kernosis:kernosis-agent", "serviceaccount:kernosis:kernosis-controller"} {
			if strings.Contains(string(text), old) {
				t.Errorf("%s %s contains %s", o.GetKind(), o.GetName(), old)
			}
		}
		for _, name := range []string{"node-agent", "watcher"} {
			uses[name] += strings.Count(string(text), "system:serviceaccount:kernosis:"+name+"'")
		}
		for _, name := range subjects(o) {
			if name == "kernosis-agent" || name == "kernosis-controller" {
				t.Errorf("%s %s has the subject %s", o.GetKind(), o.GetName(), name)
			}
			uses["subject "+name]++
		}
	}
	// Four policies for agents; two for the controller, and one that exempts it. Two bindings each,
	// and one for repairs; three FlowSchemas and one.
	want := map[string]int{"node-agent": 4, "watcher": 3, "subject node-agent": 5, "subject watcher": 4}
	for name, n := range want {
		if uses[name] != n {
			t.Errorf("%s: %d uses, want %d", name, uses[name], n)
		}
	}
}

// subjects returns the service accounts of a binding or a FlowSchema.
func subjects(o *unstructured.Unstructured) (names []string) {
	list, _, _ := unstructured.NestedSlice(o.Object, "subjects")
	rules, _, _ := unstructured.NestedSlice(o.Object, "spec", "rules")
	for _, r := range rules {
		if of, ok, _ := unstructured.NestedSlice(r.(map[string]any), "subjects"); ok {
			list = append(list, of...)
		}
	}
	for _, s := range list {
		subject := s.(map[string]any)
		if account, ok := subject["serviceAccount"].(map[string]any); ok {
			subject = account
		}
		if name, ok := subject["name"].(string); ok {
			names = append(names, name)
		}
	}
	return names
}

// Every object has the common labels and annotations, no selector has them, and nothing else
// changes.
func TestCommonLabelsAndAnnotations(t *testing.T) {
	for _, profile := range []string{"default", "full"} {
		values := profiles(t)[profile]
		delete(values, "commonLabels")
		delete(values, "commonAnnotations")
		before := rendered(t, values)
		values["commonLabels"] = map[string]any{"team": "nodes", "release": "common"}
		values["commonAnnotations"] = map[string]any{"owner": "nodes", "helm.sh/hook-weight": "7"}
		after := rendered(t, values)
		if len(after) != len(before) {
			t.Fatalf("%s: %d objects, want %d", profile, len(after), len(before))
		}
		for i, o := range after {
			id := profile + ": " + o.GetKind() + " " + o.GetName()
			if o.GetKind() == "CustomResourceDefinition" || o.GetName() == "node-team" { // of extraObjects
				if !reflect.DeepEqual(o, before[i]) {
					t.Errorf("%s has changed", id)
				}
				continue
			}
			if o.GetLabels()["team"] != "nodes" || o.GetAnnotations()["owner"] != "nodes" {
				t.Errorf("%s: labels %v, annotations %v", id, o.GetLabels(), o.GetAnnotations())
			}
			if _, isPod, _ := unstructured.NestedMap(o.Object, "spec", "template"); isPod {
				labels, _, _ := unstructured.NestedStringMap(o.Object, "spec", "template", "metadata", "labels")
				if labels["team"] != "nodes" {
					t.Errorf("%s: labels of the pods %v", id, labels)
				}
				restore(o, before[i], "spec", "template", "metadata", "labels")
			}
			// An object's own labels take precedence over the common ones.
			for name, own := range before[i].GetLabels() {
				if o.GetLabels()[name] != own {
					t.Errorf("%s: label %s is %s, want %s", id, name, o.GetLabels()[name], own)
				}
			}
			for name, own := range before[i].GetAnnotations() {
				if o.GetAnnotations()[name] != own {
					t.Errorf("%s: annotation %s is %s, want %s", id, name, o.GetAnnotations()[name], own)
				}
			}
			restore(o, before[i], "metadata", "labels")
			restore(o, before[i], "metadata", "annotations")
			if !reflect.DeepEqual(o.Object, before[i].Object) {
				t.Errorf("%s: common labels change more than labels:\n%v\nwant\n%v", id, o.Object, before[i].Object)
			}
		}
	}
}

// restore copies a field from another object.
func restore(o, from *unstructured.Unstructured, field ...string) {
	unstructured.RemoveNestedField(o.Object, field...)
	if value, ok, _ := unstructured.NestedMap(from.Object, field...); ok {
		_ = unstructured.SetNestedMap(o.Object, value, field...)
	}
}

// Extra objects and texts are evaluated as templates.
func TestExtraObjects(t *testing.T) {
	all := rendered(t, parse(t, `
extraObjects:
- apiVersion: v1
  kind: ConfigMap
  metadata: {name: one, namespace: "{{ .Release.Namespace }}"}
- |
  apiVersion: v1
  kind: ConfigMap
  metadata:
    name: {{ printf "%s-two" .Release.Name }}
    labels: {{- include "kernosis.labels" (dict "root" . "component" "team") | nindent 4 }}
`))
	if one := object(all, "ConfigMap", "one"); one == nil || one.GetNamespace() != "kernosis" {
		t.Errorf("the object is %v", one)
	}
	if two := object(all, "ConfigMap", "kernosis-two"); two == nil || two.GetLabels()["app.kubernetes.io/component"] != "team" {
		t.Errorf("the text is %v", two)
	}
}

// All pods, including those of hooks, use the pull secrets from both values.
func TestPullSecrets(t *testing.T) {
	pods := podsOf(t, rendered(t, parse(t, `
imagePullSecrets: [{name: own}, {name: both}]
global: {imagePullSecrets: [by-name, {name: both}]}
uninstall: {crds: true}
`)))
	if len(pods) != 5 {
		t.Errorf("%d kinds of pods", len(pods))
	}
	want := []corev1.LocalObjectReference{{Name: "by-name"}, {Name: "both"}, {Name: "own"}}
	for name, p := range pods {
		if !slices.Equal(p.Spec.ImagePullSecrets, want) {
			t.Errorf("%s: %v, want %v", name, p.Spec.ImagePullSecrets, want)
		}
	}
}

// The values that all pods accept.
func TestValuesOfPods(t *testing.T) {
	const values = `
  podLabels: {team: nodes}
  podAnnotations: {example.com/note: hello}
  nodeSelector: {pool: infra}
  tolerations: [{key: infra, operator: Exists}]
  affinity: {nodeAffinity: {preferredDuringSchedulingIgnoredDuringExecution: [{weight: 1, preference: {matchExpressions: [{key: a, operator: Exists}]}}]}}
  priorityClassName: important
  resources: {limits: {memory: 1Gi}}
  extraEnv: [{name: HTTPS_PROXY, value: proxy}]
`
	const volumes = `
  extraVolumes: [{name: scratch, emptyDir: {}}]
  extraVolumeMounts: [{name: scratch, mountPath: /scratch}]
`
	all := rendered(t, parse(t, "agent:"+values+volumes+"controller:"+values+volumes+"  updateStrategy: {type: Recreate}\nhooks:"+values))
	pods := podsOf(t, all)
	for _, name := range []string{"kernosis-agent", "kernosis-controller", "kernosis-crds", "kernosis-uninstall"} {
		p := pods[name]
		c := p.Spec.Containers[0]
		if p.Labels["team"] != "nodes" || p.Annotations["example.com/note"] != "hello" {
			t.Errorf("%s: labels %v, annotations %v", name, p.Labels, p.Annotations)
		}
		if s := p.Spec; s.NodeSelector["pool"] != "infra" || len(s.Tolerations) != 1 || s.Tolerations[0].Key != "infra" || s.Affinity == nil || s.Affinity.NodeAffinity == nil || s.PriorityClassName != "important" {
			t.Errorf("%s: nodeSelector %v, tolerations %v, affinity %v, priority %s", name, s.NodeSelector, s.Tolerations, s.Affinity, s.PriorityClassName)
		}
		if c.Resources.Limits.Memory().String() != "1Gi" || !slices.Contains(c.Env, corev1.EnvVar{Name: "HTTPS_PROXY", Value: "proxy"}) {
			t.Errorf("%s: resources %v, environment %v", name, c.Resources, c.Env)
		}
		if strings.HasPrefix(name, "kernosis-agent") || name == "kernosis-controller" {
			mounted := slices.ContainsFunc(c.VolumeMounts, func(m corev1.VolumeMount) bool { return m.Name == "scratch" && m.MountPath == "/scratch" })
			if !mounted || !slices.ContainsFunc(p.Spec.Volumes, func(v corev1.Volume) bool { return v.Name == "scratch" }) {
				t.Errorf("%s has no volume scratch: %v", name, c.VolumeMounts)
			}
		}
	}
	if d := typed[appsv1.Deployment](t, all, "Deployment", "kernosis-controller"); d.Spec.Strategy.Type != appsv1.RecreateDeploymentStrategyType {
		t.Errorf("strategy of the controller: %v", d.Spec.Strategy)
	}
}

// "helm upgrade --reuse-values" renders with the values of an earlier chart, which lacked these, or had
// one more.
func TestValuesOfAnEarlierChart(t *testing.T) {
	pods := podsOf(t, rendered(t, parse(t, `
global: null
commonLabels: null
commonAnnotations: null
extraObjects: null
hooks: null
agent: {serviceAccount: null, serviceAccountAnnotations: {}}
controller: {serviceAccount: null, serviceAccountAnnotations: {}, extraVolumes: null, extraVolumeMounts: null, updateStrategy: null}
priorityClassQuota: {enabled: true}
`)))
	for name, p := range pods {
		if p.Spec.ServiceAccountName != name || !*p.Spec.AutomountServiceAccountToken {
			t.Errorf("%s runs as %s, with its token: %t", name, p.Spec.ServiceAccountName, *p.Spec.AutomountServiceAccountToken)
		}
	}
}
