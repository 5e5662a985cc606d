package plugin

import (
	"bytes"
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

func TestTimeLimitKillsTheWholeGroup(t *testing.T) {
	const (
		soon  = 300 * time.Millisecond // or there are thousands of processes
		later = time.Second            // when the shell has begun for sure
	)
	for _, c := range []struct {
		name, body string
		limit      time.Duration
	}{
		{"hang", "sleep 1000", later},
		{"hang ignoring SIGTERM", "trap '' TERM INT HUP\nwhile :; do sleep 1000; done", later},
		{"grandchild holds pipe", "sleep 1000 & sleep 1000 | cat", later},
		{"forks for ever", "while :; do sleep 1000 & done", soon},
		{"fork tree", "f() { [ $1 -gt 0 ] && { f $(($1-1)) & f $(($1-1)) & }; sleep 1000; }\nf 5", soon},
		{"each child forks again", "f() { n=$1; while [ $n -gt 0 ]; do n=$((n-1)); ( f $n ) & done; sleep 1000; }\nf 6", soon},
	} {
		t.Run(c.name, func(t *testing.T) {
			mark := mark(t)
			p := Program{Path: script(t, "echo begun\n"+c.body), Timeout: c.limit}
			o := p.Run(t.Context())
			if !errors.Is(o.Err, ErrTimeout) || errors.Is(o.Err, ErrStuck) {
				t.Errorf("error %v, want %v", o.Err, ErrTimeout)
			}
			if o.Duration < p.Timeout || o.Duration > patience {
				t.Errorf("took %v", o.Duration)
			}
			if c.limit == later && string(o.Stdout) != "begun\n" {
				t.Errorf("output %q", o.Stdout)
			}
			until(t, "end of all its processes", func() bool { return marked(t, mark) == 0 })
		})
	}
}

func TestGroupIsKilledAfterTheProgramsOwnEnd(t *testing.T) {
	mark := mark(t)
	p := Program{Path: script(t, "sleep 1000 &\necho done\nexit 1"), Timeout: patience}
	o := p.Run(t.Context())
	if o.Err != nil || o.State.ExitCode() != 1 || string(o.Stdout) != "done\n" {
		t.Errorf("%v %v %q", o.Err, o.State, o.Stdout)
	}
	if o.Duration > patience/2 {
		t.Errorf("a grandchild that holds the pipe open held it up: %v", o.Duration)
	}
	until(t, "end of the grandchild", func() bool { return marked(t, mark) == 0 })
}

func TestOutputOfAChildThatEndsLaterIsWaitedFor(t *testing.T) {
	// The child writes once it sees that its parent has ended.
	p := Program{Path: script(t, "(while kill -0 $$ 2>/dev/null && ! grep -q '^State:.Z' /proc/$$/status; do :; done; echo late) &\necho early"), Timeout: patience}
	if o := p.Run(t.Context()); string(o.Stdout) != "early\nlate\n" {
		t.Errorf("output %q", o.Stdout)
	}
}

func TestProcessThatLeftTheGroupHoldsUpNothing(t *testing.T) {
	mark := mark(t)
	path, args := self(t, "escape")
	p := Program{Path: path, Args: args, Timeout: patience}
	o := p.Run(t.Context())
	if o.Err != nil || o.State.ExitCode() != 0 || string(o.Stdout) != "escaped\n" {
		t.Errorf("%v %v %q", o.Err, o.State, o.Stdout)
	}
	// This is what a control group is for; see TestControlGroup.
	if n := marked(t, mark); n != 1 {
		t.Errorf("%d processes have escaped, want 1", n)
	}
	killMarked(t, mark)
}

// killMarked ends what a test has left on purpose.
func killMarked(t *testing.T, mark string) {
	t.Helper()
	all, err := filepath.Glob("/proc/[0-9]*/environ")
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range all {
		pid, err := strconv.Atoi(filepath.Base(filepath.Dir(p)))
		if err != nil || pid == os.Getpid() {
			continue
		}
		if b, err := os.ReadFile(p); err == nil && bytes.Contains(append(b, 0), []byte(mark)) {
			if proc, err := os.FindProcess(pid); err == nil {
				_ = proc.Kill()
			}
		}
	}
}

func TestFloodIsCountedAndTakesNoMemory(t *testing.T) {
	path, args := self(t, "flood")
	p := Program{Path: path, Args: args, Timeout: patience}
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	o := p.Run(t.Context())
	runtime.ReadMemStats(&after)
	if o.Err != nil || o.State.ExitCode() != 1 {
		t.Fatalf("%v %v", o.Err, o.State)
	}
	if len(o.Stdout) != maxOutput || o.Dropped != 1<<30-maxOutput {
		t.Errorf("%d bytes kept, %d dropped", len(o.Stdout), o.Dropped)
	}
	if grown := after.TotalAlloc - before.TotalAlloc; grown > 1<<20 {
		t.Errorf("%d bytes allocated", grown)
	}
	t.Logf("1 GiB in %v, %d bytes allocated", o.Duration, after.TotalAlloc-before.TotalAlloc)
}

func TestContextEndsTheProgram(t *testing.T) {
	mark := mark(t)
	ctx, cancel := context.WithCancel(t.Context())
	began := filepath.Join(t.TempDir(), "began")
	p := Program{Path: script(t, "touch "+began+"\nsleep 1000"), Timeout: patience}
	done := make(chan Outcome)
	go func() { done <- p.Run(ctx) }()
	until(t, "start", func() bool { _, err := os.Stat(began); return err == nil })
	cancel()
	if o := <-done; !errors.Is(o.Err, context.Canceled) {
		t.Errorf("error %v", o.Err)
	}
	until(t, "end of its processes", func() bool { return marked(t, mark) == 0 })
}

func TestProgramDiesWithTheAgent(t *testing.T) {
	mark := mark(t)
	path, args := self(t, "agent", script(t, "exec sleep 1000"))
	agent := exec.Command(path, args...)
	if err := agent.Start(); err != nil {
		t.Fatal(err)
	}
	until(t, "start of the check", func() bool { return marked(t, mark) == 2 })
	if err := agent.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = agent.Wait()
	until(t, "end of the check", func() bool { return marked(t, mark) == 0 })
}

func TestOrphansAreWaitedFor(t *testing.T) {
	path, args := self(t, "init", script(t, "for i in 1 2 3 4 5; do (sleep 0.01 & ) ; done\nexit 0"))
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
	// Anybody else gets none, and says so at once.
	if err := ReapOrphans(t.Context(), nil); err != nil {
		t.Error(err)
	}
}

// TestUnkillable freezes a program with the freezer of cgroup v1, whose processes
// are in uninterruptible sleep, as those that wait for a dead file server are.
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
		until(t, "end of the group", func() bool { return os.Remove(dir) == nil })
	})
	pidFile := filepath.Join(t.TempDir(), "pid")
	// Only the first run hangs.
	check := script(t, "[ -e "+pidFile+" ] && echo again && exit 0\necho $$ >"+pidFile+".new\nmv "+pidFile+".new "+pidFile+"\nexec sleep 1000")
	results := make(chan Result, 1000)
	cfg := Config{
		Name: "t", Spread: 1, InvokeInterval: 20 * time.Millisecond, Concurrency: 1, Timeout: 5 * time.Second, MaxOutputLength: 200,
		Checks: []Check{{Name: "frozen", Path: check}, {Name: "other", Path: script(t, "exit 0")}},
	}
	stop := run(t, cfg, results)
	var pid string
	until(t, "pid", func() bool {
		b, err := os.ReadFile(pidFile)
		pid = strings.TrimSpace(string(b))
		return err == nil
	})
	set("cgroup.procs", pid)
	set("freezer.state", "FROZEN")
	want := func(check string, ok func(Result) bool) {
		t.Helper()
		deadline := time.After(patience)
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
	want("frozen", func(r Result) bool { return errors.Is(r.Err, ErrTimeout) && errors.Is(r.Err, ErrStuck) })
	want("frozen", func(r Result) bool {
		return r.Status == Unknown && strings.HasPrefix(r.Message, "not run: the last run, of ")
	})
	want("other", func(r Result) bool { return r.Status == OK })
	set("freezer.state", "THAWED")
	want("frozen", func(r Result) bool { return r.Status == OK && r.Message == "again" })
	stop()
}
