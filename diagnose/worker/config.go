package worker

import (
	"cmp"
	"context"
	"errors"
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

// Config configures a worker. Node, Namespace, Dir and Store are required.
type Config struct {
	Node      string
	Namespace string // the system namespace
	// Dir is the folder of checkpoints, artifacts and the ledger, see [Checkpoints] and
	// [Artifacts]. It is created if missing.
	Dir   string
	Store Store
	// Observe means that there is no cluster, so nobody decides on repairs. They are only reported.
	Observe bool

	Builtins []operation.Builtin // from [catalog.All]
	// Scripts and Secret are as in [resolve.Config].
	Scripts *remote.Scripts
	Secret  func(ctx context.Context, name string) (map[string][]byte, error)

	// Pod returns the pod of this node by the UID in a cgroup's name, or nil if it is not known
	// (any more). PodUID returns the UID of a pod by its name, or "". Either may be nil: no pod is
	// known. They are called with locks held, and must not block.
	Pod    func(uid string) *trigger.Pod
	PodUID func(namespace, name string) string
	// PodsKnown reports whether Pod knows all pods that existed at a time. If not, problems of pods
	// that Pod does not know wait, for at most ten seconds. nil: don't wait.
	PodsKnown func(at time.Time) bool
	// TenantPod reads the pod of a Diagnosis outside the system namespace; nil: such Diagnoses are
	// not run. Errors: [ErrAway]; [ErrGone] if there is no such pod; any other error says why the
	// pod must not be diagnosed. An error that also is [ErrLater] is final only two minutes after
	// the Diagnosis was created.
	TenantPod func(ctx context.Context, d *v1alpha1.Diagnosis) (tenancy.Pod, error)

	// Gone reports whether the agent that holds a Diagnosis is known to have ended: then this one
	// takes the Diagnosis over. It is called repeatedly, with locks held, and must not block. nil:
	// no agent is ever known to have ended.
	Gone func(holder string) bool

	// Workers is how many Diagnoses run in parallel; 0: 4. They mostly wait, and several for the
	// same fault of a node would find the same.
	Workers int
	Keep    int // how many ended runs are kept, the newest; 0: 100
	// MaxOpen bounds the Diagnoses whose end is not reported yet; 0: 1000. There are separate
	// limits for the node's own triggers, for others in the system namespace, and for all other
	// namespaces together, each of which may use a tenth. Excess Diagnoses of own triggers are
	// dropped; others wait in the store for a slot.
	MaxOpen int
	// Artifacts has the limits of artifacts; its Dir and Open are ignored. Its Storage is where
	// operations with storage keep their results; empty: a folder in Dir.
	Artifacts artifact.Config

	// Ended is called once for each Diagnosis that has ended, by one goroutine. May be nil.
	Ended func(*Ended)
	Log   *slog.Logger // nil: no log
}

// Checkpoints returns the folder of the runs' checkpoints, for [runner.ReadSaved].
func Checkpoints(dir string) string { return filepath.Join(dir, "checkpoints") }

// Artifacts returns the folder of the runs' artifacts, for [artifact.Read].
func Artifacts(dir string) string { return filepath.Join(dir, "artifacts") }

// Storage returns the default folder below which operations have their own folders.
func Storage(dir string) string { return filepath.Join(dir, "storage") }

func (c *Config) complete() error {
	switch {
	case c.Node == "" || c.Namespace == "":
		return errors.New("worker: node and namespace are needed")
	case c.Dir == "" || c.Store == nil:
		return errors.New("worker: a folder and a store are needed")
	}
	c.Keep, c.MaxOpen, c.Workers = cmp.Or(c.Keep, 100), cmp.Or(c.MaxOpen, 1000), cmp.Or(c.Workers, 4)
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
			return tenancy.Pod{}, errors.New("can't run Diagnoses outside the system namespace here")
		}
	}
	if c.Gone == nil {
		c.Gone = func(string) bool { return false }
	}
	if c.Ended == nil {
		c.Ended = func(*Ended) {}
	}
	c.Log = cmp.Or(c.Log, slog.New(slog.DiscardHandler))
	return nil
}

// Ended describes a Diagnosis that has ended, for display.
type Ended struct {
	ID        string
	Diagnosis *v1alpha1.Diagnosis // metadata and spec
	Status    *v1alpha1.DiagnosisStatus
	Reason    string // of the condition Complete
	Message   string
	// After is the time from the transition of the problem to the end; 0: not about a problem.
	After time.Duration
	Files []string // full paths of artifacts
}
