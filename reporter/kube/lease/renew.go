package lease

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"

	"github.com/kernosis/kernosis/collector/display"
	"github.com/kernosis/kernosis/reporter/kube/conditions"
)

// maxConflicts is how often a renewal reads the Lease again after a conflict. The only writers
// are two agents of one node, while one takes over from the other.
const maxConflicts = 3

var (
	errNoNode    = errors.New("node")  //nolint:gochecknoglobals // a constant: the Lease waits for its Node
	errUnhealthy = errors.New("agent") //nolint:gochecknoglobals // a constant: the agent does not work
)

// renew writes the Lease once; draining is zero except for the last write.
func (k *Keeper) renew(ctx context.Context, draining time.Time) error {
	// A start takes some time, so the first renewal does not depend on health.
	if err := k.config.Healthy(); err != nil && k.written && draining.IsZero() {
		return fmt.Errorf("%w: %w", errUnhealthy, err)
	}
	for conflicts := 0; ; {
		if !k.read {
			if err := k.get(ctx); err != nil {
				return err
			}
		}
		outcome := Renewed
		var err error
		switch {
		case k.last != nil && !draining.IsZero() && k.superseded():
			return nil // the other agent has it, and lives
		case k.last != nil:
			err = k.write(ctx, k.lease("PUT").Name(k.name).Body(k.next(draining)))
		case !draining.IsZero():
			return nil // the Lease was deleted
		default:
			outcome, err = Created, k.create(ctx)
		}
		switch {
		case err == nil:
			k.count(func(s *Stats) {
				s.Renewals[outcome]++
				s.LastRenewed = k.last.Spec.RenewTime.Time
				s.Superseded, s.Drained = k.superseded(), !draining.IsZero()
			})
			return nil
		case apierrors.IsConflict(err) && !apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause),
			apierrors.IsAlreadyExists(err),
			k.last != nil && apierrors.IsNotFound(err):
			// The Lease differs from the one last seen.
			k.read = false
			if conflicts++; conflicts < maxConflicts {
				continue
			}
		}
		return err
	}
}

func (k *Keeper) get(ctx context.Context) error {
	l := &coordinationv1.Lease{}
	err := k.send(ctx, k.lease("GET").Name(k.name), l)
	k.count(func(s *Stats) { s.Reads++ })
	switch {
	case apierrors.IsNotFound(err):
		k.last, k.read = nil, true
		return nil
	case err != nil:
		return fmt.Errorf("lease %s: %w", k.name, err)
	}
	k.last, k.read = l, true
	k.see(l, time.Time{})
	if types := TypesOf(l); !k.written && len(types) > 0 && k.config.OnEarlier != nil {
		k.config.OnEarlier(types)
	}
	return nil
}

// create creates the Lease for the current Node. Without a Node it creates none, because nothing
// would ever collect it. Ownership is set only here: changing it later may need permission to
// delete, and a Lease of an earlier Node is collected anyway.
func (k *Keeper) create(ctx context.Context) error {
	node := &corev1.Node{}
	r := k.config.Client.CoreV1().RESTClient().Get().Resource("nodes").Name(k.config.Node).Param("resourceVersion", "0")
	err := k.send(ctx, r, node)
	if apierrors.IsNotFound(err) {
		return fmt.Errorf("%w: %w", errNoNode, err)
	}
	if err != nil {
		return fmt.Errorf("node %s: %w", k.config.Node, err)
	}
	k.written = false
	l := k.next(time.Time{})
	l.Name, l.Namespace = k.name, k.config.Namespace
	l.OwnerReferences = []metav1.OwnerReference{{
		APIVersion: corev1.SchemeGroupVersion.String(), Kind: "Node", Name: node.Name, UID: node.UID,
	}}
	return k.write(ctx, k.lease("POST").Body(l))
}

