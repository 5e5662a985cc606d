package process

import (
	"cmp"
	"errors"
	"os/exec"
	"runtime"
	"syscall"

	"golang.org/x/sys/unix"
)

// StartTied starts a command that the kernel kills when this process ends for any reason;
// SysProcAttr.Pdeathsig may be another signal than SIGKILL. The kernel sends that signal when the
// thread that forked ends, and Go ends a thread with a goroutine that is locked to it. So the
// command has a thread of its own, which stays until the command has exited. The caller waits for
// the command as usual.
func StartTied(cmd *exec.Cmd) error {
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = &syscall.SysProcAttr{}
	}
	cmd.SysProcAttr.Pdeathsig = cmp.Or(cmd.SysProcAttr.Pdeathsig, syscall.SIGKILL)
	started := make(chan error, 1)
	go func() {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := cmd.Start()
		var pid int
		if err == nil {
			pid = cmd.Process.Pid
		}
		started <- err
		if err == nil {
			awaitExit(pid)
		}
	}()
	return <-started
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
