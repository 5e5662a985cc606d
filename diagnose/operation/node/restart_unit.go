package node

import (
	"context"
	"fmt"
	"os"

	"github.com/kernosis/kernosis/diagnose/operation"
	"github.com/kernosis/kernosis/diagnose/operation/remote"
)

func RestartUnit(h operation.Host) operation.Builtin {
	return operation.Builtin{
		Name: "restart-unit", Doc: "Restarts a systemd unit and waits for it. Fails if the unit does not run afterwards.",
		Effect: operation.Remediate, Parameters: []operation.Parameter{unitParameter()}, Results: unitResults(),
		Run: func(ctx context.Context, call *operation.Call) (operation.Output, error) {
			return restartUnit(ctx, h, call)
		},
	}
}

func restartUnit(ctx context.Context, h operation.Host, call *operation.Call) (operation.Output, error) {
	name, err := unitName(call.Parameters["unit"])
	if err != nil {
		return operation.Output{}, err
	}
	conn, err := systemd(ctx, h.FS)
	if err != nil {
		return operation.Output{}, err
	}
	defer conn.Close()
	// A unit that isn't loaded must not be started.
	before, err := readUnit(ctx, conn, name)
	if err != nil {
		return operation.Output{}, err
	}
	if before.load != "loaded" {
		return operation.Output{}, fmt.Errorf("unit %s is %s: not restarted", name, before.load)
	}
	if int(before.mainPID) == os.Getpid() {
		return operation.Output{}, fmt.Errorf("unit %s is the agent's own: the agent could not report the result", name)
	}
	done := make(chan string, 1)
	if _, err := conn.RestartUnitContext(ctx, name, "replace", done); err != nil {
		return operation.Output{}, fmt.Errorf("restart %s: %w", name, remote.WhyEnded(ctx, err))
	}
	select {
	case result := <-done:
		if result != "done" {
			return operation.Output{}, fmt.Errorf("restart %s: the job ended as %s", name, operation.Quoted(result))
		}
	case <-ctx.Done():
		return operation.Output{}, fmt.Errorf("restart %s: requested, but not completed: %w", name, ctx.Err())
	}
	after, err := readUnit(ctx, conn, name)
	if err != nil {
		return operation.Output{}, fmt.Errorf("it was restarted, but %w", err)
	}
	if after.failed() {
		return operation.Output{}, fmt.Errorf("it was restarted, but %s", after.String())
	}
	return operation.Output{Results: after.results()}, nil
}
