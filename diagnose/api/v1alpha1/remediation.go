package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// ProblemState says whether a problem lasts.
//
// +kubebuilder:validation:Enum=Lasts;Gone
type ProblemState string

// States of a problem.
const (
	ProblemLasts ProblemState = "Lasts"
	ProblemGone  ProblemState = "Gone"
)

// Problem is what a Diagnosis was made for, as it is now.
type Problem struct {
	// state says whether it lasts.
	// +required
	State ProblemState `json:"state"`

	// since is when the state was entered.
	// +required
	Since metav1.MicroTime `json:"since"`

	// seen is when the source last reported that it lasts, where it does so again and again,
	// as the sender of an alert. Absent: each change is reported.
	// +optional
	Seen *metav1.MicroTime `json:"seen,omitempty"`
}

// RemediationVerb says what becomes of a repair.
//
// +kubebuilder:validation:Enum=Run;WouldRun;Withheld;Wait
type RemediationVerb string

// Verbs.
const (
	RemediationRun      RemediationVerb = "Run"      // it is made
	RemediationWouldRun RemediationVerb = "WouldRun" // it is only told
	RemediationWithheld RemediationVerb = "Withheld" // it is not made, for good
	RemediationWait     RemediationVerb = "Wait"     // it may be made later
)

// Remediation is what was decided of one repair. The controller alone writes it.
type Remediation struct {
	// id is that of the graph's node.
	// +required
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=255
	ID int32 `json:"id"`

	// planDigest is that of the plan that it was decided of. For any other it says nothing.
	// +required
	PlanDigest Digest `json:"planDigest"`

	// verb is the decision.
	// +required
	Verb RemediationVerb `json:"verb"`

	// reason is a word for it, as in the condition RemediationAllowed.
	// +optional
	// +kubebuilder:validation:MaxLength=128
	Reason string `json:"reason,omitempty"`

	// message has the facts.
	// +optional
	// +kubebuilder:validation:MaxLength=1024
	Message string `json:"message,omitempty"`

	// time is when it was decided.
	// +required
	Time metav1.MicroTime `json:"time"`

	// outcome is what came of a repair that the controller itself makes, since it changes
	// objects of the API. Absent: it has not begun, or the node's agent makes it.
	// +optional
	Outcome *RemediationOutcome `json:"outcome,omitempty"`
}

// RemediationOutcome is what came of a repair that the controller makes.
type RemediationOutcome struct {
	// holder is the controller that makes the repair. Another one takes it over before it
	// goes on with it.
	// +optional
	// +kubebuilder:validation:MaxLength=128
	Holder string `json:"holder,omitempty"`

	// state is how far it is.
	// +required
	// +kubebuilder:validation:Enum=Running;Succeeded;Failed;Unknown
	State ResultState `json:"state"`

	// message has what was done, or why it was not.
	// +optional
	// +kubebuilder:validation:MaxLength=1024
	Message string `json:"message,omitempty"`

	// startTime is when it began.
	// +required
	StartTime metav1.MicroTime `json:"startTime"`

	// completionTime is when it ended.
	// +optional
	CompletionTime *metav1.MicroTime `json:"completionTime,omitempty"`

	// values are its results.
	// +optional
	// +kubebuilder:validation:MaxProperties=16
	Values map[string]ResultValue `json:"values,omitempty"`
}
