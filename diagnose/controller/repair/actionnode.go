package repair

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kernosis/kernosis/diagnose/api/v1alpha1"
	"github.com/kernosis/kernosis/diagnose/operation/node"
	"github.com/kernosis/kernosis/diagnose/policy"
	"github.com/kernosis/kernosis/reporter/kube/lease"
)

// get returns the Diagnosis' node as it is now.
func (a *Actions) get(ctx context.Context, c *Call) (*corev1.Node, error) {
	n, err := a.api.CoreV1().Nodes().Get(ctx, c.node(), metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return nil, refuse("there is no node %s", c.node())
	case err != nil:
		return nil, fmt.Errorf("node %s: %w", c.node(), err)
	case n.CreationTimestamp.After(c.Diagnosis.CreationTimestamp.Time): // the API keeps whole seconds
		return nil, refuse("node %s was recreated after the Diagnosis", n.Name)
	}
	return n, nil
}

// checkNode also refuses a node with unreadable marks, because the owner of its cordon would be
// unknown.
func (a *Actions) checkNode(ctx context.Context, c *Call) error {
	n, err := a.get(ctx, c)
	if err != nil {
		return err
	}
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
	_, err = a.api.CoreV1().Nodes().Patch(ctx, after.Name, types.MergePatchType, body, metav1.PatchOptions{FieldManager: lease.Controller})
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

// takeBack undoes the acts of Kernosis that which selects.
func (a *Actions) takeBack(ctx context.Context, c *Call, which func(policy.Act) bool, what string) (Progress, error) {
	mine := func(act policy.Act) bool {
		return which(act) && (c.Values["of"] == node.OwnersAll || act.Diagnosis == c.Diagnosis.UID)
	}
	var undone []policy.Act
	others := false
	n, err := a.change(ctx, c, func(n *corev1.Node, _ bool) (bool, error) {
		did, changed, err := policy.Undo(n, mine)
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

func (a *Actions) cordon(ctx context.Context, c *Call) (Progress, error) {
	return a.perform(ctx, c, policy.Act{}, "is cordoned", "was already cordoned")
}

func (a *Actions) uncordon(ctx context.Context, c *Call) (Progress, error) {
	return a.takeBack(ctx, c, policy.Act.Cordons, "cordon")
}

func (a *Actions) checkTaint(ctx context.Context, c *Call) error {
	t := taintOf(c)
	if err := checkKey(t.Key); err != nil {
		return err
	}
	if policy.Reserved(t.Key) {
		return refuse("key %s is in a domain reserved by Kubernetes", t.Key)
	}
	if wrong := validation.IsValidLabelValue(t.Value); len(wrong) > 0 {
		return refuse("value: %s", strings.Join(wrong, "; "))
	}
	return a.checkNode(ctx, c)
}

func taintOf(c *Call) *corev1.Taint {
	return &corev1.Taint{Key: c.Values["key"], Value: c.Values["value"], Effect: corev1.TaintEffect(c.Values["effect"])}
}

func (a *Actions) taint(ctx context.Context, c *Call) (Progress, error) {
	t := taintOf(c)
	return a.perform(ctx, c, policy.Act{Taint: t}, "has the taint "+t.ToString(), "already had the taint "+t.ToString())
}

func (a *Actions) untaint(ctx context.Context, c *Call) (Progress, error) {
	t := taintOf(c)
	return a.takeBack(ctx, c, func(act policy.Act) bool { return act.Taint != nil && act.Taint.MatchTaint(t) }, fmt.Sprintf("taint %s:%s", t.Key, t.Effect))
}

func (a *Actions) checkLabel(ctx context.Context, c *Call) error {
	if err := settable(c.Values["key"], policy.SettableLabel, policy.AllowedLabel); err != nil {
		return err
	}
	if wrong := validation.IsValidLabelValue(c.Values["value"]); len(wrong) > 0 {
		return refuse("value: %s", strings.Join(wrong, "; "))
	}
	return a.checkNode(ctx, c)
}

func (a *Actions) checkAnnotation(ctx context.Context, c *Call) error {
	if err := settable(c.Values["key"], policy.SettableAnnotation, policy.AllowedAnnotation); err != nil {
		return err
	}
	return a.checkNode(ctx, c)
}

// set sets a label or annotation.
func set(kind string) func(*Actions, context.Context, *Call) (Progress, error) {
	return func(a *Actions, ctx context.Context, c *Call) (Progress, error) {
		do := policy.Act{Kind: kind, Value: &policy.Value{Key: c.Values["key"], Value: c.Values["value"]}}
		return a.perform(ctx, c, do, "has the "+do.String(), "already had the "+do.String())
	}
}

// unset removes a label or annotation that Kernosis has set.
func unset(kind string) func(*Actions, context.Context, *Call) (Progress, error) {
	return func(a *Actions, ctx context.Context, c *Call) (Progress, error) {
		key := c.Values["key"]
		return a.takeBack(ctx, c, func(act policy.Act) bool { return act.Kind == kind && act.Value.Key == key }, kind+" "+key)
	}
}

func checkKey(key string) error {
	if wrong := validation.IsQualifiedName(key); len(wrong) > 0 {
		return refuse("key %.80q: %s", key, strings.Join(wrong, "; "))
	}
	return nil
}

// settable refuses a key of a label or annotation that may not be set.
func settable(key string, may func(string) bool, allowed string) error {
	if err := checkKey(key); err != nil {
		return err
	}
	if !may(key) {
		return refuse("key %s is in a domain of Kubernetes or Kernosis; %s may be set", key, allowed)
	}
	return nil
}
