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

// Diagnosis is one run of an OperationSet, for a node or a pod.
type Diagnosis struct {
	metav1.TypeMeta `json:",inline"`
	// metadata is the standard object metadata.
	// +optional
	metav1.ObjectMeta `json:"metadata,omitzero"`

	// spec specifies what runs and where.
	// +required
	Spec DiagnosisSpec `json:"spec"`

	// status reports progress and results.
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

// DiagnosisSpec specifies what runs and where.
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
	// operationSet is the name of the OperationSet to run. Immutable.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$`
	OperationSet string `json:"operationSet"`

	// nodeName is the node to run on. If only podReference is set, the controller sets it to
	// the pod's node. Immutable once set. Outside the system namespace only the controller
	// sets it.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$`
	NodeName string `json:"nodeName,omitempty"`

	// podReference is the pod to diagnose. Immutable. Required outside the system namespace.
	// +optional
	PodReference *PodReference `json:"podReference,omitempty"`

	// targetSelector selects nodes or pods. Each gets its own Diagnosis, which this one owns.
	// Immutable.
	// +optional
	TargetSelector *TargetSelector `json:"targetSelector,omitempty"`

	// parameters are passed to the operations. Immutable.
	// +optional
	Parameters Parameters `json:"parameters,omitempty"`

	// ttl is how long the Diagnosis is kept after it has ended.
	// +optional
	// +default="240h"
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=32
	// +kubebuilder:validation:XValidation:rule="duration(self) >= duration('1m') && duration(self) <= duration('8760h')",message="must be from 1m to 8760h"
	TTL metav1.Duration `json:"ttl,omitzero"`

	// cancel ends the run: no further operation starts. It can't be undone.
	// +optional
	// +default=false
	Cancel bool `json:"cancel,omitempty"`

	// approval approves status.plan, if a policy requires it. Setting it requires the verb
	// approve.
	// +optional
	Approval *Approval `json:"approval,omitempty"`
}

// DefaultTTL is how long a Diagnosis without a ttl is kept after it has ended.
const DefaultTTL = 240 * time.Hour

// PodReference names a pod and optionally a container.
type PodReference struct {
	// namespace is the pod's namespace. Defaults to the Diagnosis' own, the only one allowed
	// outside the system namespace.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9]*[a-z0-9])?$`
	Namespace string `json:"namespace,omitempty"`

	// name is the pod's name.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$`
	Name string `json:"name"`

	// container is the name of a container of the pod.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9]*[a-z0-9])?$`
	Container string `json:"container,omitempty"`
}

// TargetSelector selects either nodes or pods. Everything that one of its fields selects is a
// target.
//
// +kubebuilder:validation:XValidation:rule="has(self.nodeSelector) || has(self.nodeNames) || has(self.podSelector) || has(self.podReferences)",message="one of nodeSelector, nodeNames, podSelector and podReferences is needed"
// +kubebuilder:validation:XValidation:rule="!((has(self.nodeSelector) || has(self.nodeNames)) && (has(self.podSelector) || has(self.podReferences)))",message="must select either nodes or pods"
// +kubebuilder:validation:XValidation:rule="!has(self.namespaces) || has(self.podSelector)",fieldPath=".namespaces",message="requires podSelector"
type TargetSelector struct {
	// nodeSelector selects nodes by label.
	// +optional
	NodeSelector *LabelSelector `json:"nodeSelector,omitempty"`

	// nodeNames lists nodes.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=500
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=253
	NodeNames []string `json:"nodeNames,omitempty"`

	// podSelector selects running pods by label.
	// +optional
	PodSelector *LabelSelector `json:"podSelector,omitempty"`

	// namespaces are the namespaces of podSelector's pods. Defaults to the Diagnosis' own.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=63
	Namespaces []string `json:"namespaces,omitempty"`

	// podReferences lists pods.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=500
	PodReferences []PodReference `json:"podReferences,omitempty"`

	// maxTargets limits how many targets get a Diagnosis: the first by name. status.targets
	// counts all.
	// +optional
	// +default=50
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=500
	MaxTargets int32 `json:"maxTargets,omitempty"`
}

// Approval approves a plan.
type Approval struct {
	// planDigest is the digest of the approved plan. No other plan is approved.
	// +required
	PlanDigest Digest `json:"planDigest"`
}

// Digest is a SHA-256 digest in hexadecimal.
//
// +kubebuilder:validation:MaxLength=64
// +kubebuilder:validation:Pattern=`^[0-9a-f]{64}$`
type Digest string
