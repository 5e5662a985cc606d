// Package process runs the programs of test servers. They end with the process that started them,
// even if that is killed.
//
// Only tests may import it.
package process

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	tied "github.com/kernosis/kernosis/collector/process"
	"github.com/kernosis/kernosis/vmtest/testenv"
)

// Process is a started program. Its methods may be called concurrently.
type Process struct {
	name string
	log  string // path of the file with its output
	cmd  *exec.Cmd
	done chan struct{} // closed when the program has ended
}

// Path returns this process's PATH and the folders of root's programs, which it may lack.
func Path() string { return os.Getenv("PATH") + ":/usr/local/sbin:/usr/sbin:/sbin" }

// Find returns the path of an installed program.
func Find(name string) (string, error) {
	for _, dir := range filepath.SplitList(Path()) {
		if path, err := exec.LookPath(filepath.Join(dir, name)); err == nil {
			return path, nil
		}
	}
	return "", fmt.Errorf("%s is not installed", name)
}

// Start starts a command; its output is appended to the file log. The command gets its own process
// group, so that an interrupt at the terminal reaches only the tests, which then stop the command.
func Start(cmd *exec.Cmd, name, log string) (*Process, error) {
	return StartBy(tied.StartTied, cmd, name, log)
}

// StartBy starts a command like Start, but through a function of the caller, which may choose the
// thread. The program ends with that thread.
func StartBy(start func(*exec.Cmd) error, cmd *exec.Cmd, name, log string) (*Process, error) {
	out, err := os.OpenFile(log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, err
	}
	defer out.Close() // the program has its own copy
	cmd.Stdout, cmd.Stderr = out, out
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = &syscall.SysProcAttr{}
	}
	cmd.SysProcAttr.Setpgid, cmd.SysProcAttr.Pdeathsig = true, syscall.SIGKILL
	if err := start(cmd); err != nil {
		return nil, fmt.Errorf("start %s: %w", name, err)
	}
	p := &Process{name: name, log: log, cmd: cmd, done: make(chan struct{})}
	go func() {
		defer close(p.done)
		_ = cmd.Wait()
	}()
	return p, nil
}

// PID returns its process ID.
func (p *Process) PID() int { return p.cmd.Process.Pid }

// Running reports whether the program has not ended.
func (p *Process) Running() bool {
	select {
	case <-p.done:
		return false
	default:
		return true
	}
}

// Signal sends it a signal.
func (p *Process) Signal(s os.Signal) error {
	err := p.cmd.Process.Signal(s)
	if errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("%s is not running", p.name)
	}
	return err
}

// Stopped reports whether all its threads have been stopped by SIGSTOP. It returns true once per
// stop.
func (p *Process) Stopped() (bool, error) {
	var info unix.Siginfo
	err := unix.Waitid(unix.P_PID, p.cmd.Process.Pid, &info, unix.WSTOPPED|unix.WNOHANG, nil)
	if errors.Is(err, unix.EINTR) {
		return false, nil
	}
	return info.Signo != 0, err
}

// Stop ends the program by a signal, and by SIGKILL if it has not ended after patience.
func (p *Process) Stop(s syscall.Signal, patience time.Duration) {
	_ = p.Signal(s)
	_ = p.Signal(syscall.SIGCONT) // a stopped process handles no other signal
	select {
	case <-p.done:
	case <-time.After(patience):
		_ = p.Signal(syscall.SIGKILL)
	}
	<-p.done
}

// RunUntilEnd runs a command until the test ends, with its output in log. It must then end without an
// error after SIGTERM. If the test has failed, the log is printed.
func RunUntilEnd(tb testing.TB, cmd *exec.Cmd, log *testenv.LogBuffer) {
	tb.Helper()
	cmd.Stderr = log
	if cmd.Stdout == nil {
		cmd.Stdout = log
	}
	if err := tied.StartTied(cmd); err != nil {
		tb.Fatal(err)
	}
	name := filepath.Base(cmd.Path)
	tb.Cleanup(func() {
		_ = cmd.Process.Signal(syscall.SIGTERM)
		kill := time.AfterFunc(testenv.Within(20*time.Second), func() { _ = cmd.Process.Kill() })
		defer kill.Stop()
		if err := cmd.Wait(); err != nil {
			tb.Errorf("%s ended with %v", name, err)
		}
		if tb.Failed() {
			tb.Logf("log of %s:\n%s", name, log)
		}
	})
}

