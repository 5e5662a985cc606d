package node

import (
	"context"

	"github.com/kernosis/kernosis/diagnose/operation"
)

func CheckUnitFailed(h operation.Host) operation.Builtin {
	return operation.Builtin{
		Name: "check-unit-failed", Doc: "Checks whether a systemd unit failed. Verdict UnitFailed: it failed, can't be loaded, or waits for its restart.",
		Effect: operation.Check, Parameters: []operation.Parameter{unitParameter()}, Results: unitResults(),
		Run: func(ctx context.Context, call *operation.Call) (operation.Output, error) {
			u, err := unitOf(ctx, h, call)
			if err != nil {
				return operation.Output{}, err
			}
			if !u.failed() {
				return operation.Output{}, &operation.Refuted{Reason: "UnitNotFailed", Message: u.String()}
			}
			return operation.Output{Results: u.results(), Verdict: &operation.Verdict{Reason: "UnitFailed", Message: u.String()}}, nil
		},
	}
}
