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

func (a *Actions) label(ctx context.Context, c *Call) (Progress, error) {
	return a.set(ctx, c, policy.Act{Label: valueOf(c)})
}

func (a *Actions) unlabel(ctx context.Context, c *Call) (Progress, error) {
	key := c.Values["key"]
	return a.takeBack(ctx, c, func(act policy.Act) bool { return act.Label != nil && act.Label.Key == key }, "label "+key)
}

func (a *Actions) checkAnnotation(ctx context.Context, c *Call) error {
	if err := settable(c.Values["key"], policy.SettableAnnotation, policy.AllowedAnnotation); err != nil {
		return err
	}
	return a.checkNode(ctx, c)
}

func (a *Actions) annotate(ctx context.Context, c *Call) (Progress, error) {
	return a.set(ctx, c, policy.Act{Annotation: valueOf(c)})
}

func (a *Actions) unannotate(ctx context.Context, c *Call) (Progress, error) {
	key := c.Values["key"]
	return a.takeBack(ctx, c, func(act policy.Act) bool { return act.Annotation != nil && act.Annotation.Key == key }, "annotation "+key)
}

func valueOf(c *Call) *policy.Value {
	return &policy.Value{Key: c.Values["key"], Value: c.Values["value"]}
}

// set sets a label or annotation.
func (a *Actions) set(ctx context.Context, c *Call, do policy.Act) (Progress, error) {
	return a.perform(ctx, c, do, "has the "+do.String(), "had the "+do.String()+" already")
}
