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

// Effects. A Check succeeds if what it looks for is so, and ends its path with a
// [*Refuted] if it is not.
const (
	Collect   = v1alpha1.EffectCollect
	Check     = v1alpha1.EffectCheck
	Remediate = v1alpha1.EffectRemediate
)

// Builtin is the blueprint of a built-in operation. It holds no state: Run may be
// called by several goroutines at once.
type Builtin struct {
	Name   string // as Operations name it: "blocked-stacks"
	Doc    string // a sentence: what it does
	Effect Effect
	// TenantSafe: a user of one namespace may have it run on a pod of that namespace. It
	// reports nothing but that pod.
	TenantSafe bool
	// ByController: it changes objects of the API, which the controller alone does. Run is
	// nil, and a run on a node takes over what came of it there.
	ByController bool
	Parameters   []Parameter
	Results      []Result
	// Run returns what it found, or why it could not look; ctx bounds it.
	Run func(ctx context.Context, call *Call) (Output, error)
}

// Result is a key that a built-in may set in its results.
type Result struct {
	Name string // camelCase: "holderPID"
	Doc  string
}

// Call is one run of an operation.
type Call struct {
	// Parameters has all that the built-in declares, checked, defaults filled in: see
	// [Builtin.Fill]. For a web server or script, which declare nothing, it has all inputs:
	// of each name the first of parameters and results of dependences.
	Parameters Values
	Artifacts  Artifacts
	Log        *slog.Logger
}

// Output is what an operation found.
type Output struct {
	// Results are handed to the operations that depend on this one. Keys are those that
	// the built-in declares.
	Results map[string]string
	// Verdict is what the findings mean; nil: nothing by themselves. The last one on
	// the succeeded path is the diagnosis' verdict.
	Verdict *Verdict
	// Truncated: a result or the verdict was cut, because it is too long.
	Truncated bool
}

// Verdict is a cause in a word and in a sentence.
type Verdict struct {
	Reason  string // CamelCase, stable: "DiskStalled"
	Message string // one line with whole facts, at most 1024 bytes
}

// Refuted is the answer no of a Check: it could look, and the cause is not this one.
type Refuted struct {
	Reason  string // CamelCase, stable: "NoDiskStalled"
	Message string // the evidence, one line, at most 1024 bytes
}

func (r *Refuted) Error() string { return fmt.Sprintf("%s: %s", r.Reason, r.Message) }

// Artifacts takes what is too big for a result: stacks, captures.
type Artifacts interface {
	// Create makes a file of the running diagnosis' node. The name has letters, digits,
	// '.', '_' and '-' only ("stacks.txt"). It exists for readers once it is closed. A
	// Write past the disk budget fails with [ErrArtifactBudget], and keeps what is there.
	Create(name string) (io.WriteCloser, error)
}

// ErrArtifactBudget is returned where an artifact would take more disk than is granted.
var ErrArtifactBudget = errors.New("artifact disk budget is used up")

// Host is what built-ins need of the node.
type Host struct {
	FS      hostfs.FS       // the node's /proc, /sys and files
	Symbols *hostfs.Symbols // the kernel's
	Pods    Pods            // the node's; nil: nobody knows of any
}

// Pods knows the pods of this node, as the API server or kubelet has them. Its methods may be called
// by several goroutines at once; what they return is the caller's.
type Pods interface {
	// Pod returns a pod of this node. One that is not there, or on another node, is an
	// error.
	Pod(ctx context.Context, namespace, name string) (*corev1.Pod, error)
	// All returns all pods of this node.
	All(ctx context.Context) ([]corev1.Pod, error)
}

// Lookup returns the built-in of a name out of those of [catalog.All].
func Lookup(all []Builtin, name string) (*Builtin, bool) {
	i, ok := slices.BinarySearchFunc(all, name, func(b Builtin, name string) int { return cmp.Compare(b.Name, name) })
	if !ok {
		return nil, false
	}
	return &all[i], true
}
