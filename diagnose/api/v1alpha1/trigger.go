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
// +kubebuilder:printcolumn:name="Last",type=date,JSONPath=`.status.lastScheduleTime`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`

// Trigger says what starts a diagnosis. The Diagnoses it makes are in the system
// namespace.
type Trigger struct {
	metav1.TypeMeta `json:",inline"`
	// metadata is the object's own.
	// +optional
	metav1.ObjectMeta `json:"metadata,omitzero"`

	// spec says what starts which diagnosis.
	// +required
	Spec TriggerSpec `json:"spec"`

	// status says whether the trigger is in use.
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

// TriggerSpec says what starts which diagnosis.
//
// +kubebuilder:validation:XValidation:rule="!(has(self.nodeName) && has(self.targetSelector))",fieldPath=".targetSelector",message="nodeName and targetSelector exclude each other"
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

	// targetSelector chooses the nodes or pods of a Diagnosis whose source names none.
	// +optional
	TargetSelector *TargetSelector `json:"targetSelector,omitempty"`

	// parameters are handed to each Diagnosis. What the source knows goes before them.
	// +optional
	Parameters Parameters `json:"parameters,omitempty"`

	// sourceTemplate is what starts a Diagnosis.
	// +required
	SourceTemplate SourceTemplate `json:"sourceTemplate"`

	// cooldown is the time after a Diagnosis in which the same subject gets no other from
	// this trigger. 0s: none.
	// +optional
	// +default="10m"
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=32
	// +kubebuilder:validation:XValidation:rule="duration(self) >= duration('0s') && duration(self) <= duration('720h')",message="must be from 0s to 720h"
	Cooldown *metav1.Duration `json:"cooldown,omitempty"`

	// rateLimit bounds how many Diagnoses the trigger makes, whatever their subjects: on
	// each node those of its problems, and in the cluster those of other sources.
	// +optional
	// +default={}
	RateLimit RateLimit `json:"rateLimit,omitzero"`

	// ttl is the Diagnoses' own: for how long they are kept once they have ended.
	// +optional
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=32
	// +kubebuilder:validation:XValidation:rule="duration(self) >= duration('1m') && duration(self) <= duration('8760h')",message="must be from 1m to 8760h"
	TTL *metav1.Duration `json:"ttl,omitempty"`

	// historyLimit is how many ended Diagnoses of this trigger are kept; the oldest go
	// first.
	// +optional
	// +default=100
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=10000
	HistoryLimit *int32 `json:"historyLimit,omitempty"`
}

// RateLimit bounds how many within a time.
type RateLimit struct {
	// count is how many at most.
	// +optional
	// +default=20
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=1000
	Count int32 `json:"count,omitempty"`

	// within is the time.
	// +optional
	// +default="1h"
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=32
	// +kubebuilder:validation:XValidation:rule="duration(self) >= duration('1s') && duration(self) <= duration('720h')",message="must be from 1s to 720h"
	Within metav1.Duration `json:"within,omitzero"`
}

// SourceTemplate is what starts a Diagnosis. Exactly one source is given.
//
// +kubebuilder:validation:ExactlyOneOf=problemTemplate;prometheusAlertTemplate;kubernetesEventTemplate;cronTemplate
type SourceTemplate struct {
	// problemTemplate is a problem that the node's own detector finds.
	// +optional
	ProblemTemplate *ProblemTemplate `json:"problemTemplate,omitempty"`

	// prometheusAlertTemplate is an alert.
	// +optional
	PrometheusAlertTemplate *PrometheusAlertTemplate `json:"prometheusAlertTemplate,omitempty"`

	// kubernetesEventTemplate is an Event of the cluster.
	// +optional
	KubernetesEventTemplate *KubernetesEventTemplate `json:"kubernetesEventTemplate,omitempty"`

	// cronTemplate is a time.
	// +optional
	CronTemplate *CronTemplate `json:"cronTemplate,omitempty"`
}

// ProblemTemplate chooses problems of the node's own detector. All that is given must be
// so; of a list, one. It starts a Diagnosis when such a problem begins to fire.
//
// +kubebuilder:validation:MinProperties=1
type ProblemTemplate struct {
	// rules are names of rules.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=128
	Rules []string `json:"rules,omitempty"`

	// conditions are types of node conditions.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=316
	Conditions []string `json:"conditions,omitempty"`

	// reasons are those of problems.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=128
	Reasons []string `json:"reasons,omitempty"`

	// minSeverity is the lowest severity.
	// +optional
	MinSeverity Severity `json:"minSeverity,omitempty"`

	// namespaces are those of the pod that was hit. A problem that is about no pod has
	// none.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=63
	Namespaces []string `json:"namespaces,omitempty"`

	// podSelector chooses by the labels of the pod that was hit. A problem that is about
	// no pod is not chosen.
	// +optional
	PodSelector *LabelSelector `json:"podSelector,omitempty"`
}

// Severity is that of a problem.
//
// +kubebuilder:validation:Enum=info;warning;critical
type Severity string

// Severities, lowest first.
const (
	SeverityInfo     Severity = "info"
	SeverityWarning  Severity = "warning"
	SeverityCritical Severity = "critical"
)

