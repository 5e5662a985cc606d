package node

import (
	"context"

	"github.com/kernosis/kernosis/diagnose/operation"
)

func SystemdUnit(h operation.Host) operation.Builtin {
	return operation.Builtin{
		Name: "systemd-unit", Doc: "Reports the state of a systemd unit: since when, last result, restarts, main process, memory.",
		Effect: operation.Collect, Parameters: []operation.Parameter{unitParameter()}, Results: unitResults(),
		Run: func(ctx context.Context, call *operation.Call) (operation.Output, error) {
			u, err := unitOf(ctx, h, call)
			if err != nil {
				return operation.Output{}, err
			}
			return operation.Output{Results: u.results()}, nil
		},
	}
}
