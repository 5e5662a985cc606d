package v1alpha1

import (
	"crypto/sha256"
	"encoding/hex"
	"maps"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

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
