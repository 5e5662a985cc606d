package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Plan is what would be repaired.
type Plan struct {
	// digest is that of the steps and of what they are about.
	// +required
	Digest Digest `json:"digest"`

	// steps are the repairs, in order.
	// +required
	// +listType=atomic
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=32
	Steps []PlanStep `json:"steps"`
}

// PlanStep is one repair.
type PlanStep struct {
	// id is that of the graph's node.
	// +required
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=255
	ID int32 `json:"id"`

	// operation is the name of the Operation.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Operation string `json:"operation"`

	// target is what it changes, for people.
	// +optional
	// +kubebuilder:validation:MaxLength=256
	Target string `json:"target,omitempty"`
}

// Checkpoint is what a run goes on from. Which nodes have run is in results.
type Checkpoint struct {
	// holder is the agent that runs it: no other may while that one lives, which the
	// Lease of its node says.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=256
	Holder string `json:"holder"`

	// time is when the holder last wrote, by the node's clock. It writes what has changed.
	// +required
	Time metav1.MicroTime `json:"time"`

	// running is the id of the graph's node that runs.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=255
	Running *int32 `json:"running,omitempty"`

	// intent is written before a repair begins and taken away once its outcome is known.
	// A run that finds one of its own does not repeat that repair.
	// +optional
	Intent *Intent `json:"intent,omitempty"`
}

// Intent says that a repair is about to begin.
type Intent struct {
	// id is that of the graph's node.
	// +required
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=255
	ID int32 `json:"id"`

	// operation is the name of the Operation.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Operation string `json:"operation"`

	// time is when it was written.
	// +required
	Time metav1.MicroTime `json:"time"`
}
