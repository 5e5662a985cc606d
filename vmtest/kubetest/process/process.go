// Package process runs the programs that test servers consist of. They end with the
// process that started them, however that one ends.
//
// It must not be imported by anything but tests.
package process

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	tied "github.com/kernosis/kernosis/collector/process"
)

// Process is a program that runs. Its methods may be called by several goroutines.
type Process struct {
	name string
	log  string // path of the file with what it prints
	cmd  *exec.Cmd
	done chan struct{} // closed when it has ended
	err  error         // how; to be read after done
}

// Start starts a command; what it prints is appended to the file log. A group of its
// own keeps an interrupt at the terminal from it: that is for the tests, which end it
// in order.
func Start(cmd *exec.Cmd, name, log string) (*Process, error) {
	return StartBy(tied.StartTied, cmd, name, log)
}

// StartBy starts a command as Start does, but by a function of the caller's, which may
// choose the thread. The program ends with that thread.
func StartBy(start func(*exec.Cmd) error, cmd *exec.Cmd, name, log string) (*Process, error) {
	out, err := os.OpenFile(log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, err
	}
	defer out.Close() // the program has its own
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
		p.err = cmd.Wait()
	}()
	return p, nil
}

// PID returns its number.
func (p *Process) PID() int { return p.cmd.Process.Pid }

// Done is closed when it has ended.
func (p *Process) Done() <-chan struct{} { return p.done }

// Running reports whether it has not ended.
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

// Stopped reports whether all its threads have stopped for SIGSTOP. It is reported once a stop.
func (p *Process) Stopped() (bool, error) {
	var info unix.Siginfo
	err := unix.Waitid(unix.P_PID, p.cmd.Process.Pid, &info, unix.WSTOPPED|unix.WNOHANG, nil)
	if errors.Is(err, unix.EINTR) {
		return false, nil
	}
	return info.Signo != 0, err
}

// Stop ends it by a signal, and by SIGKILL where it has not ended after patience.
func (p *Process) Stop(s syscall.Signal, patience time.Duration) {
	_ = p.Signal(s)
	if s != syscall.SIGKILL {
		// One that is paused takes no other signal.
		_ = p.Signal(syscall.SIGCONT)
		timer := time.NewTimer(patience)
		defer timer.Stop()
		select {
		case <-p.done:
		case <-timer.C:
			_ = p.Signal(syscall.SIGKILL)
		}
	}
	<-p.done
}

// UntilReady asks again and again until there is no error. It fails when one of the programs has
// ended, or with ctx; the error then has the end of that program's log, or of the first one's.
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

// Explain returns the error of a program that was not expected to end, with the
// end of its log.
func (p *Process) Explain(what string) error {
	text, err := os.ReadFile(p.log)
	if err != nil {
		return fmt.Errorf("%s %s; %w", p.name, what, err)
	}
	return fmt.Errorf("%s %s; the end of its log:\n%s", p.name, what, LastLines(text, 30))
}

// LastLines returns at most n lines of a text's end.
func LastLines(text []byte, n int) []byte {
	text = bytes.TrimRight(text, "\n")
	at := len(text)
	for ; n > 0 && at > 0; n-- {
		at = max(bytes.LastIndexByte(text[:at], '\n'), 0)
	}
	return bytes.TrimLeft(text[at:], "\n")
}
