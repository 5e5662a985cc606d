package network

import (
	"context"
	"fmt"
	"time"

	"github.com/kernosis/kernosis/diagnose/operation"
)

func CheckProbeRecovers(h operation.Host) operation.Builtin {
	return operation.Builtin{
		Name: "check-probe-recovers",
		Doc: "Checks whether a probe succeeds several times in a row. Verdict ProbeRecovered: of at most attempts probes like re-probe, successes in a " +
			"row succeed.",
		Effect: operation.Check,
		Parameters: probeParameters(
			operation.Parameter{Name: "successes", Doc: "required consecutive successes", Kind: operation.Integer, Default: "3", Max: 100},
			operation.Parameter{Name: "attempts", Doc: "maximum number of probes", Kind: operation.Integer, Default: "6", Max: 1000},
			operation.Parameter{Name: "period", Doc: "time from the start of one probe to the next", Kind: operation.Duration, Default: "1s", Max: int64(time.Minute)}),
		Results: results(
			operation.Result{Name: "attempted", Doc: "probes made"},
			operation.Result{Name: "failed", Doc: "failed probes"},
			operation.Result{Name: "lastError", Doc: "last failure"},
			operation.Result{Name: "totalTime", Doc: "duration of the last probe"},
		),
		Run: inspect(h, probeOf, func(ctx context.Context, call *operation.Call, p *probing,
			r *operation.Finding) (*operation.Verdict, error) {
			v := call.Parameters
			want, most := max(1, v.Int("successes")), max(1, v.Int("attempts"))
			if most < want {
				return nil, fmt.Errorf("parameter attempts: %d attempts can't have %d successes", most, want)
			}
			var row, failed, made int64
			var last *probeResult
			lastFailure := "none failed"
			for row < want && made < most {
				began := time.Now()
				var err error
				if last, err = probeOnce(ctx, p, v.Duration("timeout")); err != nil {
					return nil, err
				}
				if err := last.unverified(); err != nil {
					return nil, fmt.Errorf("%s: %w", p, err)
				}
				made++
				if last.Err == nil {
					row++
				} else {
					row, lastFailure = 0, last.String()
					failed++
				}
				if row < want && made < most {
					if err := operation.Pause(ctx, v.Duration("period")-time.Since(began)); err != nil {
						return nil, err
					}
				}
			}
			r.Uint("attempted", uint64(made))
			r.Uint("failed", uint64(failed))
			r.Text("totalTime", last.Took.Round(time.Microsecond).String())
			if row < want {
				return nil, operation.RefutedBy("ProbeStillFails", "%s: %d of %d failed, want %d successes in a row; last failure: %s", p, failed, made, want, lastFailure)
			}
			if failed > 0 {
				r.Text("lastError", lastFailure)
			}
			return operation.VerdictOf("ProbeRecovered", "%s: the last %d of %d succeeded (%s); %s", p, want, made, last, lastFailure), nil
		}),
	}
}
