package collector

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/kernosis/kernosis/bpf"
	"github.com/kernosis/kernosis/cmd/kernosis/inject"
	"github.com/kernosis/kernosis/collector/event"
	"github.com/kernosis/kernosis/collector/hostfs"
	"github.com/kernosis/kernosis/vmtest/testenv"
)

// The child processes of real faults run this binary again.
func TestMain(m *testing.M) {
	if inject.RunChild(os.Args) {
		return
	}
	testenv.HoldKernelForProcess()
	os.Exit(m.Run())
}

// hungAgent is the hungtask stem as the agent runs it, on the real kernel. It stores the events of
// each thread.
type hungAgent struct {
	t        *testing.T
	l        *bpf.Loaded
	h        *hungtask
	events   map[uint32][]*event.Event
	nextLook time.Time
}

func newHungAgent(t *testing.T, after time.Duration) *hungAgent {
	t.Helper()
	k := openKernel(t)
	var err error
	a := &hungAgent{t: t, events: map[uint32][]*event.Event{}}
	for _, s := range bpf.Stems() {
		if s.Name == bpf.StemHungTask {
			a.l, err = bpf.Open(s, k, nil)
		}
	}
	t.Cleanup(func() { a.l.Close() })
	if err != nil {
		t.Fatal(err)
	}
	env := hungEnvironment(t, "", "")
	env.fs = hostfs.New("/")
	env.symbols = hostfs.NewSymbols(env.fs)
	env.cfg.HungTaskAfter = after
	if a.h, err = newHungTask(env, a.l); err != nil {
		t.Fatal(err)
	}
	return a
}

func (a *hungAgent) emit(ev *event.Event) {
	a.events[ev.Task.PID] = append(a.events[ev.Task.PID], ev.Clone())
}

// until runs the agent, at its own intervals, until cond holds.
func (a *hungAgent) until(what string, within time.Duration, cond func() bool) (took time.Duration) {
	a.t.Helper()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	start := time.Now()
	for ; ; <-tick.C {
		if now := time.Now(); !now.Before(a.nextLook) {
			every, err := a.h.poll(a.t.Context(), now, a.emit)
			if err != nil {
				a.t.Fatal(err)
			}
			a.nextLook = time.Now().Add(every)
		}
		if _, err := a.l.Drain(func(raw []byte) {
			head, err := bpf.ParseHeader(raw)
			if err != nil {
				a.t.Fatal(err)
			}
			var ev event.Event
			if _, err := a.h.decode(head, raw, &ev); err != nil {
				a.t.Fatal(err)
			}
			a.emit(&ev)
		}); err != nil {
			a.t.Fatal(err)
		}
		switch {
		case cond():
			return time.Since(start)
		case time.Since(start) > within:
			a.t.Fatalf("not within %s: %s", within, what)
		}
	}
}

// reported returns the number of a thread's events of a kind.
func (a *hungAgent) reported(pid int, kind event.Kind) (n int) {
	for _, ev := range a.events[uint32(pid)] {
		if ev.Kind == kind {
			n++
		}
	}
	return n
}

