package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Bounds of a Diagnosis' status that its writers keep to. Those of the schema are
// wider: it counts characters, and each list by itself.
const (
	MaxStatusBytes  = 256 << 10 // the status as JSON
	MaxResultBytes  = 2 << 10   // names and values of one result
	MaxMessageBytes = 1 << 10   // a message
	MaxFailedPaths  = 32
	MaxArtifacts    = 64
)

// Phase sums up a Diagnosis for people.
//
// +kubebuilder:validation:Enum=Pending;Running;Succeeded;Failed;Cancelled;Unknown
type Phase string

// Phases.
const (
	PhasePending   Phase = "Pending"   // nobody has begun
	PhaseRunning   Phase = "Running"   // operations run
	PhaseSucceeded Phase = "Succeeded" // a path came to its end
	PhaseFailed    Phase = "Failed"    // none did
	PhaseCancelled Phase = "Cancelled"
	PhaseUnknown   Phase = "Unknown" // the outcome of a repair isn't known: a person must look
)

// Ended reports whether nothing more will happen.
func (p Phase) Ended() bool {
	switch p {
	case PhaseSucceeded, PhaseFailed, PhaseCancelled, PhaseUnknown:
		return true
	default:
		return false
	}
}

// DiagnosisStatus is what came of a Diagnosis.
type DiagnosisStatus struct {
	// conditions are authoritative. Complete says whether it has ended and how, Placed
	// that the controller has found the node of its pod, RemediationAllowed whether it may
	// repair, Verified whether a repair helped.
	// +optional
	// +listType=map
	// +listMapKey=type
	// +kubebuilder:validation:MaxItems=8
	Conditions []metav1.Condition `json:"conditions,omitempty"`

	// phase sums up the conditions.
	// +optional
	Phase Phase `json:"phase,omitempty"`

	// observedGeneration is that of the spec which the status is about.
	// +optional
	// +kubebuilder:validation:Minimum=0
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`

	// subject is what it is about, for people: a pod as shop/db-0, a device, a node.
	// +optional
	// +kubebuilder:validation:MaxLength=256
	Subject string `json:"subject,omitempty"`

	// action is what was done or would have been, for people: cordon, cordon (would).
	// +optional
	// +kubebuilder:validation:MaxLength=256
	Action string `json:"action,omitempty"`

	// startTime is when the first operation began.
	// +optional
	StartTime *metav1.MicroTime `json:"startTime,omitempty"`

	// completionTime is when it ended.
	// +optional
	CompletionTime *metav1.MicroTime `json:"completionTime,omitempty"`

	// verdict is the cause: that of the last operation with one on the succeeded path.
	// +optional
	Verdict *Verdict `json:"verdict,omitempty"`

	// succeededPath is the path that came to its end.
	// +optional
	SucceededPath Path `json:"succeededPath,omitempty"`

	// failedPaths are the first paths that failed, each up to the node that did.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=32
	FailedPaths []Path `json:"failedPaths,omitempty"`

	// failedPathCount is how many paths failed, in decimal.
	// +optional
	// +kubebuilder:validation:MaxLength=80
	// +kubebuilder:validation:Pattern=`^[0-9]+$`
	FailedPathCount string `json:"failedPathCount,omitempty"`

	// results are those of the nodes of the graph that ran, by id.
	// +optional
	// +listType=map
	// +listMapKey=id
	// +kubebuilder:validation:MaxItems=256
	Results []Result `json:"results,omitempty"`

	// artifacts are files that operations left on nodes.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=64
	Artifacts []Artifact `json:"artifacts,omitempty"`

	// problem says whether what the Diagnosis was made for lasts, as the node's agent sees
	// it, or the sender of the alert reports it. Absent: nothing tells.
	// +optional
	Problem *Problem `json:"problem,omitempty"`

	// plan is the repair that is due.
	// +optional
	Plan *Plan `json:"plan,omitempty"`

	// remediations say what the controller has decided of each repair that was due, and
	// what it has done itself.
	// +optional
	// +listType=map
	// +listMapKey=id
	// +kubebuilder:validation:MaxItems=32
	Remediations []Remediation `json:"remediations,omitempty"`

	// checkpoint is what a run goes on from after an interruption.
	// +optional
	Checkpoint *Checkpoint `json:"checkpoint,omitempty"`

	// targets counts what targetSelector chose.
	// +optional
	Targets *Targets `json:"targets,omitempty"`
}

// Targets counts the Diagnoses that a targetSelector led to.
type Targets struct {
	// matched is how many targets it chose.
	// +required
	// +kubebuilder:validation:Minimum=0
	Matched int32 `json:"matched"`

	// created is how many of them got a Diagnosis.
	// +required
	// +kubebuilder:validation:Minimum=0
	Created int32 `json:"created"`

	// succeeded is how many of these have succeeded.
	// +required
	// +kubebuilder:validation:Minimum=0
	Succeeded int32 `json:"succeeded"`

	// failed is how many of these ended in another way.
	// +required
	// +kubebuilder:validation:Minimum=0
	Failed int32 `json:"failed"`
}