// PrometheusAlertTemplate chooses alerts, and says what a Diagnosis takes from one.
//
// +kubebuilder:validation:XValidation:rule="has(self.podNameReferenceLabel) == has(self.podNamespaceReferenceLabel)",fieldPath=".podNamespaceReferenceLabel",message="podNameReferenceLabel and podNamespaceReferenceLabel go together"
// +kubebuilder:validation:XValidation:rule="!has(self.containerReferenceLabel) || has(self.podNameReferenceLabel)",fieldPath=".containerReferenceLabel",message="goes with podNameReferenceLabel"
type PrometheusAlertTemplate struct {
	// regexp is what the alert must match.
	// +required
	Regexp PrometheusAlertTemplateRegexp `json:"regexp"`

	// nodeNameReferenceLabel is the label whose value becomes .spec.nodeName.
	// +optional
	NodeNameReferenceLabel LabelName `json:"nodeNameReferenceLabel,omitempty"`

	// podNamespaceReferenceLabel is the label whose value becomes
	// .spec.podReference.namespace.
	// +optional
	PodNamespaceReferenceLabel LabelName `json:"podNamespaceReferenceLabel,omitempty"`

	// podNameReferenceLabel is the label whose value becomes .spec.podReference.name.
	// +optional
	PodNameReferenceLabel LabelName `json:"podNameReferenceLabel,omitempty"`

	// containerReferenceLabel is the label whose value becomes
	// .spec.podReference.container.
	// +optional
	ContainerReferenceLabel LabelName `json:"containerReferenceLabel,omitempty"`

	// parameterInjectionLabels are labels that become .spec.parameters, by their names.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=32
	ParameterInjectionLabels []LabelName `json:"parameterInjectionLabels,omitempty"`
}

// LabelName is the name of a Prometheus label.
//
// +kubebuilder:validation:MinLength=1
// +kubebuilder:validation:MaxLength=128
// +kubebuilder:validation:Pattern=`^[a-zA-Z_][a-zA-Z0-9_]*$`
type LabelName string

// Regexp is a regular expression of RE2 (https://golang.org/s/re2syntax).
//
// +kubebuilder:validation:MaxLength=1024
// +kubebuilder:validation:XValidation:rule="['a'.matches(self)].size() == 1",message="is no regular expression of RE2"
type Regexp string

// PrometheusAlertTemplateRegexp is what an alert must match, in all that is given.
//
// +kubebuilder:validation:MinProperties=1
type PrometheusAlertTemplateRegexp struct {
	// alertName is for the alert's name.
	// +optional
	AlertName Regexp `json:"alertName,omitempty"`

	// labels are for the alert's labels: names are as they are, values are regular
	// expressions.
	// +optional
	// +kubebuilder:validation:MinProperties=1
	// +kubebuilder:validation:MaxProperties=32
	Labels map[string]Regexp `json:"labels,omitempty"`

	// annotations are for the alert's annotations, as labels are.
	// +optional
	// +kubebuilder:validation:MinProperties=1
	// +kubebuilder:validation:MaxProperties=32
	Annotations map[string]Regexp `json:"annotations,omitempty"`

	// startsAt is for when the alert began, as RFC 3339 text.
	// +optional
	StartsAt Regexp `json:"startsAt,omitempty"`

	// endsAt is for when the alert ends, as RFC 3339 text.
	// +optional
	EndsAt Regexp `json:"endsAt,omitempty"`

	// generatorURL is for where the alert is from.
	// +optional
	GeneratorURL Regexp `json:"generatorURL,omitempty"`
}

// KubernetesEventTemplate chooses Events of the cluster. The Diagnosis is about the node
// or pod that the Event is about.
type KubernetesEventTemplate struct {
	// regexp is what the Event must match.
	// +required
	Regexp KubernetesEventTemplateRegexp `json:"regexp"`
}

// KubernetesEventTemplateRegexp is what an Event must match, in all that is given.
//
// +kubebuilder:validation:MinProperties=1
type KubernetesEventTemplateRegexp struct {
	// name is for the Event's name.
	// +optional
	Name Regexp `json:"name,omitempty"`

	// namespace is for the Event's namespace.
	// +optional
	Namespace Regexp `json:"namespace,omitempty"`

	// reason is for the Event's reason.
	// +optional
	Reason Regexp `json:"reason,omitempty"`

	// message is for the Event's message.
	// +optional
	Message Regexp `json:"message,omitempty"`

	// source is for who told the Event.
	// +optional
	Source *EventSourceRegexp `json:"source,omitempty"`
}

// EventSourceRegexp is for who told an Event.
//
// +kubebuilder:validation:MinProperties=1
type EventSourceRegexp struct {
	// component is for the component's name.
	// +optional
	Component Regexp `json:"component,omitempty"`

	// host is for the node's name.
	// +optional
	Host Regexp `json:"host,omitempty"`
}

// CronTemplate starts Diagnoses at times.
type CronTemplate struct {
	// schedule has five fields (minute, hour, day of the month, month, day of the week),
	// or is @hourly, @daily, @weekly, @monthly, @yearly or @every DURATION.
	// See https://en.wikipedia.org/wiki/Cron.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=256
	Schedule string `json:"schedule"`
}

// TriggerStatus says whether a trigger is in use.
type TriggerStatus struct {
	// conditions are authoritative: Accepted says whether the trigger is in use, and why
	// not.
	// +optional
	// +listType=map
	// +listMapKey=type
	// +kubebuilder:validation:MaxItems=8
	Conditions []metav1.Condition `json:"conditions,omitempty"`

	// lastScheduleTime is when a cronTemplate last made a Diagnosis.
	// +optional
	LastScheduleTime *metav1.Time `json:"lastScheduleTime,omitempty"`
}
