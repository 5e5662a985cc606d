package events

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kernosis/kernosis/collector/display"
	"github.com/kernosis/kernosis/collector/event"
	"github.com/kernosis/kernosis/collector/pods"
	"github.com/kernosis/kernosis/detector/problem"
	"github.com/kernosis/kernosis/reporter/kube/conditions"
)

const (
	// maxMessage is the API's limit for an Event's message, in bytes.
	maxMessage = 1024
	// How many of a pod's labels, and how many bytes of them, are copied to its Events, in the
	// order of their keys. kubelet copies them all, but a pod may have a megabyte of them.
	maxLabels     = 64
	maxLabelBytes = 8 << 10
)

// render returns the Event for the API server. find looks up the pod that an Event on the Node is
// about. namespace is the one of Events on the Node; empty: default.
func (s *series) render(node, namespace string, find func(uid string) (pods.Pod, bool)) *corev1.Event {
	e := &corev1.Event{
		ObjectMeta:          metav1.ObjectMeta{Name: s.name(node), Annotations: s.annotations()},
		Reason:              s.Reason,
		Message:             s.text(find),
		Type:                corev1.EventTypeWarning,
		Source:              corev1.EventSource{Component: Component, Host: node},
		FirstTimestamp:      metav1.NewTime(s.First),
		LastTimestamp:       metav1.NewTime(s.Last),
		Count:               int32(min(s.Count, math.MaxInt32)),
		ReportingController: Component,
		ReportingInstance:   node,
	}
	if s.Severity == problem.Info {
		e.Type = corev1.EventTypeNormal
	}
	if s.Pod != "" {
		e.Namespace, e.Labels = s.Where.Namespace, boundedLabels(s.Where.Labels)
		e.InvolvedObject = corev1.ObjectReference{
			APIVersion: "v1", Kind: "Pod", Namespace: s.Where.Namespace, Name: s.Where.Name, UID: types.UID(s.Where.UID),
		}
		return e
	}
	// As kubelet does it: the UID is the node's name, which "kubectl describe node" looks for in
	// every version. Events of an object without a namespace belong in the namespace default. In
	// another one the API server accepts them only if the object reference has that namespace, as
	// node-problem-detector's has.
	e.Namespace = cmp.Or(namespace, metav1.NamespaceDefault)
	e.InvolvedObject = corev1.ObjectReference{APIVersion: "v1", Kind: "Node", Namespace: namespace, Name: node, UID: types.UID(node)}
	return e
}

// text returns the message, with the names of known pods.
func (s *series) text(find func(uid string) (pods.Pod, bool)) string {
	m := s.Message
	if s.About != "" {
		name, seen := s.About, strings.Contains(m, s.About)
		if p, ok := find(s.About); ok {
			name = p.Namespace + "/" + p.Name
			m = strings.Replace(m, "pod "+s.About, "pod "+name, 1)
			seen = strings.Contains(m, name)
		}
		if !seen && s.Pod == "" {
			m += " (pod " + name + ")"
		}
	}
	if s.Mixed {
		m = "(the latest of several) " + m
	}
	note := ""
	if s.Unreported > 0 {
		note = " (" + strconv.FormatUint(s.Unreported, 10) + " of " + strconv.FormatUint(s.Count, 10) + " not reported on their pods)"
	}
	return display.Cut(m, maxMessage-len(note)) + note
}

func (s *series) annotations() map[string]string {
	f := s.Event.Facts()
	f.Doc = display.Safe(s.Doc, conditions.MaxReason)
	return f.Annotations()
}

// patch returns the patch of an Event with a continuing series. With facts, the patch sets those
// of the latest occurrence and removes those of an earlier one; without, the Event keeps its
// facts.
func patch(e *corev1.Event, facts bool) ([]byte, error) {
	fields := map[string]any{
		"count": e.Count, "lastTimestamp": e.LastTimestamp, "message": e.Message, "type": e.Type, "reason": e.Reason,
	}
	if facts {
		annotations := map[string]any{}
		for _, key := range event.AnnotationKeys() {
			annotations[key] = nil
			if value, ok := e.Annotations[key]; ok {
				annotations[key] = value
			}
		}
		fields["metadata"] = map[string]any{"annotations": annotations}
	}
	b, err := json.Marshal(fields)
	if err != nil {
		return nil, fmt.Errorf("patch of an event: %w", err)
	}
	return b, nil
}

// reason makes a reason CamelCase, as Events and conditions require: rules are checked for that
// when they are loaded, reports of third parties are not.
func reason(r string) string { return cmp.Or(conditions.CamelCase(r), "Problem") }

func boundedLabels(labels map[string]string) map[string]string {
	if len(labels) == 0 {
		return nil
	}
	size := 0
	out := make(map[string]string, min(len(labels), maxLabels))
	for _, k := range slices.Sorted(maps.Keys(labels)) {
		size += len(k) + len(labels[k])
		if len(out) == maxLabels || size > maxLabelBytes {
			break
		}
		out[k] = labels[k]
	}
	return out
}
