package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Plan is the repair that is due.
type Plan struct {
	// digest is the SHA-256 digest of the Diagnosis, its node, the steps and their inputs.
	// +required
	Digest Digest `json:"digest"`

	// steps lists the repairs, in order.
	// +required
	// +listType=atomic
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=32
	Steps []PlanStep `json:"steps"`
}

// PlanStep is one repair.
type PlanStep struct {
	// id is the id of the graph node.
	// +required
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=255
	ID int32 `json:"id"`

	// operation is the name of the Operation.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Operation string `json:"operation"`

	// target is what the repair changes, for people.
	// +optional
	// +kubebuilder:validation:MaxLength=256
	Target string `json:"target,omitempty"`
}

// Checkpoint is the state from which an interrupted run resumes. Which nodes have run is in
// results.
type Checkpoint struct {
	// holder is the agent that runs the Diagnosis. No other agent may while this one lives,
	// according to its node's Lease.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=256
	Holder string `json:"holder"`

	// time is when the holder last wrote, by the node's clock. It writes only changes.
	// +required
	Time metav1.MicroTime `json:"time"`

	// running is the id of the graph node that runs.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=255
	Running *int32 `json:"running,omitempty"`

	// intent is written before a repair begins and removed once its outcome is known. A run
	// that resumes with one does not repeat that repair.
	// +optional
	Intent *Intent `json:"intent,omitempty"`
}

// Intent records that a repair is about to begin.
type Intent struct {
	// id is the id of the graph node.
	// +required
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=255
	ID int32 `json:"id"`

	// operation is the name of the Operation.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Operation string `json:"operation"`

	// time is when the intent was written.
	// +required
	Time metav1.MicroTime `json:"time"`
}
