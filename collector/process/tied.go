package process

import (
	"cmp"
	"errors"
	"fmt"
	"os/exec"
	"runtime"
	"syscall"

	"golang.org/x/sys/unix"
)

// StartTied starts a command that the kernel kills when this process ends for any reason;
// SysProcAttr.Pdeathsig may be another signal than SIGKILL. The caller waits for the command as usual.
func StartTied(cmd *exec.Cmd) error {
	_, err := startTied(cmd, false)
	return err
}

// startTied is StartTied; a confined command can't gain rights. exited is closed when the command has
// exited, and is a zombie.
//
// The kernel sends the death signal when the thread that forked ends, and Go ends a thread together
// with the goroutine that is locked to it. So each command has its own thread, which lives until the
// command has exited.
func startTied(cmd *exec.Cmd, confined bool) (exited <-chan struct{}, err error) {
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = &syscall.SysProcAttr{}
	}
	cmd.SysProcAttr.Pdeathsig = cmp.Or(cmd.SysProcAttr.Pdeathsig, syscall.SIGKILL)
	started, end := make(chan error, 1), make(chan struct{})
	go func() {
		runtime.LockOSThread()
		var err error
		if confined {
			// The thread keeps these settings, so it is not unlocked: it ends with this goroutine.
			err = confine()
		} else {
			defer runtime.UnlockOSThread()
		}
		if err == nil {
			err = cmd.Start()
		}
		started <- err
		if err == nil {
			awaitExit(cmd.Process.Pid)
			close(end)
		}
	}()
	return end, <-started
}

// awaitExit returns when a child has exited. It leaves the zombie, and with it the number of the
// process and its group, so that a signal can't reach another process.
func awaitExit(pid int) {
	for {
		if err := unix.Waitid(unix.P_PID, pid, nil, unix.WEXITED|unix.WNOWAIT, nil); !errors.Is(err, unix.EINTR) {
			return
		}
	}
}

// confine prevents this thread, and what it forks, from gaining rights.
func confine() error {
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return fmt.Errorf("set no_new_privs: %w", err)
	}
	if err := unix.Prctl(unix.PR_CAP_AMBIENT, unix.PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0); err != nil {
		return fmt.Errorf("clear ambient capabilities: %w", err)
	}
	return nil
}
