package install

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kernosis/kernosis/diagnose/policy"
	"github.com/kernosis/kernosis/reporter/kube/lease"
)

// leaseOf holds the relevant fields of an agent's Lease.
type leaseOf struct {
	name  string
	uid   types.UID
	node  string // empty if it belongs to none
	types []string
	// renewed is when the agent last renewed the Lease, in whole seconds, like the API server's
	// times of writes.
	renewed time.Time
}

// leases returns the Leases of agents.
func (u *uninstall) leases(ctx context.Context) (out []leaseOf, err error) {
	err = pages(ctx, func(ctx context.Context, o metav1.ListOptions) (string, error) {
		o.LabelSelector = lease.LabelComponent + "=" + lease.ComponentAgent
		page, err := u.client.CoordinationV1().Leases(u.Namespace).List(ctx, o)
		if err != nil {
			return "", fmt.Errorf("leases: %w", err)
		}
		for i := range page.Items {
			out = append(out, leaseFrom(&page.Items[i]))
		}
		return page.Continue, nil
	})
	return out, err
}

func leaseFrom(l *coordinationv1.Lease) leaseOf {
	out := leaseOf{name: l.Name, uid: l.UID}
	if node, ok := lease.NodeOf(l); ok {
		out.node, out.types = node, lease.TypesOf(l)
		if l.Spec.RenewTime != nil {
			out.renewed = l.Spec.RenewTime.Truncate(time.Second)
		}
	}
	return out
}

// task is what to remove from one Node.
type task struct {
	name  string
	types []string // conditions
	acts  bool     // it has annotations of what repairs have done
	lease *leaseOf // deleted when the rest is done; may be nil
}

// look returns the tasks and the names of all Nodes.
func (u *uninstall) look(ctx context.Context, known []leaseOf) (todo []task, nodes map[string]bool, err error) {
	of := make(map[string]*leaseOf, len(known))
	for i := range known {
		of[known[i].node] = &known[i]
	}
	nodes, foreign := map[string]bool{}, map[string]int{}
	err = u.eachNode(ctx, func(n *corev1.Node) {
		nodes[n.Name] = true
		t := task{name: n.Name, lease: of[n.Name]}
		var others []string
		t.types, others = leftover(n, t.lease)
		for _, who := range others {
			foreign[who]++
		}
		_, t.acts = n.Annotations[policy.AnnotationActs]
		if len(t.types) > 0 || t.acts || t.lease != nil {
			todo = append(todo, t)
		}
	})
	for who, n := range foreign {
		u.foreign[who] = max(u.foreign[who], n) // keep the count of the pass in which the Leases still existed
	}
	return todo, nodes, err
}

// eachNode calls do for each Node.
func (u *uninstall) eachNode(ctx context.Context, do func(*corev1.Node)) error {
	return pages(ctx, func(ctx context.Context, o metav1.ListOptions) (string, error) {
		page, err := u.client.CoreV1().Nodes().List(ctx, o)
		if err != nil {
			return "", fmt.Errorf("nodes: %w", err)
		}
		for i := range page.Items {
			do(&page.Items[i])
		}
		return page.Continue, nil
	})
}

// writeAll does all tasks and deletes the Leases of unknown Nodes. The error names each Node that
// could not be written.
func (u *uninstall) writeAll(ctx context.Context, todo []task, strays []leaseOf) error {
	errs := make([]error, len(strays)+len(todo))
	var g errgroup.Group
	g.SetLimit(workers)
	for i := range strays {
		g.Go(func() error {
			errs[i] = u.deleteLease(ctx, &strays[i])
			return nil
		})
	}
	for i := range todo {
		g.Go(func() error {
			errs[len(strays)+i] = u.write(ctx, &todo[i])
			return nil
		})
	}
	_ = g.Wait() // the errors are in errs
	return errors.Join(errs...)
}

// write removes everything from one Node, and then deletes its Lease.
func (u *uninstall) write(ctx context.Context, t *task) error {
	if len(t.types) > 0 {
		if err := u.removeConditions(ctx, t); err != nil {
			return fmt.Errorf("node %s: conditions %s: %w", t.name, strings.Join(t.types, ", "), err)
		}
	}
	if t.acts {
		if err := u.takeBack(ctx, t); err != nil {
			return fmt.Errorf("node %s: undo repairs: %w", t.name, err)
		}
	}
	if t.lease == nil {
		return nil
	}
	return u.deleteLease(ctx, t.lease)
}

// removeConditions removes the task's conditions. The patch names only their types: the others are
// kubelet's.
func (u *uninstall) removeConditions(ctx context.Context, t *task) error {
	type removal struct {
		Patch string `json:"$patch"`
		Type  string `json:"type"`
	}
	list := make([]removal, len(t.types))
	for i, name := range t.types {
		list[i] = removal{"delete", name}
	}
	body, err := json.Marshal(map[string]any{"status": map[string]any{"conditions": list}})
	if err != nil {
		return err
	}
	err = retry(ctx, func(ctx context.Context) error {
		_, err := u.client.CoreV1().Nodes().Patch(ctx, t.name, types.StrategicMergePatchType, body, metav1.PatchOptions{FieldManager: uninstaller}, "status")
		return client.IgnoreNotFound(err)
	})
	if err != nil {
		return err
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	u.nodes[t.name] = true
	for _, name := range t.types {
		u.removed[name] = true
	}
	return nil
}

var errUnknownRepair = fmt.Errorf("annotation %s lists a repair that this version does not know: undo it by hand and remove the annotation, or use the version that made it", policy.AnnotationActs)

// takeBack undoes changes of repairs that are still in force. If this version does not know the kind
// of a repair, takeBack undoes all others and returns an error.
func (u *uninstall) takeBack(ctx context.Context, t *task) error {
	var undone []policy.Act
	err := retry(ctx, func(ctx context.Context) error {
		n, err := u.client.CoreV1().Nodes().Get(ctx, t.name, metav1.GetOptions{})
		if err != nil {
			return client.IgnoreNotFound(err)
		}
		before := n.DeepCopy()
		did, changed, err := policy.Undo(n, func(policy.Act) bool { return true })
		if err != nil {
			return &permanentError{err} // only a person can fix it
		}
		if changed {
			body, err := client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{}).Data(n)
			if err != nil {
				return err
			}
			// Conditional on the version read: somebody may write the Node meanwhile.
			if _, err = u.client.CoreV1().Nodes().Patch(ctx, t.name, types.MergePatchType, body, metav1.PatchOptions{FieldManager: uninstaller}); err != nil {
				return client.IgnoreNotFound(err)
			}
			undone = append(undone, did...)
		}
		if _, left := n.Annotations[policy.AnnotationActs]; left {
			return &permanentError{errUnknownRepair}
		}
		return nil
	})
	for _, act := range undone {
		u.Say(fmt.Sprintf("node %s: %s is undone", t.name, act))
	}
	return err
}

func (u *uninstall) deleteLease(ctx context.Context, l *leaseOf) error {
	o := metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &l.uid}}
	err := retry(ctx, func(ctx context.Context) error {
		err := client.IgnoreNotFound(u.client.CoordinationV1().Leases(u.Namespace).Delete(ctx, l.name, o))
		if apierrors.IsConflict(err) {
			return nil // a new object of the same name: the next pass handles it
		}
		return err
	})
	if err != nil {
		return fmt.Errorf("lease %s: %w", l.name, err)
	}
	return nil
}
