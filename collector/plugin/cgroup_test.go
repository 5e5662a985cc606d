package plugin

import (
	"bytes"
	"errors"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"
)

// parent returns a control group for a test's groups.
func parent(t *testing.T) string {
	t.Helper()
	own, err := OwnCgroup()
	if err != nil {
		t.Skipf("no control group may be made here: %v", err)
	}
	dir := filepath.Join(own, "kernosis-plugin-test-"+strconv.Itoa(os.Getpid()))
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Skipf("no control group may be made here: %v", err)
	}
	t.Cleanup(func() { until(t, "end of the group", func() bool { return os.Remove(dir) == nil }) })
	if _, err := os.Stat(filepath.Join(dir, "cgroup.kill")); err != nil {
		t.Skip("cgroup.kill is of Linux 5.14")
	}
	return dir
}

func TestControlGroupEndsWhatLeftTheProcessGroup(t *testing.T) {
	dir, mark := parent(t), mark(t)
	path, args := self(t, "escape")
	results := make(chan Result, 1)
	stop := run(t, Config{
		Name: "a/b ä", Spread: 1, InvokeInterval: time.Hour, Cgroup: dir, Checks: []Check{{Name: "c", Path: path, Args: args}},
	}, results)
	if r := <-results; r.Status != OK || r.Message != "escaped" {
		t.Errorf("%+v", r)
	}
	until(t, "end of its processes", func() bool { return marked(t, mark) == 0 })
	if _, err := os.Stat(filepath.Join(dir, "kernosis-check-a_b__", "0")); err != nil {
		t.Error(err)
	}
	stop()
	if left, _ := filepath.Glob(dir + "/kernosis-*"); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
}

func TestProcessesOfACheckAreBounded(t *testing.T) {
	dir, mark := parent(t), mark(t)
	results := make(chan Result, 1)
	run(t, Config{
		Name: "t", Spread: 1, InvokeInterval: time.Hour, Timeout: patience, Cgroup: dir, MaxProcesses: 50,
		// Each in a session of its own, and out of the process group.
		Checks: []Check{{Name: "bomb", Path: script(t, "i=0; while [ $i -lt 2000 ]; do i=$((i+1)); setsid sleep 1000 & done; wait")}},
	}, results)
	r := <-results
	if r.Status != Unknown || r.Duration > patience/2 {
		t.Errorf("%+v", r)
	}
	if counted := !hasPids(dir); counted && !errors.Is(r.Err, ErrProcesses) {
		t.Errorf("error %v, want %v", r.Err, ErrProcesses)
	}
	until(t, "end of its processes", func() bool { return marked(t, mark) == 0 })
}

// TestControlGroupIsUsedAgain: also one in which something had to be killed.
func TestControlGroupIsUsedAgain(t *testing.T) {
	dir, mark := parent(t), mark(t)
	path, args := self(t, "escape")
	results := make(chan Result, 1)
	stop := run(t, Config{
		Name: "again", Spread: 1, InvokeInterval: 50 * time.Millisecond, Timeout: patience, Cgroup: dir,
		Checks: []Check{
			{Name: "plain", Path: script(t, "echo fine")},
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
	until(t, "end of its processes", func() bool { return marked(t, mark) == 0 })
	if left, _ := filepath.Glob(dir + "/kernosis-*"); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
}

// TestControlGroupThatCannotBeEntered takes a folder that is none for one.
func TestControlGroupThatCannotBeEntered(t *testing.T) {
	dir, err := os.Open(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer dir.Close()
	var log bytes.Buffer
	g := &group{dir: dir.Name(), fd: int(dir.Fd()), log: slog.New(slog.NewTextHandler(&log, nil))}
	for range 2 {
		p := Program{Path: script(t, "echo ran"), Timeout: patience, group: g}
		if o := p.Run(t.Context()); o.Err != nil || string(o.Stdout) != "ran\n" {
			t.Errorf("%v %q", o.Err, o.Stdout)
		}
	}
	if n := strings.Count(log.String(), "checks run without a control group"); n != 1 || !strings.Contains(log.String(), "bad file descriptor") {
		t.Errorf("log: %s", log.String())
	}
	p := Program{Path: "/no/such", Timeout: patience, group: &group{fd: int(dir.Fd()), log: g.log}}
	if o := p.Run(t.Context()); !errors.Is(o.Err, fs.ErrNotExist) || p.group.disabled.Load() {
		t.Errorf("%v", o.Err)
	}
}

func hasPids(dir string) bool {
	b, err := os.ReadFile(filepath.Join(dir, "cgroup.controllers"))
	return err == nil && strings.Contains(string(b), "pids")
}

func TestWhatAKilledAgentLeftIsKilled(t *testing.T) {
	dir, mark := parent(t), mark(t)
	old := groupDir(dir, "t")
	groups, err := openGroups(old, 3, 10, nil)
	if err != nil {
		t.Fatal(err)
	}
	p := Program{Path: script(t, "sleep 1000 >/dev/null 2>&1"), Timeout: patience, group: groups[2]}
	left, err := p.start()
	if err != nil {
		t.Fatal(err)
	}
	until(t, "start", func() bool { return marked(t, mark) == 2 })
	results := make(chan Result, 1)
	run(t, Config{Name: "t", Spread: 1, Cgroup: dir, Checks: []Check{{Name: "c", Path: script(t, "echo new")}}}, results)
	if r := <-results; r.Message != "new" {
		t.Errorf("%+v", r)
	}
	<-left.exited
	close(left.release)
	<-left.ended
	left.stdout.close()
	left.stderr.close()
	until(t, "end of its processes", func() bool { return marked(t, mark) == 0 })
	for _, g := range groups {
		_ = os.NewFile(uintptr(g.fd), "").Close()
	}
}
