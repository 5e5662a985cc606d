package machine

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

// Paths in the machine.
const (
	initPath    = "/vmrun"       // the first process; tests recognise the machine by this file
	planPath    = "/vmrun.json"  // the plan
	outputPort  = "/dev/ttyS1"   // the program's standard output and error
	reportPort  = "/dev/ttyS2"   // the Verdict, one line of JSON
	consolePath = "/dev/console" // messages of the kernel and errors of Init
)

// The cgroup versions of machines.
const (
	CgroupV1 = "v1" // memory and some other controllers in separate hierarchies
	CgroupV2 = "v2" // one hierarchy
)

// plan describes what the first process does. The host writes it.
type plan struct {
	Modules []string `json:"modules,omitempty"` // arguments of modprobe, run before the program starts
	Cgroup  string   `json:"cgroup"`            // CgroupV1 or CgroupV2
	Args    []string `json:"args,omitempty"`    // the program and its arguments; if empty, end at once with 0
	Env     []string `json:"env,omitempty"`
	Dir     string   `json:"dir,omitempty"`
}

// Verdict is how the program ended.
type Verdict struct {
	Exit   int    `json:"exit"`             // its exit code
	Signal int    `json:"signal,omitempty"` // the signal that ended it; Exit is then 0
	Error  string `json:"error,omitempty"`  // set if it could not be started
}

func readPlan() (plan, error) {
	var p plan
	raw, err := os.ReadFile(planPath)
	if err != nil {
		return p, err
	}
	if err := json.Unmarshal(raw, &p); err != nil {
		return p, fmt.Errorf("%s: %w", planPath, err)
	}
	return p, nil
}

// Init is the machine's first process: it mounts the usual filesystems, loads modules, runs the
// program and reports to the host how it ended. It never returns, but powers off the machine at the
// end.
func Init() {
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

func serve() Verdict {
	if err := mountAll(); err != nil {
		return Verdict{Error: err.Error()}
	}
	p, err := readPlan()
	if err != nil {
		return Verdict{Error: err.Error()}
	}
	if len(p.Args) == 0 {
		return Verdict{}
	}
	if err := mountCgroup(p.Cgroup); err != nil {
		return Verdict{Error: err.Error()}
	}
	if err := loopbackUp(); err != nil {
		return Verdict{Error: err.Error()}
	}
	for _, e := range p.Env {
		name, value, _ := strings.Cut(e, "=")
		if err := os.Setenv(name, value); err != nil {
			return Verdict{Error: err.Error()}
		}
	}
	for _, m := range p.Modules {
		if out, err := exec.CommandContext(context.Background(), "modprobe", strings.Fields(m)...).CombinedOutput(); err != nil {
			return Verdict{Error: fmt.Sprintf("modprobe %s: %v: %s", m, err, out)}
		}
	}
	return run(p)
}

// run runs the program to completion and reaps its orphans.
func run(p plan) Verdict {
	out, err := openPort(outputPort)
	if err != nil {
		return Verdict{Error: err.Error()}
	}
	defer out.Close()
	null, err := os.Open(os.DevNull)
	if err != nil {
		return Verdict{Error: err.Error()}
	}
	defer null.Close()
	program, err := os.StartProcess(p.Args[0], p.Args, &os.ProcAttr{
		Dir: p.Dir, Files: []*os.File{null, out, out}, Sys: &syscall.SysProcAttr{Setsid: true},
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
			return Verdict{Error: fmt.Sprintf("wait for process %d: %v", program.Pid, err)}
		case pid != program.Pid:
		case ws.Signaled():
			return Verdict{Signal: int(ws.Signal())}
		default:
			return Verdict{Exit: ws.ExitStatus()}
		}
	}
}

func report(v Verdict) error {
	port, err := openPort(reportPort)
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
