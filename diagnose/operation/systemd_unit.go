package operation

import "context"

// SystemdUnit tells the state of a unit of the node's systemd.
func SystemdUnit(h Host) Builtin {
	return Builtin{
		Name: "systemd-unit", Doc: "Tells the state of a systemd unit: since when, how it ended last, restarts, main process, memory.",
		Effect: Collect, Parameters: []Parameter{unitParameter()}, Results: unitResults(),
		Run: func(ctx context.Context, call *Call) (Output, error) {
			u, err := unitOf(ctx, h, call)
			if err != nil {
				return Output{}, err
			}
			return Output{Results: u.results()}, nil
		},
	}
}
