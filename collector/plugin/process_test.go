package plugin

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/kernosis/kernosis/collector/process"
	"github.com/kernosis/kernosis/vmtest/testenv"
)

func TestProgramDiesWithTheAgent(t *testing.T) {
	mark := testenv.MarkProcesses(t)
	path, args := self(t, "agent", testenv.Script(t, "exec sleep 1000"))
	agent := exec.Command(path, args...)
	if err := agent.Start(); err != nil {
		t.Fatal(err)
	}
	testenv.Until(t, "start of the check", patience, func() bool { return mark.Count() == 2 })
	if err := agent.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = agent.Wait()
	testenv.Until(t, "end of the check", patience, func() bool { return mark.Count() == 0 })
}

func TestOrphansAreWaitedFor(t *testing.T) {
	path, args := self(t, "init", testenv.Script(t, "for i in 1 2 3 4 5; do (sleep 0.01 & ) ; done\nexit 0"))
	t.Run("by a subreaper", func(t *testing.T) {
		if out, err := exec.Command(path, args...).CombinedOutput(); err != nil {
			t.Errorf("%v: %s", err, out)
		}
	})
	t.Run("by process 1", func(t *testing.T) {
		if os.Geteuid() != 0 {
			t.Skip("only root makes pid namespaces")
		}
		cmd := exec.Command(path, args...)
		cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWPID | syscall.CLONE_NEWNS}
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("%v: %s", err, out)
		}
	})
	// Any other process inherits none, and returns at once.
	if err := ReapOrphans(t.Context(), nil); err != nil {
		t.Error(err)
	}
}

// TestUnkillable freezes a program with the freezer of cgroup v1, which puts processes in
// uninterruptible sleep, like those that wait for a dead file server.
func TestUnkillable(t *testing.T) {
	const freezer = "/sys/fs/cgroup/freezer"
	dir := filepath.Join(freezer, "kernosis-plugin-test-"+strconv.Itoa(os.Getpid()))
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Skipf("no freezer of cgroup v1, and that of v2 lets its processes die: %v", err)
	}
	set := func(file, value string) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(dir, file), []byte(value), 0); err != nil {
			t.Fatal(err)
		}
	}
	t.Cleanup(func() {
		set("freezer.state", "THAWED")
		testenv.Until(t, "end of the group", patience, func() bool { return os.Remove(dir) == nil })
	})
	pidFile := filepath.Join(t.TempDir(), "pid")
	// Only the first run hangs.
	check := testenv.Script(t, "[ -e "+pidFile+" ] && echo again && exit 0\necho $$ >"+pidFile+".new\nmv "+pidFile+".new "+pidFile+"\nexec sleep 1000")
	results := make(chan Result, 1000)
	cfg := Config{
		Name: "t", Spread: 1, InvokeInterval: 20 * time.Millisecond, Concurrency: 1, Timeout: 5 * time.Second, MaxOutputLength: 200,
		Checks: []Check{{Name: "frozen", Path: check}, {Name: "other", Path: testenv.Script(t, "exit 0")}},
	}
	stop := run(t, cfg, results)
	var pid string
	testenv.Until(t, "pid", patience, func() bool {
		b, err := os.ReadFile(pidFile)
		pid = strings.TrimSpace(string(b))
		return err == nil
	})
	set("cgroup.procs", pid)
	set("freezer.state", "FROZEN")
	want := func(check string, ok func(Result) bool) {
		t.Helper()
		deadline := time.After(testenv.Within(patience))
		for {
			select {
			case r := <-results:
				if r.Check == check && ok(r) {
					return
				}
			case <-deadline:
				t.Fatal("no such result")
			}
		}
	}
	want("frozen", func(r Result) bool { return errors.Is(r.Err, process.ErrTimeout) && errors.Is(r.Err, process.ErrStuck) })
	want("frozen", func(r Result) bool {
		return r.Status == Unknown && strings.HasPrefix(r.Message, "not run: the last run, of ")
	})
	want("other", func(r Result) bool { return r.Status == OK })
	set("freezer.state", "THAWED")
	want("frozen", func(r Result) bool { return r.Status == OK && r.Message == "again" })
	stop()
}
