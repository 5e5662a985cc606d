// Package worker makes and runs the Diagnoses of one node.
//
//	problems ── trigger.Engine ──► wanted ──► Store.Create ──► run ──► Store.Write
//	Store (people's, the controller's) ───────────────────────►┘
//
// With an API server the [Store] is that; without one it is a folder of manifests, and
// Diagnoses are known to this node alone. What is wanted or runs is on the disk, so that
// neither the agent's end nor an API server that is away loses one.
package worker

import (
	"context"
	"errors"

	"k8s.io/apimachinery/pkg/types"

	"github.com/kernosis/kernosis/diagnose/api/v1alpha1"
)

// Store is where Diagnoses, and the objects that they are made of, are known. Its methods
// may be called by several goroutines at once. What it returns must not be changed.
type Store interface {
	// Run keeps what the store knows up to date until ctx ends, and notifies h of changes.
	Run(ctx context.Context, h Handler) error
	// Objects returns what is in force, never nil. Before anything is known it is what the last
	// run of the agent knew, or empty.
	Objects() *Objects
	// Create makes a Diagnosis known and returns it as it is there: one of the same name
	// that was there before counts as made, whatever became of it. An error that is
	// [ErrAway] is reported again later, any other never.
	Create(ctx context.Context, d *v1alpha1.Diagnosis) (*v1alpha1.Diagnosis, error)
	// Write changes the status of a Diagnosis and returns it as it is then. change is
	// called with the newest status known, and again where somebody else has written
	// meanwhile; it changes the node's own part alone, never plan and remediations.
	// ErrGone: there is none of the UID any more. A store that keeps no Diagnoses returns
	// name and status alone.
	Write(ctx context.Context, d Key, change func(*v1alpha1.DiagnosisStatus)) (*v1alpha1.Diagnosis, error)
}

// Key names a Diagnosis. One that is made anew under its name has another UID.
type Key struct {
	types.NamespacedName
	UID types.UID
}

// Errors of a [Store], and of [Config.TenantPod].
var (
	ErrAway  = errors.New("the API server does not answer") // now; it may later
	ErrGone  = errors.New("the Diagnosis is gone")
	ErrLater = errors.New("the pod is not known yet") // it may be later
)

// Handler is notified of changes, by a goroutine at a time of objects and by one of Diagnoses.
// It does not block for long.
type Handler interface {
	// ObjectsChanged: Objects returns others than before.
	ObjectsChanged()
	// Diagnosis is one of this node that is new or has changed.
	Diagnosis(d *v1alpha1.Diagnosis)
	// Gone is one that was deleted.
	Gone(k Key)
}

// Objects are those that a run is made of, each valid by its kind's definition.
type Objects struct {
	Operations    []*v1alpha1.Operation    `json:"operations"`
	OperationSets []*v1alpha1.OperationSet `json:"operationSets"`
	Triggers      []*v1alpha1.Trigger      `json:"triggers"`
}