// UntilReady calls ask repeatedly until it returns no error. It fails when one of the programs has
// ended, or when ctx ends; the error then contains the end of that program's log, or of the first
// one's.
func UntilReady(ctx context.Context, ask func(context.Context) error, programs ...*Process) error {
	again := time.NewTicker(25 * time.Millisecond)
	defer again.Stop()
	for {
		err := ask(ctx)
		if err == nil {
			return nil
		}
		for _, p := range programs {
			if !p.Running() {
				return p.Explain("ended while it was starting")
			}
		}
		select {
		case <-again.C:
		case <-ctx.Done():
			return fmt.Errorf("%w: %w", context.Cause(ctx), programs[0].Explain(err.Error()))
		}
	}
}

// UntilListens is [UntilReady] for a program that listens at a unix socket.
func UntilListens(ctx context.Context, socket string, program *Process) error {
	return UntilReady(ctx, func(ctx context.Context) error {
		c, err := new(net.Dialer).DialContext(ctx, "unix", socket)
		if err != nil {
			return err
		}
		return c.Close()
	}, program)
}

// Explain returns an error for a program that has ended unexpectedly, with the end of its log.
func (p *Process) Explain(what string) error {
	text, err := os.ReadFile(p.log)
	if err != nil {
		return fmt.Errorf("%s %s; %w", p.name, what, err)
	}
	return fmt.Errorf("%s %s; the end of its log:\n%s", p.name, what, LastLines(text, 30))
}

// LastLines returns the last lines of a text, at most n.
func LastLines(text []byte, n int) []byte {
	text = bytes.TrimRight(text, "\n")
	at := len(text)
	for ; n > 0 && at > 0; n-- {
		at = max(bytes.LastIndexByte(text[:at], '\n'), 0)
	}
	return bytes.TrimLeft(text[at:], "\n")
}

// After starts a shell that runs a script, with arguments $0, $1 and so on, when this process has
// ended: the kernel then closes the pipe that the shell waits for, even if the process is killed.
// The returned function runs the script at once; it returns when the script has ended, with its
// output if it failed. It may be called once.
func After(script string, args ...string) (now func() error, err error) {
	r, w, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	var said strings.Builder
	//nolint:noctx // it has to outlive this process
	cmd := exec.Command("/bin/sh", append([]string{"-c", "read -r _\n" + script}, args...)...)
	cmd.Stdin = r
	cmd.Stdout, cmd.Stderr = &said, &said
	cmd.Dir = "/"
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	err = cmd.Start()
	_ = r.Close()
	if err != nil {
		return nil, errors.Join(err, w.Close())
	}
	return func() error {
		err := errors.Join(w.Close(), cmd.Wait())
		if err != nil {
			return fmt.Errorf("clean up: %w: %s", err, strings.TrimSpace(said.String()))
		}
		return nil
	}, nil
}

// TempDir creates a folder like [os.MkdirTemp]. It is removed when this process has ended, even if
// that is killed; remove removes it at once.
func TempDir(in, pattern string) (dir string, remove func() error, err error) {
	if dir, err = os.MkdirTemp(in, pattern); err != nil {
		return "", nil, err
	}
	// Killed programs may still be writing.
	remove, err = After(`for i in 1 2 3 4 5 6 7 8 9 10; do rm -rf -- "$0" 2>/dev/null && exit; sleep 0.2; done`, dir)
	if err != nil {
		err = errors.Join(err, os.RemoveAll(dir))
	}
	return dir, remove, err
}