// write sends a write and keeps the Lease from the response.
func (k *Keeper) write(ctx context.Context, r *rest.Request) error {
	out, sent := &coordinationv1.Lease{}, time.Now()
	if err := k.send(ctx, r, out); err != nil {
		return fmt.Errorf("lease %s: %w", k.name, err)
	}
	k.last, k.read = out, true
	k.see(out, sent)
	k.written = k.written || k.hasOurs()
	return nil
}

// lease returns a request for Leases of the namespace.
func (k *Keeper) lease(verb string) *rest.Request {
	return k.config.Client.CoordinationV1().RESTClient().Verb(verb).Namespace(k.config.Namespace).Resource("leases")
}

func (k *Keeper) send(ctx context.Context, r *rest.Request, into runtime.Object) error {
	k.count(func(s *Stats) { s.Requests++ })
	return conditions.Send(ctx, r, k.config.timeout, into)
}

// hasOurs reports whether the Lease is the one that this agent has acquired.
func (k *Keeper) hasOurs() bool {
	at := k.last.Spec.AcquireTime
	return at != nil && at.Time.Truncate(time.Microsecond).Equal(k.acquired.Time.Truncate(time.Microsecond))
}

// superseded reports whether an agent that started after this one has the Lease. Clocks do not
// show the order of starts, so that is an agent that took the Lease from us. If it has drained,
// it is gone and we are left.
func (k *Keeper) superseded() bool {
	return k.written && k.last != nil && !k.hasOurs() && DrainingSince(k.last).IsZero()
}

func (k *Keeper) next(draining time.Time) *coordinationv1.Lease {
	l := &coordinationv1.Lease{}
	if k.last != nil {
		l = k.last.DeepCopy()
	}
	now := metav1.NewMicroTime(time.Now())
	l.Spec.RenewTime = &now
	if l.Annotations == nil {
		l.Annotations = map[string]string{}
	}
	annotate := func(key, value string) {
		if value == "" {
			delete(l.Annotations, key)
		} else {
			l.Annotations[key] = value
		}
	}
	// The list has all live agents, whichever of them has the Lease.
	annotate(AnnotationHolders, k.list(l, now.Time))
	if k.superseded() {
		return l // the rest is the other agent's
	}
	if k.last != nil && !k.hasOurs() {
		l.Spec.LeaseTransitions = new(ptr.Deref(l.Spec.LeaseTransitions, 0) + 1)
	}
	l.Spec.HolderIdentity, l.Spec.AcquireTime = &k.config.Node, &k.acquired
	l.Spec.LeaseDurationSeconds = new(int32(k.config.Duration / time.Second))
	metav1.SetMetaDataLabel(&l.ObjectMeta, LabelComponent, ComponentAgent)
	l.Annotations[AnnotationTypes] = strings.Join(k.types(), ",")
	annotate(AnnotationVersion, k.config.Version)
	annotate(AnnotationDegraded, display.Prefix(strings.Join(k.config.Degraded(), "\n"), maxDegraded))
	since := ""
	if !draining.IsZero() {
		since = draining.UTC().Format(time.RFC3339)
	}
	annotate(AnnotationDraining, since)
	return l
}

// types returns the condition types that the Lease is to list.
func (k *Keeper) types() []string {
	types, refused := checkTypes(slices.Clone(k.config.Types()))
	k.count(func(s *Stats) { s.Refused = uint64(refused) })
	if refused != k.reported {
		k.reported = refused
		if refused > 0 {
			k.config.Log.Warn("condition types are not listed in the lease", "refused", refused)
		}
	}
	return types
}

func outcomeOf(err error) conditions.Outcome {
	switch outcome := conditions.OutcomeOf(err); {
	case errors.Is(err, errUnhealthy):
		return Unhealthy
	case errors.Is(err, errNoNode):
		return conditions.NodeMissing
	case outcome == conditions.NodeMissing:
		return conditions.Refused // 404: the namespace does not exist
	default:
		return outcome
	}
}
