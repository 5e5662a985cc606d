package action

import (
	"context"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kernosis/kernosis/diagnose/api/v1alpha1"
	"github.com/kernosis/kernosis/diagnose/operation/node"
	"github.com/kernosis/kernosis/diagnose/policy"
	"github.com/kernosis/kernosis/reporter/kube/lease"
)

// get returns the Diagnosis' node as it is now.
func (a *Actions) get(ctx context.Context, c *Call) (*corev1.Node, error) {
	n, err := a.c.Client.CoreV1().Nodes().Get(ctx, c.node(), metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return nil, refuse("there is no node %s", c.node())
	case err != nil:
		return nil, fmt.Errorf("node %s: %w", c.node(), err)
	case c.newer(n):
		return nil, refuse("node %s was recreated after the Diagnosis", n.Name)
	}
	return n, nil
}

func (a *Actions) checkNode(ctx context.Context, c *Call) error {
	n, err := a.get(ctx, c)
	if err != nil {
		return err
	}
	return marks(n)
}

// marks refuses a node with unreadable marks: it would be unknown whose its cordon is.
func marks(n *corev1.Node) error {
	if _, _, err := policy.Acts(n); err != nil {
		return refuse("%s", err)
	}
	return nil
}

// Pauses between tries to write a node.
const (
	firstPause = 10 * time.Millisecond
	maxPause   = time.Second
)

// change reads the node, lets f change it, and patches it with the resourceVersion that was read.
// After a conflict, or an error that leaves open whether the write succeeded, it starts over: if
// the earlier write arrives late, its resourceVersion is stale and it is rejected. unsure reports
// that an earlier write may have succeeded.
func (a *Actions) change(ctx context.Context, c *Call, f func(n *corev1.Node, unsure bool) (bool, error)) (*corev1.Node, error) {
	unsure, version := false, "" // resourceVersion of a write with unknown outcome
	for pause := firstPause; ; pause = min(2*pause, maxPause) {
		n, err := a.get(ctx, c)
		if err != nil {
			return nil, err
		}
		before := n.DeepCopy()
		unsure = unsure || version != "" && version != n.ResourceVersion
		if changed, err := f(n, unsure); err != nil || !changed {
			return n, err
		}
		if c.Still != nil {
			if err := c.Still(ctx); err != nil {
				return nil, err
			}
		}
		err = a.write(ctx, before, n)
		if err == nil {
			return n, nil
		}
		if definite(err) {
			return nil, refuse("node %s: %s", n.Name, err)
		}
		if !apierrors.IsConflict(err) {
			version = before.ResourceVersion
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return nil, fmt.Errorf("node %s: %w", n.Name, err)
		}
	}
}

func (a *Actions) write(ctx context.Context, before, after *corev1.Node) error {
	body, err := client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{}).Data(after)
	if err != nil {
		return err
	}
	_, err = a.c.Client.CoreV1().Nodes().Patch(ctx, after.Name, types.MergePatchType, body, metav1.PatchOptions{FieldManager: lease.Controller})
	return err
}

// definite reports whether an error is a final rejection by the API server, so that retrying is
// useless.
func definite(err error) bool {
	return apierrors.IsForbidden(err) || apierrors.IsInvalid(err) || apierrors.IsBadRequest(err) || apierrors.IsNotFound(err) ||
		apierrors.IsMethodNotSupported(err) || apierrors.IsRequestEntityTooLargeError(err)
}

// perform makes a change that can be undone, and returns the outcome. A label or annotation that
// may have been set in an earlier pass and is missing now is not set again: another program may
// have seen it, acted on it, perhaps rebooted, and removed it.
func (a *Actions) perform(ctx context.Context, c *Call, do policy.Act, done, already string) (Progress, error) {
	do.Diagnosis = c.Diagnosis.UID
	changed, marked, lost := false, false, false
	n, err := a.change(ctx, c, func(n *corev1.Node, unsure bool) (bool, error) {
		was := do.InForce(n)
		if lost = (unsure || c.Before != nil) && !was && do.Value != nil; lost {
			return false, nil
		}
		write, err := policy.Do(n, do)
		if err != nil {
			return false, refuse("%s", err)
		}
		acts, _, err := policy.Acts(n)
		if err != nil {
			return false, refuse("%s", err)
		}
		marked = slices.ContainsFunc(acts, func(have policy.Act) bool { return have.Diagnosis == do.Diagnosis && have.String() == do.String() })
		changed = changed || !was
		return write, nil
	})
	switch {
	case err != nil:
		return Progress{}, err
	case lost:
		return Progress{State: v1alpha1.ResultUnknown, Message: "the " + do.String() + " is not set now, and it is unknown whether the write that was to set it succeeded; somebody may have removed it, so it is not set again"}, nil
	case !marked:
		return succeeded(false, "node %s %s, by somebody else; left unchanged", n.Name, already), nil
	default:
		return succeeded(changed || c.Before != nil, "node %s %s", n.Name, done), nil
	}
}

// takeBack undoes those of our acts that which selects.
func (a *Actions) takeBack(ctx context.Context, c *Call, which func(policy.Act) bool, what string) (Progress, error) {
	mine := func(act policy.Act) bool {
		return which(act) && (c.Values["of"] == node.OwnersAll || act.Diagnosis == c.Diagnosis.UID)
	}
	var undone []policy.Act
	others := false
	n, err := a.change(ctx, c, func(n *corev1.Node, _ bool) (bool, error) {
		did, changed, err := policy.UndoEach(n, mine)
		if err != nil {
			return false, refuse("%s", err)
		}
		undone = append(undone, did...)
		acts, _, err := policy.Acts(n)
		others = slices.ContainsFunc(acts, which)
		return changed, err
	})
	switch {
	case err != nil:
		return Progress{}, err
	case len(undone) > 0 || c.Before != nil:
		return succeeded(true, "node %s: %s reverted", n.Name, what), nil
	case others:
		return succeeded(false, "node %s: the %s stays: another Diagnosis requested it", n.Name, what), nil
	default:
		return succeeded(false, "node %s has no %s of Kernosis to revert", n.Name, what), nil
	}
}

// succeeded returns the final progress of a change to the node.
func succeeded(changed bool, format string, args ...any) Progress {
	p := Progress{State: v1alpha1.ResultSucceeded, Message: fmt.Sprintf(format, args...), Values: map[string]string{"changed": "false"}}
	if changed {
		p.Values["changed"] = "true"
	}
	return p
}
