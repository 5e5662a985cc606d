package plugin

import (
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/kernosis/kernosis/collector/process"
	"github.com/kernosis/kernosis/vmtest/testenv"
)

// parent returns a control group for a test's groups.
func parent(t *testing.T) string {
	t.Helper()
	own, err := process.OwnCgroup()
	if err != nil {
		t.Skipf("no control group may be made here: %v", err)
	}
	dir := filepath.Join(own, "kernosis-plugin-test-"+strconv.Itoa(os.Getpid()))
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Skipf("no control group may be made here: %v", err)
	}
	t.Cleanup(func() { testenv.Until(t, "end of the group", patience, func() bool { return os.Remove(dir) == nil }) })
	if _, err := os.Stat(filepath.Join(dir, "cgroup.kill")); err != nil {
		t.Skip("cgroup.kill is of Linux 5.14")
	}
	return dir
}

func TestControlGroupEndsWhatLeftTheProcessGroup(t *testing.T) {
	dir, mark := parent(t), testenv.MarkProcesses(t)
	path, args := self(t, "escape")
	results := make(chan Result, 1)
	stop := run(t, Config{
		Name: "a/b ä", Spread: 1, InvokeInterval: time.Hour, Cgroup: dir, Checks: []Check{{Name: "c", Path: path, Args: args}},
	}, results)
	if r := <-results; r.Status != OK || r.Message != "escaped" {
		t.Errorf("%+v", r)
	}
	testenv.Until(t, "end of its processes", patience, func() bool { return mark.Count() == 0 })
	if _, err := os.Stat(filepath.Join(dir, "kernosis-check-a_b__", "0")); err != nil {
		t.Error(err)
	}
	stop()
	if left, _ := filepath.Glob(dir + "/kernosis-*"); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
}

func TestProcessesOfACheckAreBounded(t *testing.T) {
	dir, mark := parent(t), testenv.MarkProcesses(t)
	results := make(chan Result, 1)
	run(t, Config{
		Name: "t", Spread: 1, InvokeInterval: time.Hour, Timeout: patience, Cgroup: dir, MaxProcesses: 50,
		// Each in a session of its own, outside the process group.
		Checks: []Check{{Name: "bomb", Path: testenv.Script(t, "i=0; while [ $i -lt 2000 ]; do i=$((i+1)); setsid sleep 1000 & done; wait")}},
	}, results)
	r := <-results
	if r.Status != Unknown || r.Duration > patience/2 {
		t.Errorf("%+v", r)
	}
	if counted := !hasPids(dir); counted && !errors.Is(r.Err, process.ErrProcesses) {
		t.Errorf("error %v, want %v", r.Err, process.ErrProcesses)
	}
	testenv.Until(t, "end of its processes", patience, func() bool { return mark.Count() == 0 })
}

// TestControlGroupIsUsedAgain also reuses one in which processes had to be killed.
func TestControlGroupIsUsedAgain(t *testing.T) {
	dir, mark := parent(t), testenv.MarkProcesses(t)
	path, args := self(t, "escape")
	results := make(chan Result, 1)
	stop := run(t, Config{
		Name: "again", Spread: 1, InvokeInterval: 50 * time.Millisecond, Timeout: patience, Cgroup: dir,
		Checks: []Check{
			{Name: "plain", Path: testenv.Script(t, "echo fine")},
			{Name: "escape", Path: path, Args: args},
		},
	}, results)
	seen := map[string]int{}
	for seen["plain"] < 5 || seen["escape"] < 5 {
		r := <-results
		if r.Status != OK {
			t.Fatalf("after %v: %+v", seen, r)
		}
		seen[r.Check]++
	}
	stop()
	testenv.Until(t, "end of its processes", patience, func() bool { return mark.Count() == 0 })
	if left, _ := filepath.Glob(dir + "/kernosis-*"); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
}

func hasPids(dir string) bool {
	b, err := os.ReadFile(filepath.Join(dir, "cgroup.controllers"))
	return err == nil && strings.Contains(string(b), "pids")
}
