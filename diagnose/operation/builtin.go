package operation

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/kernosis/kernosis/collector/hostfs"
	"github.com/kernosis/kernosis/diagnose/api/v1alpha1"
)

// Effect is what an operation may change.
type Effect = v1alpha1.Effect

// Effects. A Check succeeds if it finds what it looks for; otherwise it returns a [*Refuted], which
// ends the path.
const (
	Collect   = v1alpha1.EffectCollect
	Check     = v1alpha1.EffectCheck
	Remediate = v1alpha1.EffectRemediate
)

// Builtin describes a built-in operation. It holds no state: Run may be called by several
// goroutines at once.
type Builtin struct {
	Name   string // as in Operations: "blocked-stacks"
	Doc    string // one sentence: what it does
	Effect Effect
	// TenantSafe: a user of one namespace may run it on a pod of that namespace. It reports nothing
	// beyond that pod.
	TenantSafe bool
	// ByController: it changes API objects, which only the controller does. Run is nil, and a run
	// on a node takes over the outcome from the controller.
	ByController bool
	Parameters   []Parameter
	Results      []Result
	// Run returns what it found, or an error if it could not look. It returns when ctx is done.
	Run func(ctx context.Context, call *Call) (Output, error)
}

// Result is a key that a built-in may set in its results.
type Result struct {
	Name string `json:"name"` // camelCase: "holderPID"
	Doc  string `json:"doc"`
}

// Call is one run of an operation.
type Call struct {
	// Parameters has all parameters that the built-in declares, checked and with defaults: see
	// [Builtin.Fill]. For a web server or script, which declare none, it has all inputs: the
	// parameters and results of dependences, where the first source of a name wins.
	Parameters Values
	Artifacts  Artifacts
	Log        *slog.Logger
}

// Output is the result of a successful operation.
type Output struct {
	// Results are passed to the operations that depend on this one. Only keys that the built-in
	// declares are allowed.
	Results map[string]string
	// Verdict is the conclusion; nil: this operation has none. The last verdict on the succeeded
	// path becomes the diagnosis' verdict.
	Verdict *Verdict
	// Truncated: a result or the verdict was cut because it was too long.
	Truncated bool
}

// Verdict is a cause: a machine-readable reason and a sentence.
type Verdict struct {
	Reason  string // CamelCase, stable: "DiskStalled"
	Message string // one line of facts, at most 1024 bytes
}

// Refuted is the error of a Check that could look and found that the cause is not this one.
type Refuted struct {
	Reason  string // CamelCase, stable: "NoDiskStalled"
	Message string // the evidence, one line, at most 1024 bytes
}

func (r *Refuted) Error() string { return fmt.Sprintf("%s: %s", r.Reason, r.Message) }

// OutcomeUnknown is the error of an operation that may or may not have done its work, such as a
// request whose answer was lost. A Remediate with it is Unknown; for others it is a failure.
type OutcomeUnknown struct{ Err error }

func (e *OutcomeUnknown) Error() string { return e.Err.Error() }
func (e *OutcomeUnknown) Unwrap() error { return e.Err }

// Artifacts stores what is too big for a result, such as stacks and captures.
type Artifacts interface {
	// Create creates a file of the diagnosis' running node. The name has letters, digits, '.', '_'
	// and '-' only ("stacks.txt"). Readers find the file once it is closed. A Write past the disk
	// budget fails with [ErrArtifactBudget]; what was written before stays.
	Create(name string) (io.WriteCloser, error)
}

// ErrArtifactBudget is returned if an artifact exceeds the disk budget.
var ErrArtifactBudget = errors.New("artifact disk budget is used up")

// Host gives built-ins access to the node.
type Host struct {
	FS   hostfs.FS // the node's /proc, /sys and files
	Pods Pods      // the node's; nil: unknown
}

// HostAt returns the machine whose root folder is dir. pods may be nil if they are unknown.
func HostAt(dir string, pods Pods) Host { return Host{FS: hostfs.New(dir), Pods: pods} }

// Pods returns the pods of this node, from the API server or kubelet. Its methods may be called by
// several goroutines at once; the caller owns what they return.
type Pods interface {
	// Pod returns a pod of this node. It returns an error if the pod does not exist or is on
	// another node.
	Pod(ctx context.Context, namespace, name string) (*corev1.Pod, error)
	// All returns all pods of this node.
	All(ctx context.Context) ([]corev1.Pod, error)
}

// Lookup finds a built-in by name in a list that is sorted as by [catalog.All].
func Lookup(all []Builtin, name string) (*Builtin, bool) {
	i, ok := slices.BinarySearchFunc(all, name, func(b Builtin, name string) int { return cmp.Compare(b.Name, name) })
	if !ok {
		return nil, false
	}
	return &all[i], true
}
