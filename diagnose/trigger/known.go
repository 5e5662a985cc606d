package trigger

import (
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/kernosis/kernosis/diagnose/api/v1alpha1"
)

// Known looks up the nodes and pods that alerts, Events and Triggers name: no Diagnosis is created
// for missing ones. If a function is nil, names are not checked. The functions are called during a
// decision and must not block: look pods up before.
type Known struct {
	// Pod returns the pod of a name; nil: there is none. known is false if it was not looked up.
	Pod func(namespace, name string) (pod *Pod, known bool)
	// Node reports whether there is a node of a name.
	Node func(name string) bool
}

// pod returns a pod, and whether it is known not to exist.
func (k Known) pod(namespace, name string) (pod *Pod, gone bool) {
	if k.Pod == nil {
		return nil, false
	}
	pod, known := k.Pod(namespace, name)
	return pod, known && pod == nil
}

// lacks returns why the target of a Diagnosis does not exist; empty: it does.
func (k Known) lacks(o *occurrence, dx *v1alpha1.Diagnosis) (why string) {
	switch {
	case o.podGone:
		return WithheldUnknownPod
	case o.elsewhere:
		return WithheldInvalidTarget
	case dx.Spec.NodeName != "" && k.Node != nil && !k.Node(dx.Spec.NodeName):
		return WithheldUnknownNode
	}
	return ""
}

// ask appends the pod of an occurrence, unless the occurrence is withheld anyway.
func (e *Engine) ask(asked []types.NamespacedName, o *occurrence, now time.Time) []types.NamespacedName {
	pod := o.target.pod
	if pod == nil {
		return asked
	}
	o.episode = o.episode.Round(0).UTC()
	if _, why := e.diagnosis(o); why != "" || e.against(o, now.Round(0)) != "" {
		return asked
	}
	if name := (types.NamespacedName{Namespace: pod.Namespace, Name: pod.Name}); !slices.Contains(asked, name) {
		asked = append(asked, name)
	}
	return asked
}
