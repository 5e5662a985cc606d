package kubetest

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"syscall"
	"time"
)

// process is a program that runs. It ends with this one.
type process struct {
	name string
	log  string // path of the file with what it prints
	cmd  *exec.Cmd
	done chan struct{} // closed when it has ended
	err  error         // how; to be read after done
}

// startProcess starts a program; what it prints is appended to the file log.
func startProcess(path, name, log string, args ...string) (*process, error) {
	out, err := os.OpenFile(log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, err
	}
	defer out.Close() // the program has its own
	//nolint:noctx // it outlives the call, and is ended by stop
	cmd := exec.Command(path, args...)
	cmd.Stdout, cmd.Stderr = out, out
	// A group of its own: an interrupt at the terminal is for the tests, which end
	// it in order.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	p := &process{name: name, log: log, cmd: cmd, done: make(chan struct{})}
	started := make(chan error, 1)
	go func() {
		defer close(p.done)
		// Pdeathsig is sent when the thread that has forked ends, so that thread
		// has to stay as long as the program.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := cmd.Start()
		started <- err
		if err == nil {
			p.err = cmd.Wait()
		}
	}()
	if err := <-started; err != nil {
		return nil, fmt.Errorf("start %s: %w", name, err)
	}
	return p, nil
}

// running reports whether it has not ended.
func (p *process) running() bool {
	select {
	case <-p.done:
		return false
	default:
		return true
	}
}

func (p *process) signal(s os.Signal) error {
	err := p.cmd.Process.Signal(s)
	if errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("%s is not running", p.name)
	}
	return err
}

// stop ends it by a signal, and by SIGKILL where it has not ended after patience.
func (p *process) stop(s syscall.Signal, patience time.Duration) {
	_ = p.signal(s)
	if s != syscall.SIGKILL {
		// One that is paused takes no other signal.
		_ = p.signal(syscall.SIGCONT)
		timer := time.NewTimer(patience)
		defer timer.Stop()
		select {
		case <-p.done:
		case <-timer.C:
			_ = p.signal(syscall.SIGKILL)
		}
	}
	<-p.done
}

// explain returns the error of a program that was not expected to end, with the
// end of its log.
func (p *process) explain(what string) error {
	text, err := os.ReadFile(p.log)
	if err != nil {
		return fmt.Errorf("%s %s; %w", p.name, what, err)
	}
	return fmt.Errorf("%s %s; the end of its log:\n%s", p.name, what, lastLines(text, 30))
}

// lastLines returns at most n lines of a text's end.
func lastLines(text []byte, n int) []byte {
	text = bytes.TrimRight(text, "\n")
	at := len(text)
	for ; n > 0 && at > 0; n-- {
		at = max(bytes.LastIndexByte(text[:at], '\n'), 0)
	}
	return bytes.TrimLeft(text[at:], "\n")
}

// removeAfter starts a shell that removes a folder when this process has ended.
// Closing what it returns ends the shell's wait, and so does the kernel when it
// closes the files of a process that was killed.
func removeAfter(dir string) (closer func() error, err error) {
	r, w, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	// The programs may still be writing while they are being killed.
	const script = `read -r _; for i in 1 2 3 4 5 6 7 8 9 10; do rm -rf -- "$0" 2>/dev/null && exit; sleep 0.2; done`
	//nolint:noctx // it has to outlive this process
	cmd := exec.Command("/bin/sh", "-c", script, dir)
	cmd.Stdin = r
	cmd.Dir = "/"
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	err = cmd.Start()
	_ = r.Close()
	if err != nil {
		return nil, errors.Join(err, w.Close())
	}
	return func() error { return errors.Join(w.Close(), cmd.Wait()) }, nil
}
