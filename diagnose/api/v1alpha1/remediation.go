package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// ProblemState reports whether a problem lasts.
//
// +kubebuilder:validation:Enum=Lasts;Gone
type ProblemState string

// States of a problem.
const (
	ProblemLasts ProblemState = "Lasts"
	ProblemGone  ProblemState = "Gone"
)

// Problem is the current state of the problem that a Diagnosis was created for.
type Problem struct {
	// state reports whether the problem lasts.
	// +required
	State ProblemState `json:"state"`

	// since is when the problem entered this state.
	// +required
	Since metav1.MicroTime `json:"since"`

	// seen is when the source last reported that the problem lasts, if it does so repeatedly,
	// as an alert's sender does. Absent if the source reports each change.
	// +optional
	Seen *metav1.MicroTime `json:"seen,omitempty"`
}

// RemediationVerb is the decision on a repair.
//
// +kubebuilder:validation:Enum=Run;WouldRun;Withheld;Wait
type RemediationVerb string

// Verbs.
const (
	RemediationRun      RemediationVerb = "Run"      // it is made
	RemediationWouldRun RemediationVerb = "WouldRun" // dry run: it is only reported
	RemediationWithheld RemediationVerb = "Withheld" // it is not made; final
	RemediationWait     RemediationVerb = "Wait"     // it may be made later
)

// Remediation is the decision on one repair. Only the controller writes it.
type Remediation struct {
	// id is the id of the graph node.
	// +required
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=255
	ID int32 `json:"id"`

	// planDigest is the digest of the decided plan. The decision applies to no other.
	// +required
	PlanDigest Digest `json:"planDigest"`

	// verb is the decision.
	// +required
	Verb RemediationVerb `json:"verb"`

	// reason is CamelCase, as in the condition RemediationAllowed.
	// +optional
	// +kubebuilder:validation:MaxLength=128
	Reason string `json:"reason,omitempty"`

	// message explains the decision.
	// +optional
	// +kubebuilder:validation:MaxLength=1024
	Message string `json:"message,omitempty"`

	// time is when the decision was made.
	// +required
	Time metav1.MicroTime `json:"time"`

	// outcome is the outcome of a repair that the controller itself makes, because it changes
	// API objects. Absent if it has not begun, or if the node's agent makes it.
	// +optional
	Outcome *RemediationOutcome `json:"outcome,omitempty"`
}

// RemediationOutcome is the outcome of a repair that the controller makes.
type RemediationOutcome struct {
	// holder is the controller that makes the repair. Another controller takes it over before
	// it continues.
	// +optional
	// +kubebuilder:validation:MaxLength=128
	Holder string `json:"holder,omitempty"`

	// state is Running, Succeeded, Failed or Unknown.
	// +required
	// +kubebuilder:validation:Enum=Running;Succeeded;Failed;Unknown
	State ResultState `json:"state"`

	// message reports what was done, or why it was not.
	// +optional
	// +kubebuilder:validation:MaxLength=1024
	Message string `json:"message,omitempty"`

	// startTime is when the repair began.
	// +required
	StartTime metav1.MicroTime `json:"startTime"`

	// completionTime is when the repair ended.
	// +optional
	CompletionTime *metav1.MicroTime `json:"completionTime,omitempty"`

	// values are the results of the repair.
	// +optional
	// +kubebuilder:validation:MaxProperties=16
	Values map[string]ResultValue `json:"values,omitempty"`
}
