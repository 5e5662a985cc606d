package node

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"path"
	"strconv"
	"strings"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	criapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kernosis/kernosis/collector/cri"
	"github.com/kernosis/kernosis/collector/display"
	"github.com/kernosis/kernosis/diagnose/operation"
)

// RuntimeHealth reports the status of the node's container runtime. It succeeds even if the runtime
// doesn't answer.
func RuntimeHealth(h operation.Host) operation.Builtin {
	return operation.Builtin{
		Name: "runtime-health", Doc: "Queries version and status of the container runtime, and measures the latency.",
		Effect: operation.Collect, Parameters: runtimeParameters(), Results: runtimeResults(),
		Run: func(ctx context.Context, call *operation.Call) (operation.Output, error) {
			r, err := host(h).askRuntime(ctx, call)
			if err != nil {
				return operation.Output{}, err
			}
			return operation.Output{Results: r.results()}, nil
		},
	}
}

// runtimeHealth is the status of a container runtime.
type runtimeHealth struct {
	cri.Health
	socket string
	// unreachable says why there is no answer; silent is set if the request timed out.
	unreachable error
	silent      bool
}

// askRuntime queries version and status. If the runtime does not answer, that is a result; the
// error means that there is no runtime to query.
func (h host) askRuntime(ctx context.Context, call *operation.Call) (r runtimeHealth, err error) {
	given := call.Parameters["socket"]
	if given != "" && !path.IsAbs(given) {
		return r, fmt.Errorf("socket %s: want an absolute path", operation.Quoted(given))
	}
	within, cancel := context.WithTimeout(ctx, call.Parameters.Duration("timeout"))
	defer cancel()
	ask := func(socket cri.Socket) (err error) {
		r.socket = socket.Name
		r.Health, err = cri.Ask(within, socket)
		return err
	}
	if given != "" {
		err = ask(cri.At(h.FS, given))
	} else {
		err = cri.Find(within, h.FS, ask)
	}
	if errors.Is(err, cri.ErrNotFound) {
		return r, fmt.Errorf("%w: none of %s is a socket", err, strings.Join(cri.Sockets(), ", "))
	}
	if status.Code(err) == codes.DeadlineExceeded {
		<-within.Done() // the runtime knows the deadline, and may report it a moment early
	}
	if ctx.Err() != nil {
		return r, fmt.Errorf("container runtime at %s: %w", r.socket, ctx.Err())
	}
	if err != nil {
		if s := status.Convert(err); s.Code() == codes.Unimplemented {
			return r, fmt.Errorf("container runtime at %s does not support CRI v1: %s", r.socket, operation.Quoted(s.Message()))
		}
		r.unreachable, r.silent = err, within.Err() != nil
	}
	return r, nil
}

// condition returns a condition that the runtime has reported.
func (r *runtimeHealth) condition(name string) (c cri.Condition, ok bool) {
	for _, c := range r.Conditions {
		if c.Name == name {
			return c, true
		}
	}
	return cri.Condition{}, false
}

// verdict returns what is wrong; nil: nothing. It checks causes before their effects.
func (r *runtimeHealth) verdict(slow time.Duration) *operation.Verdict {
	at := cmp.Or(strings.TrimSpace(r.Name+" "+r.Version), "container runtime") + " at " + r.socket
	switch {
	case r.silent:
		return &operation.Verdict{Reason: "RuntimeSilent", Message: at + " doesn't answer"}
	case r.unreachable != nil:
		return &operation.Verdict{Reason: "RuntimeUnreachable", Message: at + ": " + display.Safe(status.Convert(r.unreachable).Message(), 512)}
	}
	for _, known := range []struct{ condition, reason string }{{criapi.RuntimeReady, "RuntimeNotReady"}, {criapi.NetworkReady, "RuntimeNetworkNotReady"}} {
		if c, reported := r.condition(known.condition); reported && !c.OK {
			return &operation.Verdict{Reason: known.reason, Message: fmt.Sprintf("%s: %s is false: %s", at, c.Name, strings.TrimPrefix(c.Reason+": "+c.Message, ": "))}
		}
	}
	if r.Latency > slow {
		return &operation.Verdict{Reason: "RuntimeSlow", Message: fmt.Sprintf("%s takes %s to answer", at, r.Latency.Round(time.Millisecond))}
	}
	return nil
}

func runtimeParameters() []operation.Parameter {
	return []operation.Parameter{
		{Name: "socket", Kind: operation.String, Doc: "CRI socket of the runtime; none: the first of these that speaks CRI: " + strings.Join(cri.Sockets(), ", ")},
		{Name: "timeout", Kind: operation.Duration, Default: "5s", Min: int64(10 * time.Millisecond), Max: int64(2 * time.Minute), Doc: "time limit for an answer"},
	}
}

func runtimeResults() []operation.Result {
	return []operation.Result{
		{Name: "socket", Doc: "queried socket"},
		{Name: "reachable", Doc: "true: it answered"},
		{Name: "runtimeName", Doc: "containerd, cri-o …"},
		{Name: "runtimeVersion", Doc: "its version"},
		{Name: "apiVersion", Doc: "version of the CRI"},
		{Name: "runtimeReady", Doc: "its condition RuntimeReady; missing: not reported by the runtime"},
		{Name: "networkReady", Doc: "its condition NetworkReady; missing: not reported by the runtime"},
		{Name: "conditions", Doc: "all false conditions with reason and message"},
		{Name: "latency", Doc: "latency of the slower call, Version or Status"},
		{Name: "error", Doc: "why there is no answer"},
	}
}

func (r *runtimeHealth) results() map[string]string {
	out := map[string]string{"socket": r.socket, "reachable": strconv.FormatBool(r.unreachable == nil)}
	if r.Name != "" {
		out["runtimeName"], out["runtimeVersion"], out["apiVersion"] = r.Name, r.Version, r.APIVersion
	}
	if r.unreachable != nil {
		out["error"] = display.Safe(status.Convert(r.unreachable).Message(), 512)
		return out
	}
	out["latency"] = r.Latency.Round(10 * time.Microsecond).String()
	if c, reported := r.condition(criapi.RuntimeReady); reported {
		out["runtimeReady"] = strconv.FormatBool(c.OK)
	}
	if c, reported := r.condition(criapi.NetworkReady); reported {
		out["networkReady"] = strconv.FormatBool(c.OK)
	}
	var wrong []string
	for _, c := range r.Conditions {
		if !c.OK {
			wrong = append(wrong, fmt.Sprintf("%s: %s: %s", c.Name, c.Reason, c.Message))
		}
	}
	out["conditions"] = strings.Join(wrong, "; ")
	return out
}

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
			r, err := host(h).askRuntime(ctx, call)
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
