package action

import (
	"context"

	"github.com/kernosis/kernosis/diagnose/policy"
)

func (a *Actions) cordon(ctx context.Context, c *Call) (Progress, error) {
	return a.perform(ctx, c, policy.Act{}, "is cordoned", "was already cordoned")
}

func (a *Actions) uncordon(ctx context.Context, c *Call) (Progress, error) {
	return a.takeBack(ctx, c, policy.Act.Cordons, "cordon")
}
