package v1alpha1

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
	// schedule has five fields (minute, hour, day of the month, the month, day of the week),
	// or is @hourly, @daily, @weekly, @monthly, @yearly or @every DURATION. CRON_TZ=ZONE
	// before the fields says their time zone; else it is the controller's.
	// See https://en.wikipedia.org/wiki/Cron.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=256
	// +kubebuilder:validation:Pattern=`^(@(hourly|daily|midnight|weekly|monthly|yearly|annually)|@every [0-9a-zµ.]+|((CRON_)?TZ=[A-Za-z0-9_+/-]+ +)?[0-9A-Za-z*/,?-]+( +[0-9A-Za-z*/,?-]+){4})$`
	Schedule string `json:"schedule"`
}
