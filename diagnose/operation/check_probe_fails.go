package operation

import (
	"context"
	"errors"
	"fmt"
	"syscall"
	"time"

	"github.com/kernosis/kernosis/collector/display"
	"github.com/kernosis/kernosis/collector/netprobe"
)

// CheckProbeFails checks whether a probe fails again, and says in which way.
func CheckProbeFails(h Host) Builtin {
	return Builtin{
		Name: "check-probe-fails",
		Doc: "Probes as re-probe does, and where the probe fails says in which way: the verdict is ConnectionReset where the " +
			"connection stood and was reset, SYNUnanswered where nothing answered to connect, ConnectionRefused, BadStatus where the " +
			"answer is a failure, else ProbeFails. It comes after the checks that know a cause: how a probe fails is where to look on.",
		Effect:     Check,
		Parameters: netProbeParameters(),
		Results: netResults(
			Result{"phase", "how far it got: connect, tls, request, answer or done"},
			Result{"error", "why it failed"},
			Result{"status", "of the answer: 503 Service Unavailable, NOT_SERVING"},
			Result{"totalTime", "of the whole probe"},
		),
		Run: func(ctx context.Context, call *Call) (Output, error) {
			p, target, err := h.netProbeOf(call.Parameters)
			if err != nil {
				return Output{}, err
			}
			probed, err := netProbeOnce(ctx, p, call.Parameters.Duration("timeout"))
			if err != nil {
				return Output{}, err
			}
			what := display.Safe(fmt.Sprintf("%s probe of %s", p.Protocol, p.To), netMaxName)
			if probed.Err == nil {
				return Output{}, refutedBy("ProbeSucceeds", "%s succeeded: %s", what, probed)
			}
			r := newNetReport(target)
			r.text("phase", probed.Phase)
			r.text("error", probed.Err.Error())
			r.text("status", probed.Status)
			r.text("totalTime", probed.Took.String())
			return r.output(verdictOf(probed.failure(call.Parameters.Duration("timeout")), "%s: %s", what, probed)), nil
		},
	}
}

// failure is the way in which a probe failed that might take so long.
func (p *netProbed) failure(timeout time.Duration) string {
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
