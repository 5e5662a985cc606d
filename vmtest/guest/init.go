package guest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// Main is the machine's first process. It never returns, but powers off the machine at the end.
func Main() {
	verdict := serve()
	if err := report(verdict); err != nil {
		fmt.Fprintf(os.Stderr, "vmrun: report %+v: %v\n", verdict, err)
	}
	unix.Sync()
	err := unix.Reboot(unix.LINUX_REBOOT_CMD_POWER_OFF)
	// If the machine can't power off, a reset ends it too.
	fmt.Fprintf(os.Stderr, "vmrun: power off: %v\n", err)
	_ = unix.Reboot(unix.LINUX_REBOOT_CMD_RESTART)
	select {}
}

// serve carries out the plan.
func serve() Verdict {
	if err := mountAll(); err != nil {
		return Verdict{Error: err.Error()}
	}
	plan, err := readPlan()
	if err != nil {
		return Verdict{Error: err.Error()}
	}
	if len(plan.Args) == 0 {
		return Verdict{}
	}
	if err := mountCgroup(plan.Cgroup); err != nil {
		return Verdict{Error: err.Error()}
	}
	if err := loopbackUp(); err != nil {
		return Verdict{Error: err.Error()}
	}
	for _, e := range plan.Env {
		name, value, _ := strings.Cut(e, "=")
		if err := os.Setenv(name, value); err != nil {
			return Verdict{Error: err.Error()}
		}
	}
	for _, m := range plan.Modules {
		if out, err := exec.CommandContext(context.Background(), "modprobe", strings.Fields(m)...).CombinedOutput(); err != nil {
			return Verdict{Error: fmt.Sprintf("modprobe %s: %v: %s", m, err, out)}
		}
	}
	return run(plan)
}

// run runs the program to completion and reaps its orphans.
func run(plan Plan) Verdict {
	out, err := openPort(Output)
	if err != nil {
		return Verdict{Error: err.Error()}
	}
	defer out.Close()
	null, err := os.Open(os.DevNull)
	if err != nil {
		return Verdict{Error: err.Error()}
	}
	defer null.Close()
	p, err := os.StartProcess(plan.Args[0], plan.Args, &os.ProcAttr{
		Dir: plan.Dir, Files: []*os.File{null, out, out}, Sys: &syscall.SysProcAttr{Setsid: true},
	})
	if err != nil {
		return Verdict{Error: err.Error()}
	}
	for {
		var ws unix.WaitStatus
		pid, err := unix.Wait4(-1, &ws, 0, nil)
		switch {
		case errors.Is(err, unix.EINTR):
		case err != nil:
			return Verdict{Error: fmt.Sprintf("wait for process %d: %v", p.Pid, err)}
		case pid != p.Pid:
		case ws.Signaled():
			return Verdict{Signal: int(ws.Signal())}
		default:
			return Verdict{Exit: ws.ExitStatus()}
		}
	}
}

func report(v Verdict) error {
	port, err := openPort(Report)
	if err != nil {
		return err
	}
	defer port.Close()
	return json.NewEncoder(port).Encode(v)
}

// openPort opens a serial port in raw mode.
func openPort(path string) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_WRONLY|unix.O_NOCTTY, 0)
	if err != nil {
		return nil, err
	}
	t, err := unix.IoctlGetTermios(int(f.Fd()), unix.TCGETS)
	if err == nil {
		t.Oflag &^= unix.OPOST
		t.Lflag &^= unix.ECHO
		t.Cflag |= unix.CLOCAL
		err = unix.IoctlSetTermios(int(f.Fd()), unix.TCSETS, t)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("%s: %w", path, err), f.Close())
	}
	return f, nil
}
