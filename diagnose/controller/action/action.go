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

// OwnPods selects the pods of agents and controllers that the chart makes.
const OwnPods = "app.kubernetes.io/name=kernosis"

// look is how soon pods that end are looked at again: kubectl's pause after a refusal.
const look = 5 * time.Second

// longest is how many times that the pause has at most.
const longest = 6

// Config configures actions. Client and Namespace are required.
type Config struct {
	Client    kubernetes.Interface // asks the server, and no cache
	Namespace string               // of the agents and the controller
	Own       []labels.Selector    // their pods in it, which are never ended
	// Look is how soon pods that end are looked at again, at first; 0: 5 s. The pauses grow
	// to six times that.
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
	Values    operation.Values             // of [operation.Builtin.Fill]
	Diagnosis *v1alpha1.Diagnosis          // whose spec.nodeName and podReference bound what is changed
	Began     time.Time                    // when its outcome was noted as Running
	Before    *v1alpha1.RemediationOutcome // what the pass before this has left; nil: this is the first
	// Still returns an error where the repair may not be made any more. It is asked between
	// each read of the node and the write of what was read; nil: it may.
	Still func(context.Context) error
}

func (c *Call) node() string { return c.Diagnosis.Spec.NodeName }

// Progress is how far a repair is after a pass.
type Progress struct {
	// State is Running, Succeeded, Failed or Unknown.
	State   v1alpha1.ResultState
	Message string // one line
	Values  map[string]string
	Again   time.Duration // until the next pass, while it is Running
}

// Refused says that a repair can't be made: of what is wrong with it, and not of the API
// or the time.
type Refused struct{ Why string }

func (r *Refused) Error() string { return r.Why }

func refuse(format string, args ...any) error { return &Refused{fmt.Sprintf(format, args...)} }

func (c *Call) kind() (Kind, error) {
	k, ok := KindOf(c.Builtin)
	if !ok {
		return k, refuse("the controller makes no operation %.80q", c.Builtin)
	}
	return k, nil
}

// Check returns a [*Refused] where the repair can't be made, and another error where that
// is not known now. It changes nothing.
func (a *Actions) Check(ctx context.Context, c *Call) error {
	kind, err := c.kind()
	if err != nil {
		return err
	}
	return kind.check(a, ctx, c)
}

// Do makes a pass. An error says that it could not be made to its end, and that another
// may be tried: what has been done is done.
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

// ended turns a refusal into an outcome.
func ended(err error) (Progress, error) {
	if refused, ok := errors.AsType[*Refused](err); ok {
		return Progress{State: v1alpha1.ResultFailed, Message: refused.Why}, nil
	}
	return Progress{}, err
}

// newer reports whether an object was made after the Diagnosis, which then can't be about
// it. The API keeps whole seconds.
func (c *Call) newer(o metav1.Object) bool {
	return o.GetCreationTimestamp().After(c.Diagnosis.CreationTimestamp.Time)
}
