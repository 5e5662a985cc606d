package action

import (
	"context"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/kernosis/kernosis/diagnose/api/v1alpha1"
)

// What may be set of Kubernetes' domains: both keep a sick node from being counted on,
// and change nothing on it.
const (
	allowedLabel      = "node.kubernetes.io/exclude-from-external-load-balancers"
	allowedAnnotation = "cluster-autoscaler.kubernetes.io/scale-down-disabled"
)

func (a *Actions) checkLabel(ctx context.Context, c *Call) error {
	if err := settable(c.Values["key"], allowedLabel); err != nil {
		return err
	}
	if wrong := validation.IsValidLabelValue(c.Values["value"]); len(wrong) > 0 {
		return refuse("value: %s", strings.Join(wrong, "; "))
	}
	_, err := a.get(ctx, c)
	return err
}

func (a *Actions) label(ctx context.Context, c *Call) (Progress, error) {
	return a.set(ctx, c, "label", func(n *corev1.Node) map[string]string { return n.Labels }, metav1.SetMetaDataLabel)
}

func (a *Actions) checkAnnotation(ctx context.Context, c *Call) error {
	if err := settable(c.Values["key"], allowedAnnotation); err != nil {
		return err
	}
	_, err := a.get(ctx, c)
	return err
}

func (a *Actions) annotate(ctx context.Context, c *Call) (Progress, error) {
	return a.set(ctx, c, "annotation", func(n *corev1.Node) map[string]string { return n.Annotations }, metav1.SetMetaDataAnnotation)
}

// set sets a label or annotation. One that may have been set before this pass and is not
// so now is not set again: another program may have seen it, done what it asks for, a
// reboot perhaps, and taken it away.
func (a *Actions) set(ctx context.Context, c *Call, what string, values func(*corev1.Node) map[string]string, put func(*metav1.ObjectMeta, string, string)) (Progress, error) {
	key, value := c.Values["key"], c.Values["value"]
	changed, lost := false, false
	n, err := a.change(ctx, c, func(n *corev1.Node) (bool, error) {
		if have, ok := values(n)[key]; ok && have == value {
			return false, nil
		}
		if lost = c.Before != nil; lost {
			return false, nil
		}
		put(&n.ObjectMeta, key, value)
		changed = true
		return true, nil
	})
	switch {
	case err != nil:
		return Progress{}, err
	case lost:
		return Progress{State: v1alpha1.ResultUnknown, Message: "the controller ended while the " + what + " " + key + " was being set, and it is not set now; it may have been seen and taken away, and is not set again"}, nil
	case changed || c.Before != nil:
		return made(true, "node %s has the %s %s=%s", n.Name, what, key, value), nil
	default:
		return made(false, "node %s had the %s %s=%s already", n.Name, what, key, value), nil
	}
}
