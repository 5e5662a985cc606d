package operation

import "context"

// CheckUnitFailed succeeds if a unit has failed, or fails again and again.
func CheckUnitFailed(h Host) Builtin {
	return Builtin{
		Name: "check-unit-failed", Doc: "Succeeds if a systemd unit has failed, can't be loaded, or waits to be started again, with verdict UnitFailed.",
		Effect: Check, Parameters: []Parameter{unitParameter()}, Results: unitResults(),
		Run: func(ctx context.Context, call *Call) (Output, error) {
			u, err := unitOf(ctx, h, call)
			if err != nil {
				return Output{}, err
			}
			if !u.failed() {
				return Output{}, &Refuted{Reason: "UnitNotFailed", Message: u.String()}
			}
			return Output{Results: u.results(), Verdict: &Verdict{Reason: "UnitFailed", Message: u.String()}}, nil
		},
	}
}
