package operation

import (
	"context"
	"fmt"
	"time"

	"github.com/kernosis/kernosis/collector/display"
)

// CheckProbeRecovers checks whether a probe works again.
func CheckProbeRecovers(h Host) Builtin {
	return Builtin{
		Name: "check-probe-recovers",
		Doc: "Probes as re-probe does, again and again, and checks whether as many probes succeed in a row as are asked for, " +
			"within a number of attempts. The verdict is ProbeRecovered.",
		Effect: Check,
		Parameters: netProbeParameters(
			Parameter{Name: "successes", Doc: "probes in a row that have to succeed", Kind: Integer, Default: "3", Max: 100},
			Parameter{Name: "attempts", Doc: "probes in all, at most", Kind: Integer, Default: "6", Max: 1000},
			Parameter{Name: "period", Doc: "from the beginning of a probe to that of the next", Kind: Duration, Default: "1s", Max: int64(time.Minute)}),
		Results: netResults(
			Result{"attempted", "probes made"},
			Result{"failed", "of these, those that failed"},
			Result{"lastError", "why the last of them failed"},
			Result{"totalTime", "of the last probe"},
		),
		Run: func(ctx context.Context, call *Call) (Output, error) {
			v := call.Parameters
			p, target, err := h.netProbeOf(v)
			if err != nil {
				return Output{}, err
			}
			want, most := max(1, v.Int("successes")), max(1, v.Int("attempts"))
			if most < want {
				return Output{}, fmt.Errorf("parameter attempts: %d attempts can't have %d successes", most, want)
			}
			var row, failed, made int64
			var last *netProbed
			lastFailure := "none failed"
			for row < want && made < most {
				began := time.Now()
				if last, err = netProbeOnce(ctx, p, v.Duration("timeout")); err != nil {
					return Output{}, err
				}
				made++
				if last.Err == nil {
					row++
				} else {
					row, lastFailure = 0, last.String()
					failed++
				}
				if row < want && made < most {
					if err := pauseFor(ctx, v.Duration("period")-time.Since(began)); err != nil {
						return Output{}, err
					}
				}
			}
			r := newNetReport(target)
			r.uint("attempted", uint64(made))
			r.uint("failed", uint64(failed))
			r.text("totalTime", last.Took.Round(time.Microsecond).String())
			what := display.Safe(fmt.Sprintf("%s probe of %s", p.Protocol, p.To), netMaxName)
			if row < want {
				return Output{}, refutedBy("ProbeStillFails", "%s: %d of %d failed, at most %d in a row had to succeed; the last failure: %s", what, failed, made, want, lastFailure)
			}
			if failed > 0 {
				r.text("lastError", lastFailure)
			}
			return r.output(verdictOf("ProbeRecovered", "%s: the last %d of %d succeeded (%s); %s", what, want, made, last, lastFailure)), nil
		},
	}
}
