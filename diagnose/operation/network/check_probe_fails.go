package network

import (
	"context"
	"errors"
	"fmt"
	"syscall"
	"time"

	"github.com/kernosis/kernosis/collector/netprobe"
	"github.com/kernosis/kernosis/diagnose/operation"
)

func CheckProbeFails(h operation.Host) operation.Builtin {
	return operation.Builtin{
		Name: "check-probe-fails",
		Doc: "Checks whether a probe fails, and classifies the failure. Probes like re-probe. Verdicts: ConnectionReset if the connection was " +
			"established, then reset; SYNUnanswered if nothing answered the connection attempt; ConnectionRefused; BadStatus if the answer is a failure; " +
			"ProbeFails otherwise. Place it after checks that determine a cause: the kind of failure shows where to continue.",
		Effect:     operation.Check,
		Parameters: probeParameters(),
		Results: results(
			operation.Result{Name: "phase", Doc: "last phase of the probe: connect, tls, request, answer or done"},
			operation.Result{Name: "error", Doc: "why it failed"},
			operation.Result{Name: "status", Doc: "status of the answer: 503 Service Unavailable, NOT_SERVING"},
			operation.Result{Name: "totalTime", Doc: "duration of the probe"},
		),
		Run: inspect(h, probeOf, func(ctx context.Context, call *operation.Call, p *probing,
			r *operation.Finding) (*operation.Verdict, error) {
			probed, err := probeOnce(ctx, p, call.Parameters.Duration("timeout"))
			if err != nil {
				return nil, err
			}
			if err := probed.unverified(); err != nil {
				return nil, fmt.Errorf("%s: %w", p, err)
			}
			if probed.Err == nil {
				return nil, operation.RefutedBy("ProbeSucceeds", "%s succeeded: %s", p, probed)
			}
			r.Text("phase", probed.Phase)
			r.Text("error", probed.Err.Error())
			r.Text("status", probed.Status)
			r.Text("totalTime", probed.Took.String())
			return operation.VerdictOf(probed.failure(call.Parameters.Duration("timeout")), "%s: %s", p, probed), nil
		}),
	}
}

// failure classifies the failure of a probe with a timeout.
func (p *probeResult) failure(timeout time.Duration) string {
	switch connected := p.Connect > 0; {
	case errors.Is(p.Err, syscall.ECONNREFUSED):
		return "ConnectionRefused"
	case connected && (errors.Is(p.Err, syscall.ECONNRESET) || errors.Is(p.Err, syscall.EPIPE)):
		return "ConnectionReset"
	case !connected && p.Phase == netprobe.PhaseConnect && (p.Took >= timeout || errors.Is(p.Err, syscall.ETIMEDOUT)):
		return "SYNUnanswered"
	case p.Status != "":
		return "BadStatus"
	}
	return "ProbeFails"
}
