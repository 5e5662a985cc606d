package inject

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/kernosis/kernosis/collector/process"
)

// childArg0 is the argv[0] that marks a process of this binary as a child; the
// role follows. ps shows it too.
const childArg0 = "kernosis-inject-child"

const (
	// askLimit bounds one request to a child: the slowest valid answer is a
	// probe's time-out of 1 s; the rest is for a loaded machine.
	askLimit = 15 * time.Second
	// stopLimit is how long a child may take to exit once its stdin is closed.
	stopLimit = 5 * time.Second
)

// role is what a child process does.
type role struct {
	args int // number of arguments
	run  func(args []string) error
}

func roles() map[string]role {
	return map[string]role{
		"oom-main":     {1, oomMain},
		"oom-child":    {1, oomChild},
		"hang-holder":  {1, hangHolder},
		"writer":       {1, runWriter},
		"probe-target": {0, probeTarget},
		"prober":       {0, prober},
		"guard":        {2, guard},
	}
}

// RunChild runs the child process that args (os.Args) names, and reports whether args name one. main
// and TestMain call it first, and return if it returns true. A child that fails prints the reason and
// exits with status 1.
func RunChild(args []string) (handled bool) {
	if len(args) < 2 || args[0] != childArg0 {
		return false
	}
	r, ok := roles()[args[1]]
	if !ok || len(args) != 2+r.args {
		fmt.Fprintf(os.Stderr, "no such child: %q\n", args[1:])
		os.Exit(1)
	}
	if err := r.run(args[2:]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	return true
}

// child is a running child process. It answers requests in order, one JSON value per request; closing
// its stdin asks it to exit. Not safe for concurrent use.
type child struct {
	role   string
	cmd    *exec.Cmd
	stdin  io.WriteCloser
	stdout *os.File
	dec    *json.Decoder
	stderr bytes.Buffer
	done   bool
}

type childOptions struct {
	files    []*os.File // from fd 3 on
	newNet   bool       // in a network namespace of its own
	cgroup   string     // directory of a v2 cgroup to start in; empty: this process's
	detached bool       // survives the injector and the terminal's SIGINT
}

// startChild runs this binary again as a child with a role. Unless detached, the
// kernel kills the child when the injector dies.
func startChild(role string, opts childOptions, args ...string) (*child, error) {
	c := &child{role: role, cmd: childCommand(role, args...)}
	c.cmd.ExtraFiles = opts.files
	c.cmd.Stderr = &c.stderr
	// Grandchildren inherit stderr; don't wait for them when the child is gone.
	c.cmd.WaitDelay = time.Second
	if opts.newNet {
		c.cmd.SysProcAttr.Cloneflags |= unix.CLONE_NEWNET
	}
	if opts.detached {
		c.cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
		c.cmd.Dir = "/"
	}
	if opts.cgroup != "" {
		dir, err := os.Open(opts.cgroup)
		if err != nil {
			return nil, fmt.Errorf("start %s: cgroup: %w", role, err)
		}
		defer dir.Close()
		c.cmd.SysProcAttr.UseCgroupFD, c.cmd.SysProcAttr.CgroupFD = true, int(dir.Fd())
	}
	var err error
	if c.stdin, err = c.cmd.StdinPipe(); err != nil {
		return nil, fmt.Errorf("start %s: %w", role, err)
	}
	out, err := c.cmd.StdoutPipe()
	if err != nil {
		_ = c.stdin.Close()
		return nil, fmt.Errorf("start %s: %w", role, err)
	}
	c.stdout = out.(*os.File) // os/exec documents no deadline, but its pipe has one
	c.dec = json.NewDecoder(out)
	start := process.StartTied
	if opts.detached {
		start = (*exec.Cmd).Start
	}
	if err := start(c.cmd); err != nil {
		return nil, fmt.Errorf("start %s: %w", role, err)
	}
	return c, nil
}

// childCommand returns the command of a child, in a process group of its own, so that the terminal's
// SIGINT only reaches the injector.
func childCommand(role string, args ...string) *exec.Cmd {
	return &exec.Cmd{
		Path:        "/proc/self/exe",
		Args:        append([]string{childArg0, role}, args...),
		SysProcAttr: &syscall.SysProcAttr{Setpgid: true},
	}
}

func (c *child) pid() int { return c.cmd.Process.Pid }

// answer is a child's reply on the wire.
type answer[T any] struct {
	Error string `json:"error,omitempty"`
	Reply T      `json:"reply"`
}

// send sends a request without waiting for the reply.
func (c *child) send(request any) error {
	if err := json.NewEncoder(c.stdin).Encode(request); err != nil {
		return fmt.Errorf("ask %s[%d]: %w", c.role, c.pid(), err)
	}
	return nil
}

// receive waits for the next reply, at most askLimit.
func receive[T any](ctx context.Context, c *child) (T, error) {
	var a answer[T]
	if err := c.stdout.SetReadDeadline(time.Now().Add(askLimit)); err != nil {
		return a.Reply, fmt.Errorf("answer of %s[%d]: %w", c.role, c.pid(), err)
	}
	stop := context.AfterFunc(ctx, func() { _ = c.stdout.SetReadDeadline(time.Unix(1, 0)) })
	defer stop()
	err := c.dec.Decode(&a)
	switch {
	case ctx.Err() != nil:
		return a.Reply, ctx.Err()
	case errors.Is(err, io.EOF):
		return a.Reply, fmt.Errorf("%s[%d] died: %w", c.role, c.pid(), c.wait())
	case err != nil:
		return a.Reply, fmt.Errorf("answer of %s[%d]: %w", c.role, c.pid(), err)
	case a.Error != "":
		return a.Reply, fmt.Errorf("%s[%d]: %s", c.role, c.pid(), a.Error)
	}
	return a.Reply, nil
}

func ask[T any](ctx context.Context, c *child, request any) (T, error) {
	if err := c.send(request); err != nil {
		var none T
		return none, err
	}
	return receive[T](ctx, c)
}

// wait reaps the child and returns how it ended, with what it printed to stderr.
func (c *child) wait() error {
	if c.done {
		return errors.New("already ended")
	}
	err := c.cmd.Wait()
	c.done = true
	_ = c.stdin.Close()
	if text := strings.TrimSpace(c.stderr.String()); err != nil && text != "" {
		return fmt.Errorf("%w: %.400s", err, text)
	}
	if err == nil {
		return errors.New("ended")
	}
	return err
}

// stop asks the child to exit, kills it if it doesn't, and reaps it. A child
// in uninterruptible sleep only ends when its fault is healed.
func (c *child) stop() {
	if c == nil || c.done {
		return
	}
	_ = c.stdin.Close()
	kill := time.AfterFunc(stopLimit, func() { _ = c.cmd.Process.Kill() })
	defer kill.Stop()
	_ = c.wait() // how it ends no longer matters
}

// serve is a child's main loop: it answers requests from stdin until the end.
func serve[Q, R any](handle func(Q) (R, error)) error {
	dec, enc := json.NewDecoder(os.Stdin), json.NewEncoder(os.Stdout)
	for {
		var q Q
		if err := dec.Decode(&q); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return fmt.Errorf("read request: %w", err)
		}
		var a answer[R]
		var err error
		if a.Reply, err = handle(q); err != nil {
			a.Error = err.Error()
		}
		if err := enc.Encode(a); err != nil {
			return fmt.Errorf("write reply: %w", err)
		}
	}
}
