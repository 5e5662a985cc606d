package inject

import (
	"context"
	"fmt"
	"os"
	"runtime"
	"strconv"
	"strings"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/kernosis/kernosis/collector/hostfs"
)

// Task names a thread of a child process.
type Task struct {
	PID  int    // thread group
	TID  int    // thread; equal to PID for the main thread
	Comm string // at most 15 characters
}

func (t Task) String() string { return fmt.Sprintf("%s[%d]", t.Comm, t.PID) }

// setComm names the calling process and locks the calling goroutine to its thread, which gets the
// same name, because faults are reported with the name of the affected thread. It returns the thread.
func setComm(comm string) (Task, error) {
	runtime.LockOSThread()
	// /proc/self/comm is the main thread's, PR_SET_NAME the calling thread's.
	if err := os.WriteFile("/proc/self/comm", []byte(comm), 0); err != nil {
		return Task{}, fmt.Errorf("name process %s: %w", comm, err)
	}
	name := append([]byte(comm), 0)
	if err := unix.Prctl(unix.PR_SET_NAME, uintptr(unsafe.Pointer(&name[0])), 0, 0, 0); err != nil {
		return Task{}, fmt.Errorf("name thread %s: %w", comm, err)
	}
	return Task{PID: os.Getpid(), TID: unix.Gettid(), Comm: comm}, nil
}

// State returns the task's state letter in /proc (D: uninterruptible sleep).
func (t Task) State() (byte, error) {
	stat, err := hostfs.New("/").Stat(t.TID)
	return stat.State, err
}

// WaitChannel returns the kernel function the task sleeps in, or "" if the kernel doesn't report it.
func (t Task) WaitChannel() string {
	channel, _ := hostfs.New("/").WaitChannel(t.TID)
	return channel
}

// waitHang waits until the task hangs: in state D, and without a context switch during several
// looks. (A single look may catch a page being read, or the task on its way to sleep.)
func (t Task) waitHang(ctx context.Context) error {
	const looks = 4
	seen, last := 0, ""
	return waitFor(ctx, 5*time.Second, t.String()+" to hang", func() (bool, error) {
		state, err := t.State()
		if err != nil {
			return false, err
		}
		switches, err := t.switches()
		if state != 'D' || switches != last {
			seen = 0
		}
		seen++
		last = switches
		return seen >= looks && state == 'D', err
	})
}

// switches returns the lines of the task's status that count its context switches.
func (t Task) switches() (string, error) {
	status, err := os.ReadFile("/proc/" + strconv.Itoa(t.PID) + "/task/" + strconv.Itoa(t.TID) + "/status")
	_, switches, _ := strings.Cut(string(status), "voluntary_ctxt_switches:")
	return switches, err
}

// waitFor polls cond until it returns true or an error, limit has passed, or ctx is done.
func waitFor(ctx context.Context, limit time.Duration, what string, cond func() (bool, error)) error {
	ctx, cancel := context.WithTimeoutCause(ctx, limit, fmt.Errorf("not within %s", limit))
	defer cancel()
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	for {
		if ok, err := cond(); err != nil {
			return fmt.Errorf("wait for %s: %w", what, err)
		} else if ok {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("wait for %s: %w", what, context.Cause(ctx))
		case <-tick.C:
		}
	}
}
