package action

import (
	"context"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/kernosis/kernosis/diagnose/policy"
)

func (a *Actions) checkTaint(ctx context.Context, c *Call) error {
	t := taintOf(c)
	if err := checkKey("key", t.Key); err != nil {
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
