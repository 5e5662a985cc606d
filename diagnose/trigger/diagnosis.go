package trigger

import (
	"cmp"
	"maps"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kernosis/kernosis/collector/display"
	"github.com/kernosis/kernosis/diagnose/api/v1alpha1"
)

// Labels and annotations that describe a Diagnosis' origin, besides [v1alpha1.LabelTrigger].
const (
	// LabelSource has the [Source].
	LabelSource = v1alpha1.Group + "/trigger-source"
	// AnnotationTriggeredBy describes in one line what happened.
	AnnotationTriggeredBy = v1alpha1.Group + "/triggered-by"
	// AnnotationSubject names what it happened to.
	AnnotationSubject = v1alpha1.Group + "/trigger-subject"
	// AnnotationEpisode is when it began, as RFC 3339; for a cronTemplate, the scheduled time.
	AnnotationEpisode = v1alpha1.Group + "/trigger-episode"
	// AnnotationPodUID is the UID of the pod that a problem is about. It is not a parameter, because
	// operations would then enter the pod's network instead of the network that a probe came from.
	AnnotationPodUID = v1alpha1.Group + "/trigger-pod-uid"
	// AnnotationOmitted names parameters that are known but were omitted: too long, not plain text,
	// or uncertain.
	AnnotationOmitted = v1alpha1.Group + "/omitted-parameters"
)

// KeepOrigin removes all metadata from a Diagnosis in memory that Kernosis does not read. Users of
// namespaces choose its size.
func KeepOrigin(d *v1alpha1.Diagnosis) {
	d.Labels = only(d.Labels, v1alpha1.LabelTrigger, v1alpha1.LabelParent, LabelSource)
	d.Annotations = only(d.Annotations, v1alpha1.AnnotationFollows, AnnotationTriggeredBy, AnnotationSubject, AnnotationEpisode, AnnotationPodUID, AnnotationOmitted)
	parent := d.Parent()
	d.ManagedFields, d.Finalizers, d.OwnerReferences = nil, nil, nil
	if parent != nil {
		d.OwnerReferences = []metav1.OwnerReference{*parent}
	}
}

// PodUID returns the UID of the pod that a Diagnosis is about, or "" if it is unknown.
func PodUID(d *v1alpha1.Diagnosis) string {
	return cmp.Or(d.Spec.Parameters["podUID"], d.Annotations[AnnotationPodUID])
}

// only returns the labels or annotations with the keys.
func only(all map[string]string, keys ...string) map[string]string {
	var out map[string]string
	for _, key := range keys {
		if value, ok := all[key]; ok {
			if out == nil {
				out = make(map[string]string)
			}
			out[key] = value
		}
	}
	return out
}

// diagnosis returns the object for an occurrence, or the reason why there is none.
func (e *Engine) diagnosis(o *occurrence) (dx *v1alpha1.Diagnosis, why string) {
	m := o.matcher
	if pod := o.target.pod; pod != nil && !usable(&Pod{Namespace: pod.Namespace, Name: pod.Name, Container: pod.Container}) {
		return nil, WithheldInvalidTarget
	}
	if !validName(o.target.node, true) {
		return nil, WithheldInvalidTarget
	}
	dx = &v1alpha1.Diagnosis{
		TypeMeta: metav1.TypeMeta{APIVersion: v1alpha1.GroupVersion().String(), Kind: v1alpha1.KindDiagnosis},
		ObjectMeta: metav1.ObjectMeta{
			Name:      diagnosisName(m.name, m.source, o.subject, o.hint, o.episode),
			Namespace: e.cfg.Namespace,
			Labels:    map[string]string{v1alpha1.LabelTrigger: m.name, LabelSource: string(m.source)},
			Annotations: map[string]string{
				AnnotationTriggeredBy: display.Safe(o.cause, maxText),
				AnnotationSubject:     display.Safe(o.about, maxText),
				AnnotationEpisode:     o.episode.Format(time.RFC3339Nano),
			},
		},
		Spec: v1alpha1.DiagnosisSpec{
			OperationSet: m.spec.OperationSet, NodeName: cmp.Or(o.target.node, m.spec.NodeName), PodReference: o.target.pod,
			TTL: *cmp.Or(m.spec.TTL, &metav1.Duration{Duration: v1alpha1.DefaultTTL}),
		},
	}
	if o.podUID != "" {
		dx.Annotations[AnnotationPodUID] = display.Safe(o.podUID, maxText)
	}
	if len(o.omitted) > 0 {
		dx.Annotations[AnnotationOmitted] = strings.Join(o.omitted, ",")
	}
	if dx.Spec.NodeName == "" && dx.Spec.PodReference == nil {
		if m.spec.TargetSelector == nil {
			return nil, WithheldNoTarget
		}
		dx.Spec.TargetSelector = m.spec.TargetSelector.DeepCopy()
	}
	parameters := v1alpha1.Parameters{}
	if dx.Spec.NodeName != "" {
		parameters["node"] = dx.Spec.NodeName
	}
	maps.Copy(parameters, m.spec.Parameters)
	maps.Copy(parameters, o.parameters)
	if len(parameters) > 0 {
		dx.Spec.Parameters = parameters
	}
	return dx, ""
}
