package v1alpha1

// SourceTemplate specifies what starts a Diagnosis. Exactly one source is required.
//
// +kubebuilder:validation:ExactlyOneOf=problemTemplate;prometheusAlertTemplate;kubernetesEventTemplate;cronTemplate
type SourceTemplate struct {
	// problemTemplate selects problems of the node's own detector. All given fields must
	// match; of a list, one entry.
	// +optional
	ProblemTemplate *ProblemTemplate `json:"problemTemplate,omitempty"`

	// prometheusAlertTemplate selects alerts.
	// +optional
	PrometheusAlertTemplate *PrometheusAlertTemplate `json:"prometheusAlertTemplate,omitempty"`

	// kubernetesEventTemplate selects Events of the cluster.
	// +optional
	KubernetesEventTemplate *KubernetesEventTemplate `json:"kubernetesEventTemplate,omitempty"`

	// cronTemplate is a schedule.
	// +optional
	CronTemplate *CronTemplate `json:"cronTemplate,omitempty"`
}

// ProblemTemplate selects problems of the node's own detector. All given fields must match;
// of a list, one entry. A Diagnosis starts when such a problem begins to fire.
//
// +kubebuilder:validation:MinProperties=1
type ProblemTemplate struct {
	// rules lists names of rules.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=128
	Rules []string `json:"rules,omitempty"`

	// conditions lists types of node conditions.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=316
	Conditions []string `json:"conditions,omitempty"`

	// reasons lists reasons of problems.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=128
	Reasons []string `json:"reasons,omitempty"`

	// minSeverity is the lowest severity that matches.
	// +optional
	MinSeverity Severity `json:"minSeverity,omitempty"`

	// namespaces lists namespaces of the affected pod. A problem that is about no pod does
	// not match.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=63
	Namespaces []string `json:"namespaces,omitempty"`

	// podSelector selects by the labels of the affected pod. A problem that is about no pod
	// does not match.
	// +optional
	PodSelector *LabelSelector `json:"podSelector,omitempty"`
}

// Severity is the severity of a problem.
//
// +kubebuilder:validation:Enum=info;warning;critical
type Severity string

// Severities, lowest first.
const (
	SeverityInfo     Severity = "info"
	SeverityWarning  Severity = "warning"
	SeverityCritical Severity = "critical"
)

// PrometheusAlertTemplate selects alerts, and specifies what a Diagnosis takes from them.
//
// +kubebuilder:validation:XValidation:rule="has(self.podNameReferenceLabel) == has(self.podNamespaceReferenceLabel)",fieldPath=".podNamespaceReferenceLabel",message="set both podNameReferenceLabel and podNamespaceReferenceLabel, or neither"
// +kubebuilder:validation:XValidation:rule="!has(self.containerReferenceLabel) || has(self.podNameReferenceLabel)",fieldPath=".containerReferenceLabel",message="requires podNameReferenceLabel"
type PrometheusAlertTemplate struct {
	// regexp is what the alert must match, in all given fields.
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

	// parameterInjectionLabels lists labels that become .spec.parameters of the same name.
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

// Regexp is an RE2 regular expression (https://golang.org/s/re2syntax).
//
// +kubebuilder:validation:MaxLength=1024
// +kubebuilder:validation:XValidation:rule="['a'.matches(self)].size() == 1",message="is not a valid RE2 regular expression"
type Regexp string

// PrometheusAlertTemplateRegexp specifies what an alert must match. All given fields must
// match.
//
// +kubebuilder:validation:MinProperties=1
type PrometheusAlertTemplateRegexp struct {
	// alertName matches the alert's name.
	// +optional
	AlertName Regexp `json:"alertName,omitempty"`

	// labels match the alert's labels: keys are exact label names, values are regular
	// expressions.
	// +optional
	// +kubebuilder:validation:MinProperties=1
	// +kubebuilder:validation:MaxProperties=32
	Labels map[string]Regexp `json:"labels,omitempty"`

	// annotations match the alert's annotations, in the same way.
	// +optional
	// +kubebuilder:validation:MinProperties=1
	// +kubebuilder:validation:MaxProperties=32
	Annotations map[string]Regexp `json:"annotations,omitempty"`

	// startsAt matches when the alert began, in RFC 3339 format.
	// +optional
	StartsAt Regexp `json:"startsAt,omitempty"`

	// endsAt matches when the alert ends, in RFC 3339 format.
	// +optional
	EndsAt Regexp `json:"endsAt,omitempty"`

	// generatorURL matches the URL of the alert's source.
	// +optional
	GeneratorURL Regexp `json:"generatorURL,omitempty"`
}

// KubernetesEventTemplate selects Events of the cluster. The Diagnosis is about the node or
// pod that the Event is about.
type KubernetesEventTemplate struct {
	// regexp is what the Event must match, in all given fields.
	// +required
	Regexp KubernetesEventTemplateRegexp `json:"regexp"`
}

// KubernetesEventTemplateRegexp specifies what an Event must match. All given fields must
// match.
//
// +kubebuilder:validation:MinProperties=1
type KubernetesEventTemplateRegexp struct {
	// name matches the Event's name.
	// +optional
	Name Regexp `json:"name,omitempty"`

	// namespace matches the Event's namespace.
	// +optional
	Namespace Regexp `json:"namespace,omitempty"`

	// reason matches the Event's reason.
	// +optional
	Reason Regexp `json:"reason,omitempty"`

	// message matches the Event's message.
	// +optional
	Message Regexp `json:"message,omitempty"`

	// source matches the reporter of the Event.
	// +optional
	Source *EventSourceRegexp `json:"source,omitempty"`
}

// EventSourceRegexp matches the reporter of an Event.
//
// +kubebuilder:validation:MinProperties=1
type EventSourceRegexp struct {
	// component matches the component's name.
	// +optional
	Component Regexp `json:"component,omitempty"`

	// host matches the node's name.
	// +optional
	Host Regexp `json:"host,omitempty"`
}

// CronTemplate starts Diagnoses on a schedule.
type CronTemplate struct {
	// schedule is a cron expression with five fields (minute, hour, day, month, weekday), or
	// @hourly, @daily, @weekly, @monthly, @yearly or @every DURATION.
	// CRON_TZ=ZONE before the fields sets their time zone; it defaults to the controller's.
	// See https://en.wikipedia.org/wiki/Cron.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=256
	// +kubebuilder:validation:Pattern=`^(@(hourly|daily|midnight|weekly|monthly|yearly|annually)|@every [0-9a-zµ.]+|((CRON_)?TZ=[A-Za-z0-9_+/-]+ +)?[0-9A-Za-z*/,?-]+( +[0-9A-Za-z*/,?-]+){4})$`
	Schedule string `json:"schedule"`
}
