package v1alpha1

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"maps"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
)

// Completed reports whether the Diagnosis has ended.
func (s *DiagnosisStatus) Completed() bool {
	return meta.IsStatusConditionTrue(s.Conditions, ConditionComplete)
}

// CompletedAt returns when the Diagnosis ended, if it has.
func (s *DiagnosisStatus) CompletedAt() (at time.Time, ok bool) {
	c := meta.FindStatusCondition(s.Conditions, ConditionComplete)
	if c == nil || c.Status != metav1.ConditionTrue {
		return time.Time{}, false
	}
	if s.CompletionTime != nil {
		return s.CompletionTime.Time, true
	}
	return c.LastTransitionTime.Time, true
}

// Result returns the result of a node of the graph, or nil.
func (s *DiagnosisStatus) Result(id int) *Result {
	return first(s.Results, func(r *Result) bool { return int(r.ID) == id })
}

// AwaitingApproval returns the result of the repair that the run waits for, or nil.
func (s *DiagnosisStatus) AwaitingApproval() *Result {
	return first(s.Results, func(r *Result) bool { return r.State == ResultAwaitingApproval })
}

// Remediation returns the decision on the repair of a node of the graph, or nil.
func (s *DiagnosisStatus) Remediation(id int) *Remediation {
	return first(s.Remediations, func(r *Remediation) bool { return int(r.ID) == id })
}

// Repairing returns the decision on the repair that the controller is making, or nil.
func (s *DiagnosisStatus) Repairing() *Remediation {
	return first(s.Remediations, func(r *Remediation) bool { return r.Outcome != nil && r.Outcome.State == ResultRunning })
}

// first returns a pointer to the first item for which wanted returns true, or nil.
func first[T any](items []T, wanted func(*T) bool) *T {
	for i := range items {
		if wanted(&items[i]) {
			return &items[i]
		}
	}
	return nil
}

// Pod returns the name of the pod that the Diagnosis is about. It is empty if there is no pod.
func (d *Diagnosis) Pod() types.NamespacedName {
	p := d.Spec.PodReference
	if p == nil {
		return types.NamespacedName{}
	}
	return types.NamespacedName{Namespace: cmp.Or(p.Namespace, d.Namespace), Name: p.Name}
}

// Parent returns the reference to the Diagnosis that owns d, or nil.
func (d *Diagnosis) Parent() *metav1.OwnerReference {
	o := metav1.GetControllerOfNoCopy(d)
	if o == nil || o.Kind != KindDiagnosis {
		return nil
	}
	// Another version of Kernosis may have written it in another version of the API.
	if of, err := schema.ParseGroupVersion(o.APIVersion); err != nil || of.Group != Group {
		return nil
	}
	return o
}

// Child returns a Diagnosis that runs on the same target as d, with its OperationSet,
// parameters, ttl, labels and the annotations of this API. parent owns it; nil means d. Its
// name has at most longest bytes and depends only on d and key, so that it is created once.
func (d *Diagnosis) Child(parent *metav1.OwnerReference, key string, longest int) *Diagnosis {
	if parent == nil {
		parent = metav1.NewControllerRef(d, GroupVersion().WithKind(KindDiagnosis))
	}
	const digits = 16
	sum := sha256.Sum256([]byte(string(d.UID) + key))
	start := strings.TrimRight(parent.Name[:min(len(parent.Name), longest-1-digits)], "-.")
	out := &Diagnosis{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: d.Namespace, Name: start + "-" + hex.EncodeToString(sum[:])[:digits],
			Labels: map[string]string{}, Annotations: map[string]string{},
			OwnerReferences: []metav1.OwnerReference{*parent.DeepCopy()},
		},
		Spec: DiagnosisSpec{
			OperationSet: d.Spec.OperationSet, NodeName: d.Spec.NodeName, PodReference: d.Spec.PodReference.DeepCopy(),
			Parameters: maps.Clone(d.Spec.Parameters), TTL: d.Spec.TTL,
		},
	}
	maps.Copy(out.Labels, d.Labels)
	for key, value := range d.Annotations {
		if strings.HasPrefix(key, Group+"/") {
			out.Annotations[key] = value
		}
	}
	out.Labels[LabelParent] = string(parent.UID)
	return out
}
