package agenttest

import (
	"context"
	"errors"
	"net/netip"
	"sync"
	"testing"

	"github.com/kernosis/kernosis/cmd/kernosis/inject"
)

// FailProbes makes probes of a target that the agent watches fail in the given way until end is
// called or the test ends, so that a diagnosis may take its time. If the machine lacks what that
// needs, the error is an [inject.Refused].
func (a *Agent) FailProbes(t testing.TB, kind inject.ProbeKind) (end func(), err error) {
	t.Helper()
	fault, ok := inject.Find(string(kind))
	if !ok {
		t.Fatalf("there is no fault %s", kind)
	}
	ctx, cancel := context.WithCancel(context.Background())
	watched, ended := make(chan struct{}), make(chan error, 1)
	env := inject.Env{
		Count: inject.MaxCount, TargetsDir: a.Targets, StateDir: t.TempDir(),
		WaitTarget: func(ctx context.Context, netns uint32, target netip.AddrPort) error {
			defer close(watched)
			return a.Watched(ctx, netns, target)
		},
	}
	go func() {
		_, err := fault.Run(ctx, env)
		ended <- err
	}()
	end = sync.OnceFunc(func() { cancel(); <-ended })
	select {
	case <-watched:
		t.Cleanup(end)
		return end, nil
	case err := <-ended:
		cancel()
		return nil, err
	}
}

// Injected fails the test on an error of a fault, or skips it if the machine lacks what the fault
// needs.
func Injected(t testing.TB, err error) {
	t.Helper()
	if refused, ok := errors.AsType[*inject.Refused](err); ok {
		t.Skip(refused)
	}
	if err != nil {
		t.Fatal(err)
	}
}
