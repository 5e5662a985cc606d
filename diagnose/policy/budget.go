package policy

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
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

// maxRepairs and maxCooldowns are the limits of the schema for a policy's entries. With the longest
// names of nodes and operations, and some two hundred escalations under way at once, its object
// stays below etcd's limit of 1.5 MiB.
const (
	maxRepairs   = 512
	maxCooldowns = 3584
)

// Budget manages the slots of policies. It has no state: any number of Budgets, in any number of
// processes, may work on the same policies at once.
//
// A slot is held for a Diagnosis by one holder, a controller. If two controllers both believe that
// they lead, the second takes the slot over before it repairs or releases it. After that, the first
// can only complete what it began after its last [Budget.Verify].
type Budget struct {
	// Reader must read from the API server: a cache costs conflicts, and a lagging one many.
	Reader client.Reader
	Writer client.SubResourceWriter // for the status
	Holder string                   // the name of this process
	Now    func() time.Time
	// TakenOver is called when a slot is taken over from another holder.
	TakenOver func(diagnosis types.UID)
}

// Acquire takes a slot of each policy that selects the node, and returns Run once it has them all;
// otherwise it takes none. It applies the rules of [Decide] to the objects that it overwrites.
// names must have all policies, in order; Acquire skips deleted ones.
//
// A diagnosis that already holds its slots gets them again, even from another holder. So Acquire
// can be repeated after an unknown result, and called for the diagnosis' next repair. After an
// error there is no decision and slots may be held: call Acquire again or, if the diagnosis has
// repaired nothing yet, Release with Remove. If several policies refuse, Acquire reports the first
// by name: call [Decide] before.
func (b *Budget) Acquire(ctx context.Context, names []string, c *Cluster, w *Want) (Decision, error) {
	now := b.Now()
	d := decideWithoutPolicy(c, w, now)
	if d.Verb != "" {
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
			if had := slotOf(obj, w.Node, w.Diagnosis); had != nil {
				held, other = true, had.Holder != b.Holder
				if !other && had.Operation == w.Operation {
					return false // it already has the slot
				}
			}
			take(obj, w, b.Holder, b.Now())
			return true
		})
		if other {
			b.TakenOver(w.Diagnosis)
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

// Held returns the policies of which a diagnosis holds the slot of a node for an operation ("":
// any), by this holder and by others.
func (b *Budget) Held(ctx context.Context, names []string, node string, diagnosis types.UID, operation string) (ours, others []string, err error) {
	for _, name := range names {
		obj, err := b.get(ctx, name)
		if apierrors.IsNotFound(err) {
			continue
		}
		if err != nil {
			return nil, nil, fmt.Errorf("slot of policy %s: %w", name, err)
		}
		switch r := slotOf(obj, node, diagnosis); {
		case r == nil || operation != "" && r.Operation != operation:
		case r.Holder == b.Holder:
			ours = append(ours, name)
		default:
			others = append(others, name)
		}
	}
	return ours, others, nil
}

// Claim takes over the slots of a node that a diagnosis holds through other holders.
func (b *Budget) Claim(ctx context.Context, names []string, node string, diagnosis types.UID) error {
	for _, name := range names {
		other := false
		err := b.change(ctx, name, func(obj *v1alpha1.RemediationPolicy) bool {
			r := slotOf(obj, node, diagnosis)
			if other = r != nil && r.Holder != b.Holder; other {
				r.Holder = b.Holder
			}
			return other
		})
		if other {
			b.TakenOver(diagnosis)
		}
		if client.IgnoreNotFound(err) != nil {
			return fmt.Errorf("take over the slot of policy %s: %w", name, err)
		}
	}
	return nil
}

// Verify reads, just before a repair, whether the diagnosis holds its slot of each named policy
// that selects the node. If not, it returns [ErrNotHeld], or [ErrTakenOver] if the slot has another
// holder.
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

// Release releases the slots that a diagnosis holds for a node. s is End after the repair was
// verified or given up, as [Settle] decides, and Remove if it was never begun. Slots of another
// holder stay: call [Budget.Claim] before. Release may be repeated.
func (b *Budget) Release(ctx context.Context, names []string, node string, diagnosis types.UID, s Settlement) error {
	var errs []error
	for _, name := range names {
		err := b.change(ctx, name, func(obj *v1alpha1.RemediationPolicy) bool {
			r := slotOf(obj, node, diagnosis)
			return r != nil && r.Holder == b.Holder && give(obj, node, diagnosis, s, b.Now())
		})
		if client.IgnoreNotFound(err) != nil {
			errs = append(errs, fmt.Errorf("release the slot of policy %s: %w", name, err))
		}
	}
	return errors.Join(errs...)
}

// Sweep settles the held slots of a policy, with the facts that look returns for each, and drops
// entries whose cooldown is over. Call it at the controller's start and periodically. look must
// read objects that are missing in the cache from the API server. Sweep returns the released slots.
func (b *Budget) Sweep(ctx context.Context, name string, look func(*v1alpha1.Repair) Facts) ([]v1alpha1.Repair, error) {
	var given []v1alpha1.Repair
	err := b.change(ctx, name, func(obj *v1alpha1.RemediationPolicy) bool {
		given = nil
		p := New(obj)
		for _, r := range slices.Clone(obj.Status.Repairs) {
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

// Pauses between write attempts. Each is random up to its bound. The bounds suffice for a write to
// succeed eventually even if all of a large cluster's repairs contend.
const (
	firstPause = 10 * time.Millisecond
	maxPause   = time.Second
)

// get reads a policy from the API server. The caller may change it.
func (b *Budget) get(ctx context.Context, name string) (*v1alpha1.RemediationPolicy, error) {
	p := &v1alpha1.RemediationPolicy{}
	return p, b.Reader.Get(ctx, client.ObjectKey{Name: name}, p)
}

// change reads a policy, lets f change it, and writes it if f returns true. After a conflict it
// starts over, until ctx ends.
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
