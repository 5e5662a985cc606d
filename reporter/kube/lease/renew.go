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

	"github.com/kernosis/kernosis/reporter/kube/conditions"
)

// maxConflicts is how often a renewal reads the Lease again after a conflict. The only writers
// are two agents of one node, while one takes over from the other.
const maxConflicts = 3

// noNodeError means that a Lease has to wait for its Node.
type noNodeError struct{ err error }

func (e *noNodeError) Error() string { return "node: " + e.err.Error() }
func (e *noNodeError) Unwrap() error { return e.err }

// unhealthyError has the reason why the agent does not work.
type unhealthyError struct{ err error }

func (e *unhealthyError) Error() string { return "agent: " + e.err.Error() }
func (e *unhealthyError) Unwrap() error { return e.err }

// renew writes the Lease once; draining is zero except for the last write.
func (k *Keeper) renew(ctx context.Context, draining time.Time) error {
	// A start takes some time, so the first renewal does not depend on health.
	if err := k.config.Healthy(); err != nil && k.written && draining.IsZero() {
		return &unhealthyError{err}
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
			err = k.put(ctx, k.next(draining))
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

// get reads the Lease.
func (k *Keeper) get(ctx context.Context) error {
	l := &coordinationv1.Lease{}
	err := k.do(ctx, func(ctx context.Context) error {
		return k.config.Client.CoordinationV1().RESTClient().Get().Namespace(k.config.Namespace).
			Resource("leases").Name(k.name).Timeout(k.config.timeout).MaxRetries(0).Do(ctx).Into(l)
	})
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
	err := k.do(ctx, func(ctx context.Context) error {
		return k.config.Client.CoreV1().RESTClient().Get().Resource("nodes").Name(k.config.Node).
			Param("resourceVersion", "0").Timeout(k.config.timeout).MaxRetries(0).Do(ctx).Into(node)
	})
	if apierrors.IsNotFound(err) {
		return &noNodeError{err}
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
	return k.take(ctx, func(ctx context.Context, out *coordinationv1.Lease) error {
		return k.config.Client.CoordinationV1().RESTClient().Post().Namespace(k.config.Namespace).
			Resource("leases").Timeout(k.config.timeout).MaxRetries(0).Body(l).Do(ctx).Into(out)
	})
}

func (k *Keeper) put(ctx context.Context, l *coordinationv1.Lease) error {
	return k.take(ctx, func(ctx context.Context, out *coordinationv1.Lease) error {
		return k.config.Client.CoordinationV1().RESTClient().Put().Namespace(k.config.Namespace).
			Resource("leases").Name(k.name).Timeout(k.config.timeout).MaxRetries(0).Body(l).Do(ctx).Into(out)
	})
}

// take sends a write and keeps the Lease from the response.
func (k *Keeper) take(ctx context.Context, send func(context.Context, *coordinationv1.Lease) error) error {
	out, sent := &coordinationv1.Lease{}, time.Now()
	err := k.do(ctx, func(ctx context.Context) error { return send(ctx, out) })
	if err != nil {
		return fmt.Errorf("lease %s: %w", k.name, err)
	}
	k.last, k.read = out, true
	k.see(out, sent)
	k.written = k.written || k.hasOurs()
	return nil
}

// do bounds a request in time. client-go's own retries are off: Run retries, because it counts
// tries and checks whether ctx has ended meanwhile.
func (k *Keeper) do(ctx context.Context, request func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, k.config.timeout)
	defer cancel()
	k.count(func(s *Stats) { s.Requests++ })
	return request(ctx)
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

// next returns the Lease to be written.
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
	// The list has all live agents, whichever of them has the Lease.
	if l.Annotations[AnnotationHolders] = k.list(l, now.Time); l.Annotations[AnnotationHolders] == "" {
		delete(l.Annotations, AnnotationHolders)
	}
	if k.superseded() {
		return l // the rest is the other agent's
	}
	if k.last != nil && !k.hasOurs() {
		transitions := int32(1)
		if l.Spec.LeaseTransitions != nil {
			transitions = *l.Spec.LeaseTransitions + 1
		}
		l.Spec.LeaseTransitions = &transitions
	}
	seconds := int32(k.config.Duration / time.Second)
	l.Spec.HolderIdentity, l.Spec.LeaseDurationSeconds, l.Spec.AcquireTime = &k.config.Node, &seconds, &k.acquired
	if l.Labels == nil {
		l.Labels = map[string]string{}
	}
	l.Labels[LabelComponent] = ComponentAgent
	l.Annotations[AnnotationTypes] = strings.Join(k.types(), ",")
	delete(l.Annotations, AnnotationVersion)
	if k.config.Version != "" {
		l.Annotations[AnnotationVersion] = k.config.Version
	}
	delete(l.Annotations, AnnotationDegraded)
	if lacks := strings.Join(k.config.Degraded(), "\n"); lacks != "" {
		l.Annotations[AnnotationDegraded] = lacks[:min(len(lacks), maxDegraded)]
	}
	delete(l.Annotations, AnnotationDraining)
	if !draining.IsZero() {
		l.Annotations[AnnotationDraining] = draining.UTC().Format(time.RFC3339)
	}
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

// outcomeOf returns the outcome for an error of renew.
func outcomeOf(err error) conditions.Outcome {
	if unhealthy := (*unhealthyError)(nil); errors.As(err, &unhealthy) {
		return Unhealthy
	}
	if noNode := (*noNodeError)(nil); errors.As(err, &noNode) {
		return conditions.NodeMissing
	}
	outcome := conditions.OutcomeOf(err)
	if outcome == conditions.NodeMissing {
		return conditions.Refused // 404: the namespace does not exist
	}
	return outcome
}
