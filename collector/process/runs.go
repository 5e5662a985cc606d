package process

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"github.com/kernosis/kernosis/collector/hostfs"
)

// Runs runs a program repeatedly, but not while processes of an earlier run exist that can't be killed:
// these would pile up as long as a disk hangs. The zero value is ready, for one goroutine at a time.
type Runs struct {
	last  *process // nil: there was none, or it has ended
	began time.Time
}

// Run is [Program.Run]. While an earlier run, or a process that it started, has not ended, it
// starts nothing and returns an [ErrStuck] with the time of that run.
func (r *Runs) Run(ctx context.Context, p *Program) Outcome {
	if r.last != nil && !r.last.over() {
		return Outcome{Err: fmt.Errorf("not run: the last run, of %s, was %w", r.began.UTC().Format(time.RFC3339), ErrStuck)}
	}
	r.began = time.Now()
	o, last := p.run(ctx)
	r.last = last
	if last != nil && !errors.Is(o.Err, ErrStuck) && last.overWithin(killFor) {
		r.last = nil
	}
	return o
}

// over reports whether the process and everything it started has ended.
func (r *process) over() bool {
	select {
	case <-r.ended:
		return r.empty()
	default:
		return false
	}
}

// overWithin is over, but waits up to d for killed processes to end.
func (r *process) overWithin(d time.Duration) bool {
	for deadline := time.Now().Add(d); !r.over(); {
		if time.Now().After(deadline) {
			return false
		}
		time.Sleep(5 * time.Millisecond) // there is no notification of the end of a process group
	}
	return true
}

// empty reports whether no process is left in the control group in which the process was started,
// or in its process group if there was none. The process must have been waited for.
func (r *process) empty() bool {
	if r.group != nil {
		has, err := populated(r.dir)
		return err != nil || !has
	}
	return !groupLives(r.cmd.Process.Pid)
}

// populated reports whether a control group has processes, not counting zombies.
func populated(dir string) (bool, error) {
	events, err := os.ReadFile(filepath.Join(dir, "cgroup.events"))
	return bytes.Contains(events, []byte("populated 1")), err
}

// groupLives reports whether a process group has processes after its leader was reaped. It ignores
// zombies, because zombies of orphans may stay for a while. While the group has processes, the kernel
// does not reuse its number for a new process.
func groupLives(id int) bool {
	if errors.Is(unix.Kill(-id, 0), unix.ESRCH) || unix.Kill(id, 0) == nil {
		return false
	}
	pids, err := hostfs.New("").PIDs()
	if err != nil {
		return true
	}
	for _, pid := range pids {
		if of, err := unix.Getpgid(pid); err == nil && of == id && lives(pid) {
			return true
		}
	}
	return false
}

// lives reports whether any thread of a process is still running.
func lives(pid int) bool {
	fd, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		return !errors.Is(err, unix.ESRCH)
	}
	defer unix.Close(fd)
	n, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, 0)
	return err != nil || n == 0
}
