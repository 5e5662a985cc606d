package action

import (
	"context"
	"errors"
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/kubernetes"

	"github.com/kernosis/kernosis/diagnose/api/v1alpha1"
	"github.com/kernosis/kernosis/diagnose/operation"
)

// OwnPods selects the pods of agents and controllers that the Helm chart creates.
const OwnPods = "app.kubernetes.io/name=kernosis"

// look is the first pause before ending pods are checked again: the same as kubectl's after a
// refused eviction.
const look = 5 * time.Second

// longest is the longest pause, in multiples of the first.
const longest = 6

// Config configures actions. Client and Namespace are required.
type Config struct {
	Client    kubernetes.Interface // reads from the API server, not from a cache
	Namespace string               // of the agents and the controller
	Own       []labels.Selector    // selectors of their pods, which are never evicted
	// Look is the first pause before ending pods are checked again; 0: 5 s. The pauses grow to six
	// times that.
	Look time.Duration
	Now  func() time.Time // nil: [time.Now]
}

// Actions makes repairs. It may be used by several goroutines at once.
type Actions struct{ c Config }

// New returns the actions.
func New(c Config) (*Actions, error) {
	if c.Client == nil || c.Namespace == "" {
		return nil, errors.New("actions: no client or no namespace")
	}
	if c.Look <= 0 {
		c.Look = look
	}
	if c.Now == nil {
		c.Now = time.Now
	}
	return &Actions{c: c}, nil
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

func (c *Call) kind() (Kind, error) {
	k, ok := KindOf(c.Builtin)
	if !ok {
		return k, refuse("the controller has no operation %.80q", c.Builtin)
	}
	return k, nil
}

// Check returns a [*Refused] if the repair can't be made, and another error if that can't be
// determined now. It changes nothing.
func (a *Actions) Check(ctx context.Context, c *Call) error {
	kind, err := c.kind()
	if err != nil {
		return err
	}
	return kind.check(a, ctx, c)
}

// Do makes a pass. An error means that the pass was not completed and may be retried; what it has
// changed stays changed.
func (a *Actions) Do(ctx context.Context, c *Call) (Progress, error) {
	kind, err := c.kind()
	if err != nil {
		return ended(err)
	}
	p, err := kind.do(a, ctx, c)
	if err != nil {
		return ended(err)
	}
	return p, nil
}

// ended turns a refusal into a Failed outcome.
func ended(err error) (Progress, error) {
	if refused, ok := errors.AsType[*Refused](err); ok {
		return Progress{State: v1alpha1.ResultFailed, Message: refused.Why}, nil
	}
	return Progress{}, err
}

// newer reports whether an object was created after the Diagnosis, which then can't be about it.
// The API keeps whole seconds.
func (c *Call) newer(o metav1.Object) bool {
	return o.GetCreationTimestamp().After(c.Diagnosis.CreationTimestamp.Time)
}
