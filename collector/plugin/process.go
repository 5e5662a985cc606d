package plugin

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// drainFor is how long after its own end what a program has started may still
	// write: the tee of "exec > >(tee …)" ends a moment later.
	drainFor = 500 * time.Millisecond
	// killFor is how long a killed process may take to end. It takes this long to
	// free the memory of a large one; longer is uninterruptible sleep.
	killFor = 2 * time.Second
	// countEvery is how often processes are counted where the kernel doesn't bound
	// them.
	countEvery = 100 * time.Millisecond
)

// Program is a program to be run once. See the package comment for what bounds it.
type Program struct {
	Path    string
	Args    []string
	Env     []string // nil: the agent's
	Timeout time.Duration

	group *group // nil: none
}

// Outcome is how a Program has ended.
type Outcome struct {
	// Stdout and Stderr are the beginning of what it has written, at most 4 KiB.
	Stdout, Stderr []byte
	// Dropped is how many bytes of its standard output are left out.
	Dropped uint64
	// State is nil where it was not started or has not ended.
	State *os.ProcessState
	// Duration is from before its start to its end.
	Duration time.Duration
	// Err is why it did not come to an end of its own: it could not be started,
	// ErrTimeout, ErrProcesses, ErrStuck, or the error of the context.
	Err error

	// ended is closed when the process is gone; only after ErrStuck it isn't yet.
	ended <-chan struct{}
}

// Run runs the program until it ends, its time is up or ctx ends.
func (p *Program) Run(ctx context.Context) Outcome {
	began := time.Now()
	run, err := p.start()
	if err != nil {
		return Outcome{Err: err, Duration: time.Since(began)}
	}
	o := run.supervise(ctx, p.Timeout)
	o.Duration = time.Since(began)
	return o
}

// process is a program that runs.
type process struct {
	cmd            *exec.Cmd
	stdout, stderr *capture
	group          *group

	exited  chan struct{} // closed when it has ended, and is a zombie
	release chan struct{} // closed when it may be waited for
	ended   chan struct{} // closed when that was done
	waited  error         // what came of it
}

// start starts the program in its control group, or without one where that can't
// be done.
func (p *Program) start() (*process, error) {
	fd, ok := p.group.enter()
	if !ok {
		return p.fork(-1)
	}
	run, err := p.fork(fd)
	if err == nil || errors.Is(err, unix.ETXTBSY) {
		return run, err // being written just now: a second try may succeed
	}
	// clone3 with a control group may be forbidden (seccomp), whatever the program
	// is like: then it runs without one.
	again, other := p.fork(-1)
	if other == nil {
		p.group.unusable(err)
	}
	return again, other
}

// fork starts the program; cgroup is a directory, or negative.
func (p *Program) fork(cgroup int) (*process, error) {
	stdout, outEnd, err := newCapture(maxOutput)
	if err != nil {
		return nil, fmt.Errorf("make pipe: %w", err)
	}
	stderr, errEnd, err := newCapture(maxOutput)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("make pipe: %w", err), stdout.r.Close(), outEnd.Close())
	}
	//nolint:noctx // a context kills the process only, and not its group
	cmd := exec.Command(p.Path, p.Args...)
	cmd.Env = p.Env
	cmd.Stdout, cmd.Stderr = outEnd, errEnd
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	if cgroup >= 0 {
		cmd.SysProcAttr.UseCgroupFD, cmd.SysProcAttr.CgroupFD = true, cgroup
	}
	run := &process{
		cmd: cmd, stdout: stdout, stderr: stderr,
		exited: make(chan struct{}), release: make(chan struct{}), ended: make(chan struct{}),
	}
	if cgroup >= 0 {
		run.group = p.group
	}
	started := make(chan error, 1)
	go run.hold(started)
	err = <-started
	_, _ = outEnd.Close(), errEnd.Close() // the program has them
	if err != nil {
		return nil, errors.Join(err, stdout.r.Close(), stderr.r.Close())
	}
	go stdout.run()
	go stderr.run()
	return run, nil
}

// hold starts the process and waits for it, all on one thread: the death signal
// comes when the thread that has forked ends.
func (r *process) hold(started chan<- error) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if err := r.cmd.Start(); err != nil {
		started <- err
		return
	}
	started <- nil
	for {
		// WNOWAIT leaves the zombie, and with it the number of the process and its
		// group, so that no signal of ours goes to anybody else.
		err := unix.Waitid(unix.P_PID, r.cmd.Process.Pid, nil, unix.WEXITED|unix.WNOWAIT, nil)
		if !errors.Is(err, unix.EINTR) {
			break
		}
	}
	close(r.exited)
	<-r.release
	r.waited = r.cmd.Wait()
	close(r.ended)
}

// supervise ends the process when its time is up, and what it leaves behind.
func (r *process) supervise(ctx context.Context, limit time.Duration) Outcome {
	o := Outcome{ended: r.ended}
	if o.Err = r.watch(ctx, limit); o.Err == nil {
		r.drained(drainFor)
	}
	r.kill()
	if o.Err != nil && !r.gone(killFor) {
		o.Err = errors.Join(o.Err, ErrStuck)
		go func() {
			<-r.exited
			r.kill()
			close(r.release)
		}()
	} else {
		r.drained(drainFor) // those that were killed close their ends by themselves
		close(r.release)
		<-r.ended
		if o.State = r.cmd.ProcessState; o.State == nil {
			// Somebody else in this process has waited for it.
			o.Err = errors.Join(o.Err, fmt.Errorf("wait for %s: %w", r.cmd.Path, r.waited))
		}
	}
	r.stdout.close()
	r.stderr.close()
	o.Stdout, o.Stderr, o.Dropped = r.stdout.kept, r.stderr.kept, r.stdout.dropped
	return o
}

// watch waits for the process's end, and returns why it is to be ended before.
func (r *process) watch(ctx context.Context, limit time.Duration) error {
	timer := time.NewTimer(limit)
	defer timer.Stop()
	var count <-chan time.Time // never, without a control group to be counted
	if r.group.counts() {
		ticker := time.NewTicker(countEvery)
		defer ticker.Stop()
		count = ticker.C
	}
	for {
		select {
		case <-r.exited:
			return nil
		case <-timer.C:
			return ErrTimeout
		case <-ctx.Done():
			return ctx.Err()
		case <-count:
			if r.group.overfull() {
				return ErrProcesses
			}
		}
	}
}

// kill ends the process group, and the control group where there is one. It must
// not be called once release is closed.
func (r *process) kill() {
	// The leader is alive or a zombie, so this is its group.
	_ = unix.Kill(-r.cmd.Process.Pid, unix.SIGKILL)
	r.group.kill()
}

// gone tells whether the process ends within d.
func (r *process) gone(d time.Duration) bool { return within(d, r.exited) }

// drained waits at most d for the end of the output.
func (r *process) drained(d time.Duration) { within(d, r.stdout.done, r.stderr.done) }

// within tells whether all channels are closed within d.
func within(d time.Duration, all ...<-chan struct{}) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	for _, c := range all {
		select {
		case <-c:
		case <-timer.C:
			return false
		}
	}
	return true
}
