package repair

import (
	"context"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/kubernetes"

	"github.com/kernosis/kernosis/diagnose/api/v1alpha1"
	"github.com/kernosis/kernosis/diagnose/operation"
	"github.com/kernosis/kernosis/diagnose/policy"
)

// ownPods selects the pods of agents and controllers that the Helm chart creates.
const ownPods = "app.kubernetes.io/name=kernosis"

// longestLook is the longest pause before ending pods are checked again, in multiples of the first.
const longestLook = 6

// Actions makes the repairs that change API objects. It may be used by several goroutines at once.
//
// A repair only ever changes the node that the Diagnosis names, or a pod that is bound to it and
// that the Diagnosis is about. Each write is conditional on the object that was read: on its
// resourceVersion, or the pod's UID. A cordon or taint is marked as Kernosis' own in the same
// write, see [policy.Do].
type Actions struct {
	config  Config
	api     kubernetes.Interface
	ownPods []labels.Selector // of Kernosis' own pods, which are never evicted
}

// NewActions returns the actions of a controller. api must read from the API server, not a cache.
func NewActions(api kubernetes.Interface, c Config) (*Actions, error) {
	if err := c.setDefaults(); err != nil {
		return nil, err
	}
	a := &Actions{config: c, api: api}
	for _, text := range []string{ownPods, c.Pods} {
		if text == "" {
			continue // it would select all
		}
		s, err := labels.Parse(text)
		if err != nil {
			return nil, fmt.Errorf("pods: %w", err)
		}
		a.ownPods = append(a.ownPods, s)
	}
	return a, nil
}

// Call is one repair.
type Call struct {
	Builtin   string
	Values    operation.Values             // from [operation.Builtin.Fill]
	Diagnosis *v1alpha1.Diagnosis          // its spec.nodeName and podReference bound what is changed
	Began     time.Time                    // when its outcome was recorded as Running
	Before    *v1alpha1.RemediationOutcome // the outcome after the previous pass; nil: this is the first
	// Still returns an error if the repair may no longer be made. It is called between each read of
	// the node and the write that follows. May be nil.
	Still func(context.Context) error
}

func (c *Call) node() string { return c.Diagnosis.Spec.NodeName }

// Progress is the state of a repair after a pass.
type Progress struct {
	// State is Running, Succeeded, Failed or Unknown.
	State   v1alpha1.ResultState
	Message string // one line
	Values  map[string]string
	Again   time.Duration // until the next pass, while it is Running
}

// Refused is the error of a repair that can't be made because of the repair or its target, not
// because of the API or a timeout.
type Refused struct{ Why string }

func (r *Refused) Error() string { return r.Why }

func refuse(format string, args ...any) error { return &Refused{fmt.Sprintf(format, args...)} }

// Check returns a [*Refused] if the repair can't be made, and another error if that can't be
// determined now. It changes nothing.
func (a *Actions) Check(ctx context.Context, c *Call) error {
	kind, ok := actionKinds()[c.Builtin]
	if !ok {
		return refuse("the controller has no operation %.80q", c.Builtin)
	}
	return kind.check(a, ctx, c)
}

// Do makes one short pass; long repairs take several. A pass needs only the object and the outcome
// of the previous pass, so another process may make it. An error means that the pass was not
// completed and may be retried; what it has changed stays changed.
func (a *Actions) Do(ctx context.Context, c *Call) (Progress, error) {
	kind, ok := actionKinds()[c.Builtin]
	p, err := Progress{}, refuse("the controller has no operation %.80q", c.Builtin)
	if ok {
		p, err = kind.do(a, ctx, c)
	}
	if refused, ok := errors.AsType[*Refused](err); ok {
		return Progress{State: v1alpha1.ResultFailed, Message: refused.Why}, nil
	}
	return p, err
}

// actionKind is an operation that the controller runs.
type actionKind struct {
	done  string // reason of the Event after it was run: Cordoned
	would string // reason of the Event in a dry run: WouldCordon
	pod   bool   // it changes a pod, not the node

	// check returns a [*Refused] if it can't be run on the current objects.
	check func(*Actions, context.Context, *Call) error
	do    func(*Actions, context.Context, *Call) (Progress, error)
}

// actionKinds returns the operations that the controller runs, by the name of the built-in.
func actionKinds() map[string]actionKind {
	return map[string]actionKind{
		"cordon":          {done: "Cordoned", would: "WouldCordon", check: (*Actions).checkNode, do: (*Actions).cordon},
		"uncordon":        {done: "Uncordoned", would: "WouldUncordon", check: (*Actions).checkNode, do: (*Actions).uncordon},
		"taint":           {done: "Tainted", would: "WouldTaint", check: (*Actions).checkTaint, do: (*Actions).taint},
		"untaint":         {done: "Untainted", would: "WouldUntaint", check: (*Actions).checkTaint, do: (*Actions).untaint},
		"evict-pod":       {done: "PodEvicted", would: "WouldEvictPod", pod: true, check: (*Actions).checkPod, do: (*Actions).endPod},
		"delete-pod":      {done: "PodDeleted", would: "WouldDeletePod", pod: true, check: (*Actions).checkPod, do: (*Actions).endPod},
		"drain":           {done: "Drained", would: "WouldDrain", check: (*Actions).checkDrain, do: (*Actions).drain},
		"label-node":      {done: "NodeLabelled", would: "WouldLabelNode", check: (*Actions).checkLabel, do: set(policy.KindLabel)},
		"unlabel-node":    {done: "NodeUnlabelled", would: "WouldUnlabelNode", check: (*Actions).checkLabel, do: unset(policy.KindLabel)},
		"annotate-node":   {done: "NodeAnnotated", would: "WouldAnnotateNode", check: (*Actions).checkAnnotation, do: set(policy.KindAnnotation)},
		"unannotate-node": {done: "NodeUnannotated", would: "WouldUnannotateNode", check: (*Actions).checkAnnotation, do: unset(policy.KindAnnotation)},
	}
}

// target returns a human-readable name of what a repair changes.
func (k actionKind) target(node string, v operation.Values) string {
	if k.pod && v["podName"] != "" {
		return "pod " + v["podNamespace"] + "/" + v["podName"]
	}
	return "node " + node
}

// gentle reports whether neither Kubernetes nor Kernosis affects the pods of the node because of a
// repair. A label or annotation is not gentle: it may be another program's signal to reboot. values
// may be partial; an unknown value counts as not gentle.
func gentle(builtin string, values map[string]string) bool {
	switch builtin {
	case "cordon", "uncordon", "untaint":
		return true
	case "taint":
		e := corev1.TaintEffect(values["effect"])
		return e == corev1.TaintEffectNoSchedule || e == corev1.TaintEffectPreferNoSchedule
	default:
		return false
	}
}
