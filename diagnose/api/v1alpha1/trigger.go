package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:scope=Cluster,categories=kernosis
// +kubebuilder:printcolumn:name="OperationSet",type=string,JSONPath=`.spec.operationSet`
// +kubebuilder:printcolumn:name="Accepted",type=string,JSONPath=`.status.conditions[?(@.type=="Accepted")].status`
// +kubebuilder:printcolumn:name="Reason",type=string,JSONPath=`.status.conditions[?(@.type=="Accepted")].reason`,priority=1
// +kubebuilder:validation:XValidation:rule="self.metadata.name.size() <= 63",fieldPath=".metadata",message="name: at most 63 characters, because it is a label of the Diagnoses"
// +kubebuilder:printcolumn:name="Last",type=date,JSONPath=`.status.lastScheduleTime`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`

// Trigger specifies what starts a diagnosis. It creates Diagnoses in the system namespace.
type Trigger struct {
	metav1.TypeMeta `json:",inline"`
	// metadata is the standard object metadata.
	// +optional
	metav1.ObjectMeta `json:"metadata,omitzero"`

	// spec specifies what starts which diagnosis.
	// +required
	Spec TriggerSpec `json:"spec"`

	// status reports whether the trigger is in use.
	// +optional
	Status TriggerStatus `json:"status,omitzero"`
}

// +kubebuilder:object:root=true

// TriggerList is a list of Triggers.
type TriggerList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitzero"`
	Items           []Trigger `json:"items"`
}

// TriggerSpec specifies what starts which diagnosis.
//
// +kubebuilder:validation:XValidation:rule="!(has(self.nodeName) && has(self.targetSelector))",fieldPath=".targetSelector",message="nodeName and targetSelector cannot both be set"
// +kubebuilder:validation:XValidation:rule="!has(self.sourceTemplate.cronTemplate) || has(self.nodeName) || has(self.targetSelector)",fieldPath=".nodeName",message="a cronTemplate needs nodeName or targetSelector"
// +kubebuilder:validation:XValidation:rule="!has(self.sourceTemplate.prometheusAlertTemplate) || has(self.nodeName) || has(self.targetSelector) || has(self.sourceTemplate.prometheusAlertTemplate.nodeNameReferenceLabel) || has(self.sourceTemplate.prometheusAlertTemplate.podNameReferenceLabel)",fieldPath=".nodeName",message="a prometheusAlertTemplate without nodeNameReferenceLabel and podNameReferenceLabel needs nodeName or targetSelector"
type TriggerSpec struct {
	// operationSet is the name of the OperationSet that the Diagnoses run.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$`
	OperationSet string `json:"operationSet"`

	// nodeName is the node of a Diagnosis whose source names none.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$`
	NodeName string `json:"nodeName,omitempty"`

	// targetSelector selects the nodes or pods of a Diagnosis whose source names none.
	// +optional
	TargetSelector *TargetSelector `json:"targetSelector,omitempty"`

	// parameters are passed to each Diagnosis. Values from the source override those of the
	// same name.
	// +optional
	Parameters Parameters `json:"parameters,omitempty"`

	// sourceTemplate is what starts a Diagnosis: exactly one source.
	// +required
	SourceTemplate SourceTemplate `json:"sourceTemplate"`

	// cooldown is the minimum time between Diagnoses of this trigger for the same subject.
	// Ignored for cronTemplate; 0s disables it.
	// +optional
	// +default="10m"
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=32
	// +kubebuilder:validation:XValidation:rule="duration(self) >= duration('0s') && duration(self) <= duration('720h')",message="must be from 0s to 720h"
	Cooldown *metav1.Duration `json:"cooldown,omitempty"`

	// rateLimit limits the Diagnoses of all subjects together: per node for its problems, per
	// cluster for other sources.
	// +optional
	// +default={}
	RateLimit RateLimit `json:"rateLimit,omitzero"`

	// ttl is how long the Diagnoses are kept after they have ended. Defaults to 240h.
	// +optional
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=32
	// +kubebuilder:validation:XValidation:rule="duration(self) >= duration('1m') && duration(self) <= duration('8760h')",message="must be from 1m to 8760h"
	TTL *metav1.Duration `json:"ttl,omitempty"`

	// historyLimit is how many ended Diagnoses of this trigger the cluster keeps. The oldest
	// of the node that has the most are deleted first. The nodes keep what the runs found.
	// +optional
	// +default=100
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=10000
	HistoryLimit *int32 `json:"historyLimit,omitempty"`
}

// RateLimit limits how many Diagnoses are created within a period.
type RateLimit struct {
	// count is the maximum number of Diagnoses.
	// +optional
	// +default=20
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=1000
	Count int32 `json:"count,omitempty"`

	// within is the length of the period.
	// +optional
	// +default="1h"
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=32
	// +kubebuilder:validation:XValidation:rule="duration(self) >= duration('1s') && duration(self) <= duration('720h')",message="must be from 1s to 720h"
	Within metav1.Duration `json:"within,omitzero"`
}

// TriggerStatus reports whether a trigger is in use.
type TriggerStatus struct {
	// conditions are authoritative. Accepted reports whether the trigger is in use, and if
	// not, why.
	// +optional
	// +listType=map
	// +listMapKey=type
	// +kubebuilder:validation:MaxItems=8
	Conditions []metav1.Condition `json:"conditions,omitempty"`

	// lastScheduleTime is when the last Diagnosis of a cronTemplate was due.
	// +optional
	LastScheduleTime *metav1.Time `json:"lastScheduleTime,omitempty"`
}
