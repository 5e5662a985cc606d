// Package worker creates and runs the Diagnoses of one node.
//
//	problems ── trigger.Engine ──► wanted ──► Store.Create ──► run ──► Store.Write
//	Store (people's, the controller's) ───────────────────────►┘
//
// With an API server, that is the [Store]. Without one, the Store is a folder of manifests, and
// Diagnoses are known to this node only. What is wanted or runs is saved to disk, so that nothing
// is lost if the agent stops or the API server is down.
package worker

import (
	"context"
	"errors"

	"k8s.io/apimachinery/pkg/types"

	"github.com/kernosis/kernosis/diagnose/api/v1alpha1"
)

// Store has the Diagnoses and the objects that they use. Its methods may be called by several
// goroutines at once. Returned objects must not be changed.
type Store interface {
	// Run keeps the Store up to date, and notifies h of changes. It returns nil when ctx ends.
	Run(ctx context.Context, h Handler) error
	// Objects returns the objects in force, never nil. Before the first sync they are those saved
	// by the previous process, or empty.
	Objects() *Objects
	// Create creates a Diagnosis and returns the stored one. An existing one of the same name
	// counts as created, whatever its state. Create is retried after an [ErrAway], and after no
	// other error.
	Create(ctx context.Context, d *v1alpha1.Diagnosis) (*v1alpha1.Diagnosis, error)
	// Write changes the status of a Diagnosis and returns the new version. It calls change with the
	// newest known status, and again after a conflict; change must touch only the node's own part,
	// never plan and remediations. ErrGone: there is none with the UID any more. A Store that
	// stores no Diagnoses returns only name and status.
	Write(ctx context.Context, d Key, change func(*v1alpha1.DiagnosisStatus)) (*v1alpha1.Diagnosis, error)
}

// Key identifies a Diagnosis. One recreated under the same name has another UID.
type Key struct {
	types.NamespacedName
	UID types.UID
}

// Errors of a [Store], and of [Config.TenantPod].
var (
	ErrAway  = errors.New("the API server does not answer") // for now; it may later
	ErrGone  = errors.New("the Diagnosis is gone")
	ErrLater = errors.New("the pod is not known yet") // temporary
)

// Handler is notified of changes, by one goroutine for objects and one for Diagnoses. It must not
// block for long.
type Handler interface {
	// ObjectsChanged is called when Objects returns something else than before.
	ObjectsChanged()
	// Diagnosis is called for a new or changed Diagnosis of this node.
	Diagnosis(d *v1alpha1.Diagnosis)
	// Gone is called for a deleted one.
	Gone(k Key)
}

// Objects are the objects that runs use, each valid by its CRD.
type Objects struct {
	Operations    []*v1alpha1.Operation    `json:"operations"`
	OperationSets []*v1alpha1.OperationSet `json:"operationSets"`
	Triggers      []*v1alpha1.Trigger      `json:"triggers"`
}
