package node

import (
	"context"

	"github.com/kernosis/kernosis/diagnose/operation"
)

// RuntimeHealth reports the status of the node's container runtime. It succeeds even if the runtime
// doesn't answer.
func RuntimeHealth(h operation.Host) operation.Builtin {
	return operation.Builtin{
		Name: "runtime-health", Doc: "Queries version and status of the container runtime, and measures the latency.",
		Effect: operation.Collect, Parameters: runtimeParameters(), Results: runtimeResults(),
		Run: func(ctx context.Context, call *operation.Call) (operation.Output, error) {
			r, err := askRuntime(ctx, h, call)
			if err != nil {
				return operation.Output{}, err
			}
			return operation.Output{Results: r.results()}, nil
		},
	}
}
