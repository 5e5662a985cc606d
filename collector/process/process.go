package process

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// drainFor is how long processes that the program started may still write after its own end:
	// the tee of "exec > >(tee …)" ends a moment later.
	drainFor = 500 * time.Millisecond
	// killFor is how long a killed process may take to end. Freeing the memory of a large process may
	// take this long; if it takes longer, the process is in uninterruptible sleep.
	killFor = 2 * time.Second
	// countEvery is how often processes are counted if the kernel doesn't limit them.
	countEvery = 100 * time.Millisecond
)

// DefaultKeep is how much of each stream is kept by default, as in node-problem-detector.
const DefaultKeep = 4 << 10

// maxTail is how much of the end of a stream is kept in addition: a few lines.
const maxTail = 1 << 10

// The reasons for ending a run.
var (
	ErrTimeout   = errors.New("time limit reached")
	ErrProcesses = errors.New("too many processes")
	// ErrStuck: the program was killed but has not ended, because it is in uninterruptible sleep. [Runs]
	// also returns it for later runs that it does not start because of that.
	ErrStuck = errors.New("killed, but has not ended")
)

// Program is a program to run once. See the package comment for its limits.
type Program struct {
	Path    string
	Args    []string
	Env     []string      // nil: the agent's
	Dir     string        // working directory; "": the agent's
	Timeout time.Duration // 0: only the context's
	Files   []*os.File    // available to it as 3, 4, …

	Keep       int // bytes kept of each stream; 0: DefaultKeep
	KeepMerged int // bytes kept of both together, in the order in which they are read; 0: none

	// User is the user it runs as; nil: the agent's.
	User *syscall.Credential
	// Confined prevents it from gaining rights: set-user-ID programs and file capabilities have no
	// effect (no_new_privs), and ambient capabilities are cleared.
	Confined bool

	Group *Group // nil: none
	// Strict: don't run it if it can't be started in its Group.
	Strict bool
}

// Outcome is the result of a Program.
type Outcome struct {
	// Stdout and Stderr are the beginning of its output; StderrEnd is the end, at most 1 KiB.
	Stdout, Stderr, StderrEnd []byte
	// Dropped is how many bytes of its standard output were omitted.
	Dropped uint64
	// Merged is the beginning of both streams, and MergedDropped how many bytes were omitted.
	Merged        []byte
	MergedDropped uint64
	// State is nil if it was not started or has not ended.
	State *os.ProcessState
	// Duration is from before its start to its end.
	Duration time.Duration
	// Err is why it did not end by itself: a failed start, ErrTimeout, ErrProcesses, ErrStuck, the context.
	Err error
	// Started is false if it was not started; Err is the reason then.
	Started bool
}

// Run runs the program until it ends, its time is up or ctx ends.
func (p *Program) Run(ctx context.Context) Outcome {
	o, _ := p.run(ctx)
	return o
}

// run implements Run. It also returns the process; nil if it was not started.
func (p *Program) run(ctx context.Context) (Outcome, *process) {
	began := time.Now()
	run, err := p.start()
	if err != nil {
		return Outcome{Err: err, Duration: time.Since(began)}, nil
	}
	o := run.supervise(ctx, p.Timeout)
	o.Duration = time.Since(began)
	return o, run
}

// process is a running program.
type process struct {
	cmd            *exec.Cmd
	stdout, stderr *capture
	both           *merged
	group          *Group // nil: it is in none
	dir            string // of the group when it was started

	exited <-chan struct{} // closed when it has exited, and is a zombie
	ended  chan struct{}   // closed when it was waited for
}

// start starts the program in its control group, or without one if that is not possible.
func (p *Program) start() (*process, error) {
	fd, ok := p.Group.enter()
	if !ok {
		if p.Strict {
			return nil, errors.New("can't enter its control group")
		}
		return p.fork(-1)
	}
	run, err := p.fork(fd)
	if err == nil || p.Strict || errors.Is(err, unix.ETXTBSY) {
		return run, err // ETXTBSY: it is being written; a retry may succeed
	}
	// clone3 with a control group may be forbidden (seccomp): then run it without one.
	again, other := p.fork(-1)
	if other == nil {
		p.Group.unusable(err)
	}
	return again, other
}

// fork starts the program; cgroup is a directory, or negative.
func (p *Program) fork(cgroup int) (*process, error) {
	both, keep := &merged{kept: kept{limit: p.KeepMerged}}, cmp.Or(p.Keep, DefaultKeep)
	stdout, outEnd, err := newCapture(keep, both)
	if err != nil {
		return nil, fmt.Errorf("make pipe: %w", err)
	}
	stderr, errEnd, err := newCapture(keep, both)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("make pipe: %w", err), stdout.r.Close(), outEnd.Close())
	}
	//nolint:noctx // a context kills the process only, and not its group
	cmd := exec.Command(p.Path, p.Args...)
	cmd.Env, cmd.Dir, cmd.ExtraFiles = p.Env, p.Dir, p.Files
	cmd.Stdout, cmd.Stderr = outEnd, errEnd
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Credential: p.User}
	if cgroup >= 0 {
		cmd.SysProcAttr.UseCgroupFD, cmd.SysProcAttr.CgroupFD = true, cgroup
	}
	run := &process{cmd: cmd, stdout: stdout, stderr: stderr, both: both, ended: make(chan struct{})}
	if cgroup >= 0 {
		run.group, run.dir = p.Group, p.Group.dir
	}
	run.exited, err = startTied(cmd, p.Confined)
	_, _ = outEnd.Close(), errEnd.Close() // the program has them
	if err != nil {
		return nil, errors.Join(err, stdout.r.Close(), stderr.r.Close())
	}
	go stdout.run()
	go stderr.run()
	return run, nil
}

