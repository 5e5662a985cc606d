package inject_test

import (
	"errors"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"strconv"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/kernosis/kernosis/cmd/kernosis/inject"
)

func TestOOM(t *testing.T) {
	o := &inject.OOM{StateDir: stateDir(t)}
	if err := o.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	defer o.Close()
	const want = 7
	pids := map[int]bool{}
	for range want {
		pid, err := o.Kill(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		pids[pid] = true
		if err := syscall.Kill(pid, 0); !errors.Is(err, syscall.ESRCH) {
			t.Errorf("child %d still there: %v", pid, err)
		}
	}
	if len(pids) != want || pids[o.MainPID()] {
		t.Errorf("killed %v, wanted %d processes other than %d", pids, want, o.MainPID())
	}
	// The kernel's own count, read here.
	if n := kernelKills(t, o.Cgroup()); n != want {
		t.Errorf("kernel counted %d kills, want %d", n, want)
	}
	procs, err := os.ReadFile(filepath.Join(o.Cgroup(), "cgroup.procs"))
	if got := string(procs); err != nil || got != strconv.Itoa(o.MainPID())+"\n" {
		t.Errorf("in the cgroup afterwards: %q (%v), want the main process %d", got, err, o.MainPID())
	}
	if err := o.Close(); err != nil {
		t.Error(err)
	}
	if left := tracesOf(os.Getpid()); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
}

// TestOOMStartedOnAThreadThatEnds starts the cgroup's main process from a goroutine whose
// thread ends with it. The main process must continue.
func TestOOMStartedOnAThreadThatEnds(t *testing.T) {
	o := &inject.OOM{StateDir: stateDir(t), Suffix: "-thread"}
	thread := make(chan int)
	started, other := make(chan error, 1), make(chan struct{})
	var start func()
	start = func() {
		runtime.LockOSThread() // never unlocked, so that the thread ends with the goroutine
		if unix.Gettid() == os.Getpid() {
			defer runtime.UnlockOSThread()
			go start() // on another thread: the main thread never ends
			<-other
			return
		}
		err := o.Start(t.Context())
		thread <- unix.Gettid()
		started <- err
	}
	go start()
	tid := <-thread
	close(other)
	if err := <-started; err != nil {
		t.Fatal(err)
	}
	defer o.Close()
	for unix.Tgkill(os.Getpid(), tid, 0) == nil {
		runtime.Gosched()
	}
	if _, err := o.Kill(t.Context()); err != nil {
		t.Error(err)
	}
}

func kernelKills(t *testing.T, cgroup string) int {
	t.Helper()
	for _, name := range []string{"memory.oom_control", "memory.events"} {
		b, err := os.ReadFile(filepath.Join(cgroup, name))
		if m := regexp.MustCompile(`(?m)^oom_kill (\d+)$`).FindSubmatch(b); err == nil && m != nil {
			n, _ := strconv.Atoi(string(m[1]))
			return n
		}
	}
	t.Fatalf("no count of kills in %s", cgroup)
	return 0
}

// A limit too small for the main process itself is an error.
func TestOOMLimitTooSmall(t *testing.T) {
	o := &inject.OOM{StateDir: stateDir(t), Memory: 64 << 10}
	err := o.Start(t.Context())
	if err == nil {
		_, err = o.Kill(t.Context())
	}
	if err == nil {
		t.Error("no error with a limit of 64 KiB")
	}
	t.Log(err)
	if err := o.Close(); err != nil {
		t.Error(err)
	}
	if left := tracesOf(os.Getpid()); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
}
