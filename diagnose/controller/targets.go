package controller

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kernosis/kernosis/diagnose/api/v1alpha1"
)

// podPage is how many pods are read at once: some MiB.
const podPage = 500

// target is the node or pod that a Diagnosis of a targetSelector is about.
type target struct {
	node string                 // empty for a pod whose node the controller finds later
	pod  *v1alpha1.PodReference // nil: it is about the node
}

// key identifies and orders targets.
func (t *target) key() string {
	if t.pod != nil {
		return "pod/" + t.pod.Namespace + "/" + t.pod.Name + "/" + t.pod.Container
	}
	return "node/" + t.node
}

// chosen is what a targetSelector selects.
type chosen struct {
	targets []target // sorted, each once
	// Pods that match and can't be diagnosed.
	notRunning, onNoNode int
}

// left returns a text about the pods that were left out, or "" if there are none.
func (c *chosen) left() string {
	if c.notRunning+c.onNoNode == 0 {
		return ""
	}
	var parts []string
	if c.notRunning > 0 {
		parts = append(parts, fmt.Sprintf("%d not running", c.notRunning))
	}
	if c.onNoNode > 0 {
		parts = append(parts, fmt.Sprintf("%d on no node", c.onNoNode))
	}
	return "pods left out: " + strings.Join(parts, ", ")
}

// choose returns what a Diagnosis' targetSelector selects now. Nodes and pods given by name are
// always targets: if one does not exist, its Diagnosis reports that.
func (r *diagnoses) choose(ctx context.Context, d *v1alpha1.Diagnosis) (chosen, error) {
	s, by, out := d.Spec.TargetSelector, map[string]target{}, chosen{}
	add := func(t target) { by[t.key()] = t }
	for _, name := range s.NodeNames {
		add(target{node: name})
	}
	if s.NodeSelector != nil {
		selector, err := s.NodeSelector.Selector()
		if err != nil {
			return out, err
		}
		var nodes corev1.NodeList
		if err := r.client.List(ctx, &nodes, client.MatchingLabelsSelector{Selector: selector}, client.UnsafeDisableDeepCopy); err != nil {
			return out, err
		}
		for i := range nodes.Items {
			add(target{node: nodes.Items[i].Name})
		}
	}
	if s.PodSelector != nil {
		namespaces := s.Namespaces
		if len(namespaces) == 0 {
			namespaces = []string{d.Namespace}
		}
		for _, namespace := range namespaces {
			if err := r.choosePods(ctx, s.PodSelector, namespace, &out, add); err != nil {
				return out, err
			}
		}
	}
	for _, p := range s.PodReferences {
		p.Namespace = cmp.Or(p.Namespace, d.Namespace)
		add(target{pod: &p})
	}
	for _, key := range slices.Sorted(maps.Keys(by)) {
		out.targets = append(out.targets, by[key])
	}
	return out, nil
}

// choosePods reads the pods of a namespace from the API server, page by page.
func (r *diagnoses) choosePods(ctx context.Context, by *v1alpha1.LabelSelector, namespace string, out *chosen, add func(target)) error {
	selector, err := by.Selector()
	if err != nil {
		return err
	}
	page := ""
	for {
		var pods corev1.PodList
		if err := r.api.List(ctx, &pods, client.InNamespace(namespace), client.MatchingLabelsSelector{Selector: selector},
			client.Limit(podPage), client.Continue(page)); err != nil {
			return err
		}
		for i := range pods.Items {
			switch p := &pods.Items[i]; {
			case p.Spec.NodeName == "":
				out.onNoNode++
			case p.Status.Phase != corev1.PodRunning:
				out.notRunning++
			default:
				add(target{node: p.Spec.NodeName, pod: &v1alpha1.PodReference{Namespace: p.Namespace, Name: p.Name}})
			}
		}
		if page = pods.Continue; page == "" {
			return nil
		}
	}
}

// child returns the Diagnosis of a target.
func child(parent *v1alpha1.Diagnosis, t *target) *v1alpha1.Diagnosis {
	d := parent.Child(nil, "\n"+t.key(), 253)
	d.Spec.NodeName, d.Spec.PodReference = t.node, t.pod
	return d
}
