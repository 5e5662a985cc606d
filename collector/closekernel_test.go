package collector

import (
	"context"
	"log/slog"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/cilium/ebpf/rlimit"

	"github.com/kernosis/kernosis/bpf"
	"github.com/kernosis/kernosis/collector/event"
	"github.com/kernosis/kernosis/vmtest/testenv"
)

// A reader that hangs while the agent stops continues to use its ring when it is free again.
func TestCloseBesideAReader(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root to load programs")
	}
	sources, err := Open(Config{HostRoot: "/"}, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	defer sources.Close(true)
	hangs, release := make(chan struct{}, 1), make(chan struct{})
	ctx, end := context.WithCancel(t.Context())
	defer end()
	ended := make(chan error, 1)
	go func() {
		ended <- sources.Run(ctx, func(ev *event.Event) {
			if ev.Kind != event.Canary {
				return
			}
			select {
			case hangs <- struct{}{}:
			default:
			}
			<-release
		}, func() {})
	}()
	select {
	case <-hangs:
	case <-time.After(testenv.Within(time.Minute)):
		t.Fatal("no record came")
	}
	end()
	if err := sources.Close(true); err != nil {
		t.Error(err)
	}
	close(release)
	select {
	case err := <-ended:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(testenv.Within(time.Minute)):
		t.Fatal("the readers did not end")
	}
}

// A process may end before all readers have begun.
func TestCloseBeforeTheReaders(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root to load programs")
	}
	sources, err := Open(Config{HostRoot: "/"}, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	if err := sources.Close(true); err != nil {
		t.Fatal(err)
	}
	ctx, end := context.WithCancel(t.Context())
	end()
	if err := sources.runStems(ctx, func(*event.Event) {}, func() {}); err != nil {
		t.Error(err)
	}
}

// openKernel skips the test unless it may load programs.
func openKernel(t *testing.T) *bpf.Kernel {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root to load programs")
	}
	if err := rlimit.RemoveMemlock(); err != nil {
		t.Fatal(err)
	}
	k, err := bpf.OpenKernel()
	if err != nil {
		t.Fatal(err)
	}
	return k
}

// A kill before the events of losses are settled must not make the kernel forget these.
func TestLossesAreSettledFirst(t *testing.T) {
	k := openKernel(t)
	loaded, err := bpf.Open(bpf.Stems()[0], k, nil)
	t.Cleanup(func() { loaded.Close() })
	if err != nil {
		t.Fatal(err)
	}
	for nonce := range uint64(25_000) { // more than any ring holds
		if err := loaded.RunCanary(nonce); err != nil {
			t.Fatal(err)
		}
	}
	ringFull := func() uint64 {
		t.Helper()
		lost, err := loaded.Losses()
		if err != nil {
			t.Fatal(err)
		}
		return lost.RingFull
	}
	var emitted uint64
	var settled []uint64
	loaded.Settle = func() { settled = append(settled, ringFull()) }
	s := &stem{name: loaded.Stem, loaded: loaded, log: slog.New(slog.DiscardHandler)}
	s.reportLosses(func(ev *event.Event) { emitted += ev.Lost.Count })
	if emitted == 0 || ringFull() != 0 {
		t.Errorf("%d reported, %d left", emitted, ringFull())
	}
	if !slices.Equal(settled, []uint64{emitted}) {
		t.Errorf("left when settled: %v, want %d", settled, emitted)
	}
}
