package v1alpha1

import (
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:path=diagnoses,singular=diagnosis,scope=Namespaced,categories=kernosis,shortName=dx
// +kubebuilder:selectablefield:JSONPath=`.spec.nodeName`
// +kubebuilder:printcolumn:name="Node",type=string,JSONPath=`.spec.nodeName`
// +kubebuilder:printcolumn:name="Subject",type=string,JSONPath=`.status.subject`
// +kubebuilder:printcolumn:name="Verdict",type=string,JSONPath=`.status.verdict.reason`
// +kubebuilder:printcolumn:name="Phase",type=string,JSONPath=`.status.phase`
// +kubebuilder:printcolumn:name="Action",type=string,JSONPath=`.status.action`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:printcolumn:name="OperationSet",type=string,JSONPath=`.spec.operationSet`,priority=1
// +kubebuilder:printcolumn:name="Message",type=string,JSONPath=`.status.verdict.message`,priority=1

// Diagnosis is one run of an OperationSet, about a node or a pod.
type Diagnosis struct {
	metav1.TypeMeta `json:",inline"`
	// metadata is the object's own.
	// +optional
	metav1.ObjectMeta `json:"metadata,omitzero"`

	// spec says what runs and where.
	// +required
	Spec DiagnosisSpec `json:"spec"`

	// status is what came of it.
	// +optional
	Status DiagnosisStatus `json:"status,omitzero"`
}

// +kubebuilder:object:root=true

// DiagnosisList is a list of Diagnoses.
type DiagnosisList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitzero"`
	Items           []Diagnosis `json:"items"`
}

// DiagnosisSpec says what runs and where.
//
// +kubebuilder:validation:XValidation:rule="has(self.nodeName) || has(self.podReference) || has(self.targetSelector)",message="one of nodeName, podReference and targetSelector is needed"
// +kubebuilder:validation:XValidation:rule="!has(self.targetSelector) || !(has(self.nodeName) || has(self.podReference))",fieldPath=".targetSelector",message="excludes nodeName and podReference"
// +kubebuilder:validation:XValidation:rule="self.operationSet == oldSelf.operationSet",fieldPath=".operationSet",message="is immutable"
// +kubebuilder:validation:XValidation:rule="!has(oldSelf.nodeName) || (has(self.nodeName) && self.nodeName == oldSelf.nodeName)",fieldPath=".nodeName",message="is immutable once it is set"
// +kubebuilder:validation:XValidation:rule="has(self.podReference) == has(oldSelf.podReference) && (!has(self.podReference) || self.podReference == oldSelf.podReference)",fieldPath=".podReference",message="is immutable"
// +kubebuilder:validation:XValidation:rule="has(self.parameters) == has(oldSelf.parameters) && (!has(self.parameters) || self.parameters == oldSelf.parameters)",fieldPath=".parameters",message="is immutable"
// +kubebuilder:validation:XValidation:rule="has(self.targetSelector) == has(oldSelf.targetSelector) && (!has(self.targetSelector) || self.targetSelector == oldSelf.targetSelector)",fieldPath=".targetSelector",message="is immutable"
// +kubebuilder:validation:XValidation:rule="!oldSelf.cancel || self.cancel",fieldPath=".cancel",message="can't be taken back"
type DiagnosisSpec struct {
	// operationSet is the name of the OperationSet that runs. Immutable.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$`
	OperationSet string `json:"operationSet"`

	// nodeName is the node on which it runs. Where only podReference is given, the
	// controller sets it to the pod's. Immutable once it is set. Outside the system
	// namespace only the controller sets it.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$`
	NodeName string `json:"nodeName,omitempty"`

	// podReference is the pod that it is about. Immutable.
	// +optional
	PodReference *PodReference `json:"podReference,omitempty"`

	// targetSelector chooses nodes or pods: each gets a Diagnosis of its own, which this
	// one owns. Immutable.
	// +optional
	TargetSelector *TargetSelector `json:"targetSelector,omitempty"`

	// parameters are handed to the operations. Immutable.
	// +optional
	Parameters Parameters `json:"parameters,omitempty"`

	// ttl is for how long the Diagnosis is kept once it has ended.
	// +optional
	// +default="240h"
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=32
	// +kubebuilder:validation:XValidation:rule="duration(self) >= duration('1m') && duration(self) <= duration('8760h')",message="must be from 1m to 8760h"
	TTL metav1.Duration `json:"ttl,omitzero"`

	// cancel ends the run: no further operation starts. It can't be taken back.
	// +optional
	// +default=false
	Cancel bool `json:"cancel,omitempty"`

	// approval allows what status.plan says, where the policy asks for it. Who may set it
	// is said by the verb approve.
	// +optional
	Approval *Approval `json:"approval,omitempty"`
}

// DefaultTTL is for how long a Diagnosis that names no time is kept.
const DefaultTTL = 240 * time.Hour

// PodReference names a pod, and a container of it.
type PodReference struct {
	// namespace is the pod's; the Diagnosis' own where it is absent. Outside the system
	// namespace it can be no other.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9]*[a-z0-9])?$`
	Namespace string `json:"namespace,omitempty"`

	// name is the pod's.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$`
	Name string `json:"name"`

	// container is the name of one of the pod's containers.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9]*[a-z0-9])?$`
	Container string `json:"container,omitempty"`
}

// TargetSelector chooses nodes or pods; what any of its parts chooses is a target. Nodes
// and pods exclude each other.
//
// +kubebuilder:validation:XValidation:rule="has(self.nodeSelector) || has(self.nodeNames) || has(self.podSelector) || has(self.podReferences)",message="one of nodeSelector, nodeNames, podSelector and podReferences is needed"
// +kubebuilder:validation:XValidation:rule="!((has(self.nodeSelector) || has(self.nodeNames)) && (has(self.podSelector) || has(self.podReferences)))",message="chooses either nodes or pods"
// +kubebuilder:validation:XValidation:rule="!has(self.namespaces) || has(self.podSelector)",fieldPath=".namespaces",message="goes with podSelector"
type TargetSelector struct {
	// nodeSelector chooses nodes by their labels.
	// +optional
	NodeSelector *LabelSelector `json:"nodeSelector,omitempty"`

	// nodeNames names nodes.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=500
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=253
	NodeNames []string `json:"nodeNames,omitempty"`

	// podSelector chooses pods by their labels.
	// +optional
	PodSelector *LabelSelector `json:"podSelector,omitempty"`

	// namespaces are those that podSelector looks in; the Diagnosis' own where there are
	// none.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=63
	Namespaces []string `json:"namespaces,omitempty"`

	// podReferences names pods.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=500
	PodReferences []PodReference `json:"podReferences,omitempty"`

	// maxTargets is how many targets get a Diagnosis. Of more, the first by name do, and
	// status.targets tells of the rest.
	// +optional
	// +default=50
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=500
	MaxTargets int32 `json:"maxTargets,omitempty"`
}

// Approval allows a plan.
type Approval struct {
	// planDigest is that of the plan that is allowed. Any other plan is not.
	// +required
	PlanDigest Digest `json:"planDigest"`
}

// Digest is a SHA-256, in hexadecimal.
//
// +kubebuilder:validation:MaxLength=64
// +kubebuilder:validation:Pattern=`^[0-9a-f]{64}$`
type Digest string
