package policy

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kernosis/kernosis/diagnose/api/v1alpha1"
)

// Errors of [Budget.Verify].
var (
	ErrNotHeld   = errors.New("the diagnosis holds no slot of the RemediationPolicy")
	ErrTakenOver = errors.New("another controller has taken over the slot of the RemediationPolicy")
)

// maxRepairs and maxCooldowns are how many entries the schema lets a policy have. With
// the longest names of nodes and operations its object is still below 1.5 MiB, which etcd
// takes, while some two hundred escalations are under way at once.
const (
	maxRepairs   = 512
	maxCooldowns = 3584
)

// Budget holds the slots of policies. It keeps nothing itself: any number of them, in any
// number of processes, may work on the same policies at once.
//
// A slot is held for a Diagnosis by one holder, a controller. Of two that both believe to
// lead, the second one takes the slot over before it repairs or gives the slot back. The
// first one may then still do what it was about to do when it last asked [Budget.Verify].
type Budget struct {
	// Reader must ask the server: a cache would only cost conflicts, but one that lags
	// behind costs many.
	Reader client.Reader
	Writer client.SubResourceWriter // of the status
	Holder string                   // of one process
	Now    func() time.Time
	// TakenOver is called when a slot is taken over from another holder; nil: nothing is.
	TakenOver func(diagnosis types.UID)
}

// Acquire takes a slot of each policy that selects the node, and returns Run once it has
// them all; else it holds none that it did not hold before. The rules are those of
// [Decide], applied to what is written over. Names are those of all policies there are,
// in order; what is not there any more is left out.
//
// A diagnosis that holds its slots gets them again, from another holder too: an Acquire
// whose end nobody saw, and one for the diagnosis' next repair, are the same call. An error says that it could not
// be decided; slots may be held then: ask again, or where the diagnosis has repaired
// nothing yet, Release with Remove. Of several policies that refuse, the first by name is
// reported: ask [Decide] before.
func (b *Budget) Acquire(ctx context.Context, names []string, c *Cluster, w *Want) (Decision, error) {
	now := b.Now()
	d, done := decideWithoutPolicy(c, w, now)
	if done {
		return d, nil
	}
	node := c.Node(w.Node)
	var undo []func() error
	for _, name := range names {
		var one Decision
		held, other := false, false
		err := b.change(ctx, name, func(obj *v1alpha1.RemediationPolicy) bool {
			one, held, other = Decision{}, false, false
			p := New(obj)
			if !p.Selects(node) {
				return false
			}
			if one = p.decide(c, node, w, b.Now()); one.Verb != v1alpha1.RemediationRun {
				return false
			}
			forget(obj, b.Now())
			forgetGone(obj, c)
			if i := indexOf(obj, w.Node); i >= 0 && holds(&obj.Status.Repairs[i], w.Diagnosis) {
				had := &obj.Status.Repairs[i]
				held, other = true, had.Holder != b.Holder
				if !other && had.Operation == w.Operation {
					return false // it has the slot
				}
			}
			take(obj, w, b.Holder, b.Now())
			return true
		})
		if other {
			b.takenOver(w.Diagnosis)
		}
		if client.IgnoreNotFound(err) != nil {
			return Decision{}, errors.Join(fmt.Errorf("slot of policy %s: %w", name, err), back(undo))
		}
		if err == nil {
			d = stricter(d, one)
		}
		if d.Verb != "" && d.Verb != v1alpha1.RemediationRun {
			return d, back(undo)
		}
		if err == nil && one.Verb == v1alpha1.RemediationRun && !held {
			undo = append(undo, func() error { return b.Release(ctx, []string{name}, w.Node, w.Diagnosis, Remove) })
		}
	}
	if d.Verb == "" {
		return noPolicy(w), nil
	}
	return d, nil
}

func back(undo []func() error) error {
	var errs []error
	for _, f := range undo {
		errs = append(errs, f())
	}
	return errors.Join(errs...)
}

// Held returns of which policies a diagnosis holds the slot of a node for an operation ("":
// for any): by this holder, and by others.
func (b *Budget) Held(ctx context.Context, names []string, node string, diagnosis types.UID, operation string) (ours, others []string, err error) {
	for _, name := range names {
		obj, err := b.get(ctx, name)
		if apierrors.IsNotFound(err) {
			continue
		}
		if err != nil {
			return nil, nil, fmt.Errorf("slot of policy %s: %w", name, err)
		}
		switch i := indexOf(obj, node); {
		case i < 0 || !holds(&obj.Status.Repairs[i], diagnosis) || operation != "" && obj.Status.Repairs[i].Operation != operation:
		case obj.Status.Repairs[i].Holder == b.Holder:
			ours = append(ours, name)
		default:
			others = append(others, name)
		}
	}
	return ours, others, nil
}

// Claim takes over what a diagnosis holds for a node by other holders.
func (b *Budget) Claim(ctx context.Context, names []string, node string, diagnosis types.UID) error {
	for _, name := range names {
		other := false
		err := b.change(ctx, name, func(obj *v1alpha1.RemediationPolicy) bool {
			i := indexOf(obj, node)
			other = i >= 0 && holds(&obj.Status.Repairs[i], diagnosis) && obj.Status.Repairs[i].Holder != b.Holder
			if other {
				obj.Status.Repairs[i].Holder = b.Holder
			}
			return other
		})
		if other {
			b.takenOver(diagnosis)
		}
		if client.IgnoreNotFound(err) != nil {
			return fmt.Errorf("take over the slot of policy %s: %w", name, err)
		}
	}
	return nil
}

