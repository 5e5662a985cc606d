package node

import (
	"context"

	"github.com/kernosis/kernosis/diagnose/operation"
)

// RuntimeHealth reports how the node's container runtime is. That it doesn't answer is an
// answer, too.
func RuntimeHealth(h operation.Host) operation.Builtin {
	return operation.Builtin{
		Name: "runtime-health", Doc: "Asks the container runtime for its version and status, and how long that takes.",
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
