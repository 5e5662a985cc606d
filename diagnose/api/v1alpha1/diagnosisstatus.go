package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Limits that writers of a Diagnosis' status must observe. The schema's limits are wider, because
// it counts characters, and each list separately.
const (
	MaxStatusBytes  = 256 << 10 // of the status as JSON
	MaxResultBytes  = 2 << 10   // of names and values of one result
	MaxMessageBytes = 1 << 10   // of a message
	MaxFailedPaths  = 32
	MaxArtifacts    = 64
)

// Phase summarizes the state of a Diagnosis for people.
//
// +kubebuilder:validation:Enum=Pending;Running;Succeeded;Failed;Cancelled;Unknown
type Phase string

// Phases.
const (
	PhasePending   Phase = "Pending"   // it has not begun
	PhaseRunning   Phase = "Running"   // operations run
	PhaseSucceeded Phase = "Succeeded" // a path succeeded
	PhaseFailed    Phase = "Failed"    // no path succeeded
	PhaseCancelled Phase = "Cancelled"
	PhaseUnknown   Phase = "Unknown" // whether a repair was made is unknown: a person must look
)

// Ended reports whether the phase is final.
func (p Phase) Ended() bool {
	switch p {
	case PhaseSucceeded, PhaseFailed, PhaseCancelled, PhaseUnknown:
		return true
	default:
		return false
	}
}

// DiagnosisStatus reports progress and results of a Diagnosis.
type DiagnosisStatus struct {
	// conditions are authoritative. Complete reports whether it has ended and how, Placed
	// that the controller has found its pod's node, RemediationAllowed whether it may repair,
	// Verified whether a repair helped.
	// +optional
	// +listType=map
	// +listMapKey=type
	// +kubebuilder:validation:MaxItems=8
	Conditions []metav1.Condition `json:"conditions,omitempty"`

	// phase summarizes the conditions.
	// +optional
	Phase Phase `json:"phase,omitempty"`

	// observedGeneration is the generation of the spec that the status reflects.
	// +optional
	// +kubebuilder:validation:Minimum=0
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`

	// subject names what is diagnosed, for people: a pod such as shop/db-0, a device or a
	// node.
	// +optional
	// +kubebuilder:validation:MaxLength=256
	Subject string `json:"subject,omitempty"`

	// action summarizes the repairs, for people: cordon, or cordon (would) for a dry run.
	// +optional
	// +kubebuilder:validation:MaxLength=256
	Action string `json:"action,omitempty"`

	// startTime is when the first operation began.
	// +optional
	StartTime *metav1.MicroTime `json:"startTime,omitempty"`

	// completionTime is when the Diagnosis ended.
	// +optional
	CompletionTime *metav1.MicroTime `json:"completionTime,omitempty"`

	// verdict is the cause, from the last operation on the succeeded path that has one.
	// +optional
	Verdict *Verdict `json:"verdict,omitempty"`

	// succeededPath is the path that succeeded.
	// +optional
	SucceededPath Path `json:"succeededPath,omitempty"`

	// failedPaths lists the first paths that failed, each up to the node that failed.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=32
	FailedPaths []Path `json:"failedPaths,omitempty"`

	// failedPathCount is the number of failed paths, in decimal.
	// +optional
	// +kubebuilder:validation:MaxLength=80
	// +kubebuilder:validation:Pattern=`^[0-9]+$`
	FailedPathCount string `json:"failedPathCount,omitempty"`

	// results lists the results of the graph nodes that ran, by id.
	// +optional
	// +listType=map
	// +listMapKey=id
	// +kubebuilder:validation:MaxItems=256
	Results []Result `json:"results,omitempty"`

	// artifacts lists files that operations left on nodes.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=64
	Artifacts []Artifact `json:"artifacts,omitempty"`

	// problem reports whether the problem that led to the Diagnosis lasts, according to the
	// node's agent or the alert's sender. Absent if nothing reports it.
	// +optional
	Problem *Problem `json:"problem,omitempty"`

	// plan is the repair that is due.
	// +optional
	Plan *Plan `json:"plan,omitempty"`

	// remediations lists the controller's decisions on repairs that were due, and what it did
	// itself.
	// +optional
	// +listType=map
	// +listMapKey=id
	// +kubebuilder:validation:MaxItems=32
	Remediations []Remediation `json:"remediations,omitempty"`

	// checkpoint is the state from which an interrupted run resumes.
	// +optional
	Checkpoint *Checkpoint `json:"checkpoint,omitempty"`

	// targets counts the selected targets.
	// +optional
	Targets *Targets `json:"targets,omitempty"`
}

// Targets counts the targets of a targetSelector and their Diagnoses.
type Targets struct {
	// matched is the number of selected targets.
	// +required
	// +kubebuilder:validation:Minimum=0
	Matched int32 `json:"matched"`

	// created is how many of them got a Diagnosis.
	// +required
	// +kubebuilder:validation:Minimum=0
	Created int32 `json:"created"`

	// succeeded is how many of these succeeded.
	// +required
	// +kubebuilder:validation:Minimum=0
	Succeeded int32 `json:"succeeded"`

	// failed is how many of these ended otherwise or were deleted.
	// +required
	// +kubebuilder:validation:Minimum=0
	Failed int32 `json:"failed"`
}
