package network

import (
	"context"
	"errors"
	"fmt"
	"syscall"
	"time"

	"github.com/kernosis/kernosis/collector/display"
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
		Run: func(ctx context.Context, call *operation.Call) (operation.Output, error) {
			p, target, err := probeOf(h, call.Parameters)
			if err != nil {
				return operation.Output{}, err
			}
			probed, err := probeOnce(ctx, p, call.Parameters.Duration("timeout"))
			if err != nil {
				return operation.Output{}, err
			}
			what := display.Safe(fmt.Sprintf("%s probe of %s", p.Protocol, p.To), maxName)
			if probed.Err == nil {
				return operation.Output{}, operation.RefutedBy("ProbeSucceeds", "%s succeeded: %s", what, probed)
			}
			r := newReport(target)
			r.Text("phase", probed.Phase)
			r.Text("error", probed.Err.Error())
			r.Text("status", probed.Status)
			r.Text("totalTime", probed.Took.String())
			return r.Output(operation.VerdictOf(probed.failure(call.Parameters.Duration("timeout")), "%s: %s", what, probed)), nil
		},
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
