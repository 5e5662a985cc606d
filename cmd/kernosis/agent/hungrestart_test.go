package agent

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"testing"
	"time"

	"github.com/kernosis/kernosis/cmd/kernosis/inject"
	"github.com/kernosis/kernosis/collector"
	"github.com/kernosis/kernosis/detector/problem"
	"github.com/kernosis/kernosis/vmtest/testenv"
)

// watchHangs runs an agent's kernel sources, which call settle, until end is called. Their programs
// and records stay pinned.
func watchHangs(t *testing.T, a *pipeline, pins string, settle func()) (end func()) {
	t.Helper()
	s, err := collector.Open(collector.Config{HostRoot: "/", PinRoot: pins, HungTaskAfter: time.Second, Seen: a.seen}, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	a.canary = s.CanarySeen
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- s.Run(ctx, a.take, settle) }()
	return func() {
		t.Helper()
		cancel()
		if err := errors.Join(<-ended, s.Close(false)); err != nil {
			t.Error(err)
		}
	}
}

// A task hangs on, and the agent is killed after it has recorded that but before it has released the
// record to the kernel. Its successor reads the record again, and must still learn that the hang
// lasts: it confirms the problem that fires, and the one that waits for its "for" waits on.
func TestAHangOutlastsAKillBeforeItsRecordIsReleased(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root to load programs")
	}
	testenv.HoldKernel(t)
	pins := filepath.Join("/sys/fs/bpf", fmt.Sprintf("kernosis-test-%d-%d", os.Getpid(), time.Now().UnixNano()))
	t.Cleanup(func() { _ = os.RemoveAll(pins) })
	set := rulesOf(t, `
conditions:
  Hangs: {healthyReason: NothingHangs, healthyMessage: nothing hangs}
  HangsLong: {healthyReason: NothingHangs, healthyMessage: nothing hangs}
rules:
- {name: fires, events: [hungtask], groupBy: [task.pid], condition: Hangs, reason: Hung, message: m, clearWhen: event.kind == "hungtask.resumed"}
- {name: waits, events: [hungtask], groupBy: [task.pid], condition: HangsLong, reason: Hung, message: m, for: 1h, clearWhen: event.kind == "hungtask.resumed"}
`)
	fault := &inject.HungTask{Limit: 5 * time.Minute}
	hang, err := fault.Start(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer fault.Close()
	dir, group := t.TempDir(), strconv.Itoa(hang.Waiter.TID)
	// states returns the states and counts of the hang's problems, later.
	states := func(a *pipeline, later time.Duration) string {
		a.mu.Lock()
		defer a.mu.Unlock()
		if later > 0 {
			a.engine.Tick(a.now().Add(later))
		}
		got := map[string]string{}
		for _, p := range a.engine.Problems() {
			if p.Group == group {
				got[p.Rule] = fmt.Sprintf("%s %d", p.State, p.Count)
			}
		}
		return fmt.Sprint(got)
	}
	want := fmt.Sprintf("map[fires:%s 1 waits:%s 1]", problem.Firing, problem.Pending)

	first, _ := restoredWith(t, dir, set)
	killed, kill := context.WithCancel(t.Context())
	end := watchHangs(t, first, pins, func() {
		first.settle()
		if states(first, 0) != want {
			return
		}
		kill()
		runtime.Goexit() // the caller would release the record next
	})
	testenv.UntilShown(t, "the hang is recorded", 15*time.Second, func() (bool, string) {
		return killed.Err() != nil, states(first, 0)
	})
	end()
	first.kill(t)

	second, _ := restoredWith(t, dir, set)
	end = watchHangs(t, second, pins, second.settle)
	testenv.UntilShown(t, "the hang is reported again", 15*time.Second, func() (bool, string) {
		got := states(second, 0)
		return got == want, got
	})
	end()
	if got := states(second, 10*time.Minute); got != want {
		t.Errorf("10 minutes later: %s, want %s", got, want)
	}
}
