package operation

import "context"

// RuntimeHealth tells how the node's container runtime is. That it doesn't answer is an
// answer, too.
func RuntimeHealth(h Host) Builtin {
	return Builtin{
		Name: "runtime-health", Doc: "Asks the container runtime for its version and status, and how long that takes.",
		Effect: Collect, Parameters: runtimeParameters(), Results: runtimeResults(),
		Run: func(ctx context.Context, call *Call) (Output, error) {
			r, err := askRuntime(ctx, h, call)
			if err != nil {
				return Output{}, err
			}
			return Output{Results: r.results()}, nil
		},
	}
}
