package operation

import (
	"context"
	"fmt"

	"google.golang.org/grpc/status"

	"github.com/kernosis/kernosis/collector/event"
)

// RuntimeHealth tells how the node's container runtime is.
func RuntimeHealth(h Host) Builtin {
	return Builtin{
		Name: "runtime-health", Doc: "Asks the container runtime for its version and status, and how long that takes.",
		Effect: Collect, Parameters: runtimeParameters(), Results: runtimeResults(),
		Run: func(ctx context.Context, call *Call) (Output, error) {
			r, err := askRuntime(ctx, h, call)
			if err != nil {
				return Output{}, err
			}
			if r.unreachable != nil && !r.silent {
				// What is asked for by the next operation is not there at all.
				return Output{}, fmt.Errorf("container runtime at %s: %s", r.socket, event.SafeText(status.Convert(r.unreachable).Message(), 512))
			}
			return Output{Results: r.results()}, nil
		},
	}
}
