package operation

import (
	"context"
	"fmt"
	"time"
)

// CheckRuntimeUnhealthy succeeds if the container runtime doesn't answer, or says that
// it isn't ready.
func CheckRuntimeUnhealthy(h Host) Builtin {
	return Builtin{
		Name: "check-runtime-unhealthy", Doc: "Succeeds if the container runtime can't be reached, doesn't answer, isn't ready, has no network, or is slow, with verdict RuntimeUnreachable, RuntimeSilent, RuntimeNotReady, RuntimeNetworkNotReady or RuntimeSlow.",
		Effect: Check,
		Parameters: append(runtimeParameters(), Parameter{
			Name: "maxLatency", Kind: Duration, Default: "2s", Min: int64(time.Millisecond), Doc: "a call that takes longer is slow",
		}),
		Results: runtimeResults(),
		Run: func(ctx context.Context, call *Call) (Output, error) {
			r, err := askRuntime(ctx, h, call)
			if err != nil {
				return Output{}, err
			}
			if v := r.verdict(call.Parameters.Duration("maxLatency")); v != nil {
				return Output{Results: r.results(), Verdict: v}, nil
			}
			return Output{}, &Refuted{"RuntimeHealthy", fmt.Sprintf("%s %s at %s is ready and answers in %s", r.Name, r.Version, r.socket, r.Latency.Round(10*time.Microsecond))}
		},
	}
}