// supervise waits for the process and kills it when its time is up. Then it kills the processes that the
// program left behind.
func (r *process) supervise(ctx context.Context, limit time.Duration) Outcome {
	o := Outcome{Started: true}
	if o.Err = r.watch(ctx, limit); o.Err == nil {
		within(drainFor, r.stdout.done, r.stderr.done)
	}
	if r.kill() {
		r.group.killed = true
	}
	if o.Err != nil && !within(killFor, r.exited) {
		o.Err = errors.Join(o.Err, ErrStuck)
		go func() {
			<-r.exited
			r.kill()         // another run may have the group by now, in another directory
			_ = r.cmd.Wait() // its result was reported as stuck
			close(r.ended)
		}()
	} else {
		within(drainFor, r.stdout.done, r.stderr.done) // killed processes close their ends by themselves
		err := r.cmd.Wait()
		close(r.ended)
		if o.State = r.cmd.ProcessState; o.State == nil {
			// Another part of this process has waited for it.
			o.Err = errors.Join(o.Err, fmt.Errorf("wait for %s: %w", r.cmd.Path, err))
		}
	}
	r.stdout.close()
	r.stderr.close()
	o.Stdout, o.Stderr, o.StderrEnd, o.Dropped = r.stdout.bytes, r.stderr.bytes, r.stderr.tail, r.stdout.dropped
	o.Merged, o.MergedDropped = r.both.bytes, r.both.dropped
	return o
}

// watch waits for the end of the process. If the process must be killed first, watch returns the reason.
func (r *process) watch(ctx context.Context, limit time.Duration) error {
	var up <-chan time.Time // without a limit it never receives
	if limit > 0 {
		timer := time.NewTimer(limit)
		defer timer.Stop()
		up = timer.C
	}
	var count <-chan time.Time // never receives, unless the group has to be counted
	if r.group != nil && r.group.counted {
		ticker := time.NewTicker(countEvery)
		defer ticker.Stop()
		count = ticker.C
	}
	for {
		select {
		case <-r.exited:
			return nil
		case <-up:
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

// kill kills the process group, and the processes in the control group in which it was started.
// group is true if there were any. It must not be called once the process was waited for.
func (r *process) kill() (group bool) {
	// The leader is alive or a zombie, so the number still belongs to its group.
	_ = unix.Kill(-r.cmd.Process.Pid, unix.SIGKILL)
	return r.group != nil && r.group.of.kill(r.dir)
}

// within reports whether all channels are closed within d.
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

// kept is the beginning of an output, with the number of dropped bytes.
type kept struct {
	limit   int
	bytes   []byte
	dropped uint64
}

// add keeps as much as fits.
func (k *kept) add(b []byte) {
	n := min(len(b), k.limit-len(k.bytes))
	k.bytes = append(k.bytes, b[:n]...)
	k.dropped += uint64(len(b) - n)
}

// merged is the output of both streams, in the order in which it was read.
type merged struct {
	mu sync.Mutex
	kept
}

// capture reads one stream of a program: it keeps the first bytes and counts the rest.
type capture struct {
	r    *os.File
	done chan struct{} // closed when the stream has ended; read the other fields only then

	kept
	tail []byte // its end, also if it is in kept
	both *merged
}

// newCapture also returns the program's end of the pipe: close it once the program has it.
func newCapture(limit int, both *merged) (c *capture, w *os.File, err error) {
	r, w, err := os.Pipe()
	if err != nil {
		return nil, nil, err
	}
	return &capture{r: r, done: make(chan struct{}), kept: kept{limit: limit}, both: both}, w, nil
}

// run reads until the last writer has closed the pipe, or close is called.
func (c *capture) run() {
	defer close(c.done)
	buf := make([]byte, 64<<10) // the capacity of a pipe
	for {
		n, err := c.r.Read(buf)
		c.take(buf[:n])
		if err != nil {
			return
		}
	}
}

func (c *capture) take(b []byte) {
	c.add(b)
	if len(b) >= maxTail {
		c.tail = append(c.tail[:0], b[len(b)-maxTail:]...)
	} else {
		c.tail = append(c.tail[max(0, len(c.tail)+len(b)-maxTail):], b...)
	}
	if c.both.limit > 0 {
		c.both.mu.Lock()
		c.both.add(b)
		c.both.mu.Unlock()
	}
}

// close stops reading, even if processes could still write.
func (c *capture) close() {
	_ = c.r.Close()
	<-c.done
}