// A hang, from the report with holder and stack to its end.
func TestHungTaskLifeOnKernel(t *testing.T) {
	const after = time.Second
	a := newHungAgent(t, after)
	fault := &inject.HungTask{Limit: time.Minute}
	hang, err := fault.Start(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer fault.Close()
	pid := hang.Waiter.TID
	took := a.until("hang reported", after+hungLookSoon+testenv.Within(hungLookSoon), func() bool { return a.reported(pid, event.HungTask) > 0 })
	t.Logf("reported after %s", took)
	ev := a.events[uint32(pid)][0]
	d := ev.HungTask
	if int(ev.Task.TGID) != hang.Waiter.PID || ev.Task.Comm != hang.Waiter.Comm || d.Wait != "lock" || d.BlockedFor < event.Duration(after) {
		t.Errorf("task %+v, data %+v", ev.Task, d)
	}
	if stack := strings.Join(d.Stack, " "); !strings.Contains(stack, "pipe_write+0x") {
		t.Errorf("stack %q has no pipe_write", d.Stack)
	}
	if !strings.Contains(d.Stack[0], "mutex_lock") {
		t.Errorf("stack %q does not begin with mutex_lock", d.Stack)
	}
	if d.Lock != "" { // v6.16, CONFIG_DETECT_HUNG_TASK_BLOCKER
		if d.Lock != "mutex" || d.Holder == nil || int(d.Holder.PID) != hang.Holder.TID || int(d.Holder.TGID) != hang.Holder.PID || d.Holder.Comm != hang.Holder.Comm || d.HolderHint {
			t.Errorf("lock %s held by %+v, want %v", d.Lock, d.Holder, hang.Holder)
		}
	}
	if err := fault.Heal(t.Context()); err != nil {
		t.Fatal(err)
	}
	took = a.until("end reported", testenv.Within(10*time.Second), func() bool { return a.reported(pid, event.HungTaskResumed) > 0 })
	t.Logf("end reported after %s", took)
	end := a.events[uint32(pid)][1]
	if end.HungTask.Exited || end.HungTask.BlockedFor < d.BlockedFor || end.Task.ID() != ev.Task.ID() || end.Subject() != ev.Subject() || end.HungTask.LockAddr != d.LockAddr {
		t.Errorf("end %+v of %q", end.HungTask, end.Subject())
	}
	if n := len(a.events[uint32(pid)]); n != 2 {
		t.Errorf("%d events of one hang, want 2", n)
	}
}

// A hang that ends because its task exits.
func TestHungTaskExitOnKernel(t *testing.T) {
	a := newHungAgent(t, time.Second)
	fault := &inject.HungTask{Limit: time.Minute}
	hang, err := fault.Start(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer fault.Close()
	pid := hang.Waiter.TID
	a.until("hang reported", testenv.Within(5*time.Second), func() bool { return a.reported(pid, event.HungTask) > 0 })
	if err := unix.Kill(hang.Waiter.PID, unix.SIGKILL); err != nil {
		t.Fatal(err)
	}
	fault.Close()
	a.until("end reported", testenv.Within(10*time.Second), func() bool { return a.reported(pid, event.HungTaskResumed) > 0 })
	begin, end := a.events[uint32(pid)][0], a.events[uint32(pid)][1]
	if !end.HungTask.Exited || end.Task.ID() != begin.Task.ID() || end.Subject() != begin.Subject() || end.CPU != event.NoCPU || end.Time.IsZero() {
		t.Errorf("end %+v, %+v", end, end.HungTask)
	}
}

// A writer to a frozen filesystem waits for a lock, which only the stack shows.
func TestHungTaskOnFrozenFilesystemOnKernel(t *testing.T) {
	a := newHungAgent(t, time.Second)
	fault := &inject.FSFreeze{StateDir: t.TempDir(), Limit: time.Minute}
	hang, err := fault.Start(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := fault.Close(); err != nil {
			t.Error(err)
		}
	}()
	pid := hang.Waiter.TID
	a.until("hang reported", testenv.Within(5*time.Second), func() bool { return a.reported(pid, event.HungTask) > 0 })
	t.Logf("stack %q", a.events[uint32(pid)][0].HungTask.Stack)
	if d := a.events[uint32(pid)][0].HungTask; d.Wait != "lock" || d.Lock != "" || d.Holder != nil {
		t.Errorf("data %+v", d)
	}
	if err := fault.Heal(t.Context()); err != nil {
		t.Fatal(err)
	}
	a.until("end reported", testenv.Within(10*time.Second), func() bool { return a.reported(pid, event.HungTaskResumed) > 0 })
}

// vforkInto, as an environment variable, makes [TestHungTaskInVforkOnKernel] start a process in the
// cgroup of that directory.
const vforkInto = "KERNOSIS_TEST_VFORK_INTO"

// A parent sleeps in vfork until its child executes a program: in a frozen cgroup, until that is
// thawed.
func TestHungTaskInVforkOnKernel(t *testing.T) {
	if group := os.Getenv(vforkInto); group != "" {
		dir, err := os.Open(group)
		if err != nil {
			t.Fatal(err)
		}
		defer dir.Close()
		cmd := exec.Command("/proc/self/exe", "-test.run=^$") // a machine for tests may have no /bin/true
		cmd.SysProcAttr = &syscall.SysProcAttr{UseCgroupFD: true, CgroupFD: int(dir.Fd())}
		if err := cmd.Run(); err != nil {
			t.Fatal(err)
		}
		return
	}
	a := newHungAgent(t, time.Second)
	root := t.TempDir()
	if err := unix.Mount("cgroup2", root, "cgroup2", 0, ""); err != nil {
		t.Skipf("no cgroup v2: %v", err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(root, unix.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	group := filepath.Join(root, fmt.Sprintf("kernosis-vfork-%d", os.Getpid()))
	if err := os.Mkdir(group, 0o755); err != nil {
		t.Fatal(err)
	}
	freeze := func(value string) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(group, "cgroup.freeze"), []byte(value), 0); err != nil {
			t.Error(err)
		}
	}
	freeze("1")
	parent := exec.Command("/proc/self/exe", "-test.run=^TestHungTaskInVforkOnKernel$")
	parent.Env = append(os.Environ(), vforkInto+"="+group)
	t.Cleanup(func() {
		freeze("0")
		if parent.Process != nil {
			if err := parent.Wait(); err != nil {
				t.Error(err)
			}
		}
		testenv.Until(t, "the removal of the cgroup", 10*time.Second, func() bool { return unix.Rmdir(group) == nil })
	})
	if err := parent.Start(); err != nil {
		t.Fatal(err)
	}
	var hung *event.Event
	a.until("hang reported", testenv.Within(10*time.Second), func() bool {
		for _, of := range a.events {
			if int(of[0].Task.TGID) == parent.Process.Pid {
				hung = of[0]
			}
		}
		return hung != nil
	})
	if hung.Kind != event.HungTask || hung.HungTask.Wait != "process" {
		t.Errorf("%s, waits for %q in %q", hung.Kind, hung.HungTask.Wait, hung.HungTask.Stack)
	}
}
