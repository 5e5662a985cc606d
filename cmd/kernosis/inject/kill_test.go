package inject_test

import (
	"bufio"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/kernosis/kernosis/cmd/kernosis/inject"
	"github.com/kernosis/kernosis/vmtest/testenv"
)

// killInjector starts a process that runs the fault, waits until it has happened and kills
// it with SIGKILL, after its guard if guardToo is set.
func killInjector(t *testing.T, fault, dir, until string, guardToo bool) (pid int) {
	t.Helper()
	cmd := &exec.Cmd{Path: "/proc/self/exe", Args: []string{testInjector, fault, dir}, Stderr: os.Stderr}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewScanner(out)
	for lines.Scan() && !strings.Contains(lines.Text(), until) {
	}
	pid = cmd.Process.Pid
	if guardToo {
		syscall.Kill(guardPID(t, dir), syscall.SIGKILL)
	}
	cmd.Process.Kill()
	if err := cmd.Wait(); err == nil {
		t.Error("the injector ended before it was killed")
	}
	return pid
}

func guardPID(t *testing.T, dir string) int {
	t.Helper()
	records, _ := filepath.Glob(dir + "/*.jsonl")
	if len(records) != 1 {
		t.Fatalf("records: %v, want one", records)
	}
	f, err := os.Open(records[0])
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	var first struct {
		Kind string
		PID  int
	}
	if err := json.NewDecoder(f).Decode(&first); err != nil || first.Kind != "guard" || first.PID == 0 {
		t.Fatalf("first step of the record: %+v, %v", first, err)
	}
	return first.PID
}

var killCases = map[string]string{ // fault: what is printed once it has happened
	"oom": "SIGKILL", "hung-task-fs": "hangs", "disk-error": "requests failed", "readonly-fs": "refuses writes",
}

// A killed injector's guard removes everything.
func TestSIGKILLGuard(t *testing.T) {
	for fault, until := range killCases {
		t.Run(fault, func(t *testing.T) {
			t.Parallel()
			dir := stateDir(t)
			pid := killInjector(t, fault, dir, until, false)
			testenv.Until(t, "the guard's clean-up", 10*time.Second, func() bool { return len(traces(t, dir))+len(tracesOf(pid)) == 0 })
		})
	}
}

// With the guard killed as well, Cleanup does it.
func TestSIGKILLCleanup(t *testing.T) {
	for fault, until := range killCases {
		t.Run(fault, func(t *testing.T) {
			t.Parallel()
			dir := stateDir(t)
			pid := killInjector(t, fault, dir, until, true)
			if left := traces(t, dir); len(left) < 2 {
				t.Fatalf("nothing left to clean up: %v", left)
			}
			removed, err := inject.Cleanup(dir)
			if err != nil {
				t.Fatal(err)
			}
			if want := itoa(pid) + "-" + fault + ".jsonl"; len(removed) != 1 || removed[0] != want {
				t.Errorf("removed %v, want %s", removed, want)
			}
			if left := append(traces(t, dir), tracesOf(pid)...); len(left) > 0 {
				t.Errorf("left behind: %v", left)
			}
		})
	}
}

// Records of running injectors are left alone.
func TestCleanupSparesTheLiving(t *testing.T) {
	dir := stateDir(t)
	o := &inject.OOM{StateDir: dir}
	if err := o.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	defer o.Close()
	if removed, err := inject.Cleanup(dir); len(removed) > 0 || err != nil {
		t.Errorf("removed %v, %v", removed, err)
	}
	if _, err := o.Kill(t.Context()); err != nil {
		t.Error(err)
	}
	if err := o.Close(); err != nil {
		t.Error(err)
	}
}

// A record that another user may have written is ignored.
func TestCleanupDistrusts(t *testing.T) {
	dir := stateDir(t)
	victim := filepath.Join(t.TempDir(), "victim")
	for name, spoil := range map[string]func(path string) error{
		"owner": func(path string) error { return os.Chown(path, 65534, 65534) },
		"mode":  func(path string) error { return os.Chmod(path, 0o666) },
	} {
		record := filepath.Join(dir, "1-"+name+".jsonl")
		line, _ := json.Marshal(map[string]string{"kind": "file", "path": victim})
		for path, text := range map[string]string{victim: "", record: string(line) + "\n"} {
			if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		if err := spoil(record); err != nil {
			t.Fatal(err)
		}
		if removed, err := inject.Cleanup(dir); err == nil || len(removed) > 0 {
			t.Errorf("%s: removed %v, %v; want a refusal", name, removed, err)
		}
		if _, err := os.Stat(victim); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		os.Remove(record)
	}
}