func (b *Budget) takenOver(diagnosis types.UID) {
	if b.TakenOver != nil {
		b.TakenOver(diagnosis)
	}
}

// holds reports whether this holder has the slot that a diagnosis holds for a node.
func (b *Budget) holds(obj *v1alpha1.RemediationPolicy, node string, diagnosis types.UID) bool {
	i := indexOf(obj, node)
	return i >= 0 && holds(&obj.Status.Repairs[i], diagnosis) && obj.Status.Repairs[i].Holder == b.Holder
}

// Verify reads whether a diagnosis holds its slot of each named policy that selects the
// node, just before it acts. If not, it returns an [ErrNotHeld]; and an [ErrTakenOver] where
// the slot has another holder.
func (b *Budget) Verify(ctx context.Context, names []string, n *Node, diagnosis types.UID) error {
	held := false
	for _, name := range names {
		obj, err := b.get(ctx, name)
		if apierrors.IsNotFound(err) {
			continue
		}
		if err != nil {
			return fmt.Errorf("slot of policy %s: %w", name, err)
		}
		p := New(obj)
		if !p.Selects(n) {
			continue
		}
		r := p.entries[n.Name]
		switch {
		case r == nil || r.EndTime != nil:
			return fmt.Errorf("%w %s for node %s", ErrNotHeld, name, n.Name)
		case r.Diagnosis != diagnosis:
			return fmt.Errorf("%w %s for node %s: diagnosis %s does", ErrNotHeld, name, n.Name, r.Diagnosis)
		case r.Holder != b.Holder:
			return fmt.Errorf("%w %s for node %s: %s", ErrTakenOver, name, n.Name, r.Holder)
		}
		held = true
	}
	if !held {
		return fmt.Errorf("%w: none selects node %s", ErrNotHeld, n.Name)
	}
	return nil
}

// Release gives back the slots that a diagnosis holds for a node: End, once its repair was
// verified or given up as [Settle] says; Remove, where it was never begun. What another
// holder has stays: [Budget.Claim] it before. It may be called again.
func (b *Budget) Release(ctx context.Context, names []string, node string, diagnosis types.UID, s Settlement) error {
	var errs []error
	for _, name := range names {
		err := b.change(ctx, name, func(obj *v1alpha1.RemediationPolicy) bool {
			return b.holds(obj, node, diagnosis) && give(obj, node, diagnosis, s, b.Now())
		})
		if client.IgnoreNotFound(err) != nil {
			errs = append(errs, fmt.Errorf("give back the slot of policy %s: %w", name, err))
		}
	}
	return errors.Join(errs...)
}

// Sweep settles the slots of a policy that are held, with what look knows of each, and
// forgets those whose cooldown is over. It is for a controller's start, and for now and
// then. What look finds missing in a cache it must ask the server for. It returns what it
// has given back.
func (b *Budget) Sweep(ctx context.Context, name string, look func(*v1alpha1.Repair) Facts) ([]v1alpha1.Repair, error) {
	var given []v1alpha1.Repair
	err := b.change(ctx, name, func(obj *v1alpha1.RemediationPolicy) bool {
		given = nil
		p := New(obj)
		for _, r := range append([]v1alpha1.Repair(nil), obj.Status.Repairs...) {
			if r.EndTime != nil {
				continue
			}
			f := look(&r)
			if give(obj, r.Node, r.Diagnosis, Settle(&r, &f, p.VerifyWithin(r.Operation)), f.Now) {
				given = append(given, r)
			}
		}
		return forget(obj, b.Now()) > 0 || len(given) > 0
	})
	if err != nil {
		return nil, fmt.Errorf("sweep policy %s: %w", name, err)
	}
	return given, nil
}

// Pauses between tries to write: enough to be alone after some, with all of a big cluster
// at it; each is random up to its bound.
const (
	firstPause = 10 * time.Millisecond
	maxPause   = time.Second
)

// get returns a policy as it is now. It may be changed.
func (b *Budget) get(ctx context.Context, name string) (*v1alpha1.RemediationPolicy, error) {
	p := &v1alpha1.RemediationPolicy{}
	return p, b.Reader.Get(ctx, client.ObjectKey{Name: name}, p)
}

// change reads a policy, lets f change it, and writes it if f says so; where another has
// written meanwhile, all over again, until ctx ends.
func (b *Budget) change(ctx context.Context, name string, f func(*v1alpha1.RemediationPolicy) bool) error {
	for pause := firstPause; ; pause = min(2*pause, maxPause) {
		obj, err := b.get(ctx, name)
		if err != nil {
			return err
		}
		if !f(obj) {
			return nil
		}
		// An error other than a conflict leaves open whether it was written.
		if err := b.Writer.Update(ctx, obj); !apierrors.IsConflict(err) {
			return err
		}
		select {
		case <-time.After(rand.N(pause)):
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}
