package logsource

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/kernosis/kernosis/collector/event"
	"github.com/kernosis/kernosis/vmtest/kubetest/node/fault"
	"github.com/kernosis/kernosis/vmtest/testenv"
)

// exceptionTrace is the setting for whether the kernel prints crashes.
const exceptionTrace = "/proc/sys/debug/exception-trace"

// TestRealCrashForgesNothing checks crashes of real programs, as reported by this kernel, whose
// names and files contain what only the kernel should print. Read from /dev/kmsg, each is a crash
// and nothing else.
func TestRealCrashForgesNothing(t *testing.T) {
	if runtime.GOARCH != "amd64" {
		t.Skip("the program is for x86")
	}
	if on, err := os.ReadFile(exceptionTrace); err != nil || strings.TrimSpace(string(on)) == "0" {
		t.Skipf("this kernel does not print crashes: %s = %q (%v)", exceptionTrace, on, err)
	}
	f, err := os.Open("/dev/kmsg")
	if err != nil {
		t.Skipf("the kernel's log can't be read here: %v", err)
	}
	f.Close()
	set := shippedRules(t)
	rec := newRecorder()
	r := run(t, open(t, set.PatternSet(), Options{}, Config{Name: KMsg, Plugin: KMsg}), rec)
	rec.until(t, "start", rec.has("+log/kmsg"))
	c := newCourt(set, genuine(t, set.PatternSet()))
	for _, as := range []struct{ name, file string }{
		{"app", "Watchdog: Watchdog detected hard LOCKUP on cpu 0"},
		{"app", "BUG: soft lockup - CPU#0 stuck for 26s! [x:1]"},
		{"app", "rcu: INFO: rcu_sched self-detected stall on CPU"},
		{"XFS (sda1): x", "y. Shutting down filesystem"},
		{"md: md0 stopped", "app"},
		{"app", "x\nmd: md0 stopped."},
		{"app", "CPU0: Core temperature above threshold, cpu clock throttled"},
		{"nf_conntrack: n", "nf_conntrack: table full, dropping packet"},
		{"XFS (loop0): Un", "mounting Filesystem"},
	} {
		dir := t.TempDir()
		testenv.WriteProgram(t, filepath.Join(dir, as.file), string(fault.CrashProgram()))
		path := filepath.Join(dir, as.file)
		if as.name != as.file {
			path = filepath.Join(dir, as.name)
			if err := os.Symlink(as.file, path); err != nil {
				t.Fatal(err)
			}
		}
		ev := crashed(t, rec, path)
		if !strings.Contains(ev.Log.Text, "segfault at 0 ip") || ev.Log.Origin != event.OriginProcess {
			t.Errorf("a line of %s: %q", ev.Log.Origin, ev.Log.Text)
		}
		if fouls := c.judge(ev, []string{"segfault"}); len(fouls) > 0 {
			t.Errorf("%q: %v", ev.Log.Text, fouls)
		}
		t.Logf("%s", ev.Log.Text)
	}
	r.stop()
}

// crashed runs the program until the kernel has reported one of its crashes: the kernel logs at
// most ten crashes of the whole machine in five seconds.
func crashed(t *testing.T, rec *recorder, path string) (found *event.Event) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), testenv.Within(patience))
	defer cancel()
	var pids []string
	started := time.Time{}
	rec.until(t, "line of the crash", func() bool {
		if time.Since(started) > time.Second {
			started = time.Now()
			cmd := exec.CommandContext(ctx, "sh", "-c", `ulimit -c 0; exec "$0"`, path)
			if err := cmd.Run(); err == nil || cmd.ProcessState == nil || cmd.ProcessState.Exited() {
				t.Fatalf("%q has not crashed: %v", path, err)
			}
			pids = append(pids, fmt.Sprintf("[%d]: ", cmd.ProcessState.Pid()))
		}
		for _, ev := range rec.all() {
			if ev.Log != nil && slices.ContainsFunc(pids, func(pid string) bool { return strings.Contains(ev.Log.Text, pid) }) {
				found = ev.Clone()
				return true
			}
		}
		return false
	})
	return found
}
