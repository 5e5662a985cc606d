package node

import (
	"context"
	"fmt"
	"time"

	"github.com/kernosis/kernosis/diagnose/operation"
)

func CheckRuntimeUnhealthy(h operation.Host) operation.Builtin {
	return operation.Builtin{
		Name: "check-runtime-unhealthy", Doc: "Checks whether the container runtime is unreachable, not ready or slow. Verdict RuntimeUnreachable, RuntimeSilent, RuntimeNotReady, " +
			"RuntimeNetworkNotReady, or RuntimeSlow if a call takes longer than maxLatency.",
		Effect: operation.Check,
		Parameters: append(runtimeParameters(), operation.Parameter{
			Name: "maxLatency", Kind: operation.Duration, Default: "2s", Min: int64(time.Millisecond), Doc: "a slower call counts as slow",
		}),
		Results: runtimeResults(),
		Run: func(ctx context.Context, call *operation.Call) (operation.Output, error) {
			r, err := askRuntime(ctx, h, call)
			if err != nil {
				return operation.Output{}, err
			}
			if v := r.verdict(call.Parameters.Duration("maxLatency")); v != nil {
				return operation.Output{Results: r.results(), Verdict: v}, nil
			}
			return operation.Output{}, &operation.Refuted{Reason: "RuntimeHealthy", Message: fmt.Sprintf("%s %s at %s is ready and answers in %s", r.Name, r.Version, r.socket, r.Latency.Round(10*time.Microsecond))}
		},
	}
}
