package logsource

import (
	"bytes"
	"context"
	"encoding/binary"
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
	"github.com/kernosis/kernosis/vmtest/await"
	"github.com/kernosis/kernosis/vmtest/testprogram"
)

// exceptionTrace is the setting for whether the kernel prints crashes.
const exceptionTrace = "/proc/sys/debug/exception-trace"

// crashing is a program that reads address 0: xor eax,eax; mov eax,[rax].
func crashing() string {
	const base, headers = 0x400000, 64 + 56
	code := []byte{0x31, 0xc0, 0x8b, 0x00}
	var b bytes.Buffer
	b.WriteString("\x7fELF\x02\x01\x01" + strings.Repeat("\x00", 9)) // 64 bit, little endian
	for _, v := range []any{
		uint16(2), uint16(62), uint32(1), uint64(base + headers), uint64(64), uint64(0), // ET_EXEC, EM_X86_64
		uint32(0), uint16(64), uint16(56), uint16(1), uint16(0), uint16(0), uint16(0),
		uint32(1), uint32(5), uint64(0), uint64(base), uint64(base), // PT_LOAD, readable and executable
		uint64(headers + len(code)), uint64(headers + len(code)), uint64(0x1000),
	} {
		_ = binary.Write(&b, binary.LittleEndian, v) // a buffer takes everything
	}
	b.Write(code)
	return b.String()
}

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
		testprogram.Write(t, filepath.Join(dir, as.file), crashing())
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
	ctx, cancel := context.WithTimeout(t.Context(), await.Within(patience))
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
