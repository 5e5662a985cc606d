package worker

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"time"

	"github.com/kernosis/kernosis/diagnose/api/v1alpha1"
	"github.com/kernosis/kernosis/diagnose/artifact"
	"github.com/kernosis/kernosis/diagnose/operation"
	"github.com/kernosis/kernosis/diagnose/operation/remote"
	"github.com/kernosis/kernosis/diagnose/tenancy"
	"github.com/kernosis/kernosis/diagnose/trigger"
)

// Bounds, where the configuration says nothing.
const (
	defaultKeep    = 100
	defaultMaxOpen = 1000
	// defaultWorkers run Diagnoses at a time. Most of their time they wait, but several
	// that look at the same fault of one node find the same.
	defaultWorkers = 4
)

// Config says whose worker it is, and what it works with.
type Config struct {
	Node      string
	Namespace string // the system's
	// Dir is the folder of checkpoints, artifacts and of what was taken: see [Checkpoints]
	// and [Artifacts]. It is made where it is missing.
	Dir   string
	Store Store
	// Observe: nobody decides on repairs, for there is no cluster. Each would run.
	Observe bool

	Builtins []operation.Builtin // of [catalog.All]
	// Scripts, Secret and AllowLinkLocal are as in [resolve.Config].
	Scripts        *remote.Scripts
	Secret         func(ctx context.Context, name string) (map[string][]byte, error)
	AllowLinkLocal bool

	// Pod returns the pod of this node that a control group names, nil where it is not
	// known (any more); PodUID the UID of a pod by its name, empty where it is not known.
	// nil: none is known. They are asked with locks held, and must not block.
	Pod    func(uid string) *trigger.Pod
	PodUID func(namespace, name string) string
	// PodsKnown reports whether Pod knows of all pods that there were at a time: where it does not
	// yet, problems of pods that Pod does not know wait, ten seconds at most. nil: there is nothing
	// to wait for.
	PodsKnown func(at time.Time) bool
	// TenantPod asks for the pod of a Diagnosis outside the system namespace; nil: none of these
	// runs. Errors: [ErrAway]; [ErrGone], there is no such pod; any other says why it may not be
	// looked at. One that also is [ErrLater] counts only two minutes after the Diagnosis was made.
	TenantPod func(ctx context.Context, d *v1alpha1.Diagnosis) (tenancy.Pod, error)

	// Gone reports whether the agent that holds a Diagnosis is known to have ended: then this
	// one takes the Diagnosis over. It is asked again and again, with locks held, and must not
	// block. nil: none is ever known to have.
	Gone func(holder string) bool

	Workers int // Diagnoses that run at a time; 0: 4
	Keep    int // runs that have ended and are kept, the newest; 0: 100
	// MaxOpen bounds the Diagnoses whose end is not reported yet: of the node's own triggers,
	// of others in the system namespace, and of all other namespaces, a tenth of it each; 0:
	// 1000. Of own triggers more are dropped; others wait in the store until there is a place.
	MaxOpen int
	// Artifacts has the bounds of artifacts; its Dir is not looked at. Its Storage is where
	// operations keep results that want it; empty: a folder in Dir.
	Artifacts artifact.Config

	// Ended is called with each Diagnosis that has ended, once, by one goroutine. It may be nil.
	Ended func(*Ended)
	Log   *slog.Logger // nil: takes nothing
}

// Checkpoints returns the folder of the runs' checkpoints, for [runner.ReadSaved].
func Checkpoints(dir string) string { return filepath.Join(dir, "checkpoints") }

// Artifacts returns the folder of the runs' artifacts, for [artifact.Read].
func Artifacts(dir string) string { return filepath.Join(dir, "artifacts") }

// Storage returns the folder below which operations have folders of their own, where nothing
// else is said.
func Storage(dir string) string { return filepath.Join(dir, "storage") }

func (c *Config) complete() error {
	switch {
	case c.Node == "" || c.Namespace == "":
		return errors.New("worker: node and namespace are needed")
	case c.Dir == "" || c.Store == nil:
		return errors.New("worker: a folder and a store are needed")
	case c.Keep < 0 || c.MaxOpen < 0 || c.Workers < 0:
		return fmt.Errorf("worker: a negative bound: keep %d, open %d, workers %d", c.Keep, c.MaxOpen, c.Workers)
	}
	for _, n := range []struct {
		value     *int
		otherwise int
	}{{&c.Keep, defaultKeep}, {&c.MaxOpen, defaultMaxOpen}, {&c.Workers, defaultWorkers}} {
		if *n.value == 0 {
			*n.value = n.otherwise
		}
	}
	if c.Pod == nil {
		c.Pod = func(string) *trigger.Pod { return nil }
	}
	if c.PodsKnown == nil {
		c.PodsKnown = func(time.Time) bool { return true }
	}
	if c.PodUID == nil {
		c.PodUID = func(string, string) string { return "" }
	}
	if c.TenantPod == nil {
		c.TenantPod = func(context.Context, *v1alpha1.Diagnosis) (tenancy.Pod, error) {
			return tenancy.Pod{}, errors.New("what is outside the system namespace is not run here")
		}
	}
	if c.Gone == nil {
		c.Gone = func(string) bool { return false }
	}
	if c.Ended == nil {
		c.Ended = func(*Ended) {}
	}
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	return nil
}

// Ended is a Diagnosis that has ended, for people.
type Ended struct {
	ID        string
	Diagnosis *v1alpha1.Diagnosis // metadata and spec
	Status    *v1alpha1.DiagnosisStatus
	Reason    string // of the condition Complete
	Message   string
	// After is the time from the transition of the problem to the end; 0: it is about none.
	After time.Duration
	Files []string // artifacts, whole paths
}
