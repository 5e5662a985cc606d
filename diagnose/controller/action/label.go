package action

import (
	"context"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/kernosis/kernosis/diagnose/policy"
)

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
