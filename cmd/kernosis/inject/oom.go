package inject

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/kernosis/kernosis/collector/process"
)

// OOM provokes out-of-memory kills in a memory cgroup of its own. The cgroup's
// main process survives, as in a pod in which a child process is killed, which no
// restart counter shows. Its fields are set before Start. Not safe for
// concurrent use.
type OOM struct {
	StateDir string
	Limit    time.Duration // removed after this, whatever happens; 0 for DefaultLimit
	Memory   uint64        // limit of the cgroup's memory and swap, in bytes; 0 for DefaultMemoryLimit
	Suffix   string        // of the cgroup's name; must differ if a process has several

	record *record
	group  memoryCgroup
	main   *child
}

type oomKill struct {
	PID      int `json:"pid"`
	Signal   int `json:"signal"` // 0: the child ended by itself
	ExitCode int `json:"exitCode"`
}

type oomRequest struct {
	Memory uint64 `json:"memory,omitempty"` // start a child that uses more than this; 0: only reply
}

// Start creates the cgroup and starts its main process in it.
func (o *OOM) Start(ctx context.Context) (err error) {
	if o.Memory == 0 {
		o.Memory = DefaultMemoryLimit
	}
	hierarchy, err := memoryHierarchy()
	if err != nil {
		return err
	}
	if o.record, err = openRecord(o.StateDir, "oom", o.Limit); err != nil {
		return err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, o.Close())
		}
	}()
	name := "kernosis-inject-" + strconv.Itoa(os.Getpid()) + "-oom" + o.Suffix
	if o.group, err = createCgroup(o.record, hierarchy, name, o.Memory); err != nil {
		return err
	}
	if o.main, err = startChild("oom-main", childOptions{}, o.group.dir); err != nil {
		return err
	}
	_, err = ask[oomKill](ctx, o.main, oomRequest{})
	return err
}

// Cgroup returns the cgroup's directory.
func (o *OOM) Cgroup() string { return o.group.dir }

// MainPID returns the process id of the cgroup's main process, which survives.
func (o *OOM) MainPID() int { return o.main.pid() }

// Kills returns the kernel's count of kills in the cgroup.
func (o *OOM) Kills() (uint64, error) { return o.group.kills() }

// Kill makes the kernel OOM-kill one child and returns its process ID. It is an error if
// the child ended otherwise, or if the kernel did not count exactly one kill: then the limit
// is too small for the main process.
func (o *OOM) Kill(ctx context.Context) (pid int, err error) {
	before, err := o.Kills()
	if err != nil {
		return 0, err
	}
	k, err := ask[oomKill](ctx, o.main, oomRequest{Memory: o.Memory})
	if err != nil {
		return 0, fmt.Errorf("oom kill: %w", err)
	}
	if syscall.Signal(k.Signal) != unix.SIGKILL {
		return k.PID, fmt.Errorf("oom kill: child %d was not killed (signal %d, exit code %d)", k.PID, k.Signal, k.ExitCode)
	}
	after, err := o.Kills()
	if err != nil {
		return k.PID, err
	}
	if after != before+1 {
		return k.PID, fmt.Errorf("oom kill: child %d is dead, but the kernel counted %d kills", k.PID, after-before)
	}
	return k.PID, nil
}

// Close ends the main process and removes the cgroup.
func (o *OOM) Close() error {
	o.main.stop()
	err := o.record.undo()
	o.record = nil
	return err
}

// oomMain is the cgroup's main process: it joins the cgroup and starts the
// children to be killed.
func oomMain(args []string) error {
	if len(args) != 1 {
		return errors.New("usage: oom-main CGROUP")
	}
	if _, err := setComm("kn-oom-main"); err != nil {
		return err
	}
	procs := filepath.Join(args[0], "cgroup.procs")
	if err := os.WriteFile(procs, []byte(strconv.Itoa(os.Getpid())), 0); err != nil {
		return fmt.Errorf("join cgroup: %w", err)
	}
	// Children raise their score, so that the kernel never chooses this process.
	// Lowering needs CAP_SYS_RESOURCE; without it the difference is still 500.
	_ = os.WriteFile("/proc/self/oom_score_adj", []byte("-500"), 0)
	return serve(func(q oomRequest) (oomKill, error) {
		if q.Memory == 0 {
			return oomKill{PID: os.Getpid()}, nil
		}
		cmd := childCommand("oom-child", strconv.FormatUint(q.Memory, 10))
		cmd.Stderr = os.Stderr
		err := process.StartTied(cmd)
		if err == nil {
			err = cmd.Wait()
		}
		if exit := (*exec.ExitError)(nil); err != nil && !errors.As(err, &exit) {
			return oomKill{}, fmt.Errorf("start oom-child: %w", err)
		}
		k := oomKill{PID: cmd.Process.Pid, ExitCode: cmd.ProcessState.ExitCode()}
		if ws := cmd.ProcessState.Sys().(syscall.WaitStatus); ws.Signaled() {
			k.Signal = int(ws.Signal())
		}
		return k, nil
	})
}

// oomChild touches memory page by page until it is killed. It stops by itself at
// twice the limit.
func oomChild(args []string) error {
	if len(args) != 1 {
		return errors.New("usage: oom-child LIMIT")
	}
	limit, err := strconv.ParseUint(args[0], 10, 48)
	if err != nil {
		return fmt.Errorf("oom-child: %w", err)
	}
	if err := os.WriteFile("/proc/self/oom_score_adj", []byte("500"), 0); err != nil {
		return fmt.Errorf("oom-child: %w", err)
	}
	if _, err := setComm("kn-oom-child"); err != nil {
		return err
	}
	mem, err := unix.Mmap(-1, 0, int(2*limit), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS)
	if err != nil {
		return fmt.Errorf("oom-child: map memory: %w", err)
	}
	// A huge page would exceed the limit at once, at an unexpected size.
	// A kernel without huge pages refuses this.
	_ = unix.Madvise(mem, unix.MADV_NOHUGEPAGE)
	for i := 0; i < len(mem); i += os.Getpagesize() {
		mem[i] = 1
	}
	return fmt.Errorf("oom-child: had %d bytes with a limit of %d", len(mem), limit)
}
