package inject

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/kernosis/kernosis/collector/hostfs"
	"github.com/kernosis/kernosis/collector/process"
)

// OOM provokes out-of-memory kills in its own memory cgroup. The cgroup's main process survives, as
// in a pod where only a child process is killed: no restart counter shows such a kill.
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

// Start creates the cgroup and starts its main process in it.
func (o *OOM) Start(ctx context.Context) (err error) {
	o.Memory = cmp.Or(o.Memory, DefaultMemoryLimit)
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
	_, err = ask[oomKill](ctx, o.main, uint64(0))
	return err
}

// Cgroup returns the cgroup's directory.
func (o *OOM) Cgroup() string { return o.group.dir }

// MainPID returns the process id of the cgroup's main process, which survives.
func (o *OOM) MainPID() int { return o.main.pid() }

// Kills returns the kernel's count of kills in the cgroup.
func (o *OOM) Kills() (uint64, error) {
	use, err := hostfs.New("/").CgroupMemoryUse(o.group.hierarchy, "/"+o.group.name)
	if err != nil {
		return 0, fmt.Errorf("count kills: %w", err)
	}
	return use.OOMKills, nil
}

// Kill makes the kernel OOM-kill one child and returns its process ID. It is an error if the child
// ended in another way, or if the kernel did not count exactly one kill, which means that the limit
// is too small for the main process.
func (o *OOM) Kill(ctx context.Context) (pid int, err error) {
	before, err := o.Kills()
	if err != nil {
		return 0, err
	}
	k, err := ask[oomKill](ctx, o.main, o.Memory)
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
	return o.record.undo()
}

// oomMain is the cgroup's main process: it joins the cgroup and starts the children to be killed.
func oomMain(args []string) error {
	if _, err := setComm("kn-oom-main"); err != nil {
		return err
	}
	procs := filepath.Join(args[0], "cgroup.procs")
	if err := os.WriteFile(procs, []byte(strconv.Itoa(os.Getpid())), 0); err != nil {
		return fmt.Errorf("join cgroup: %w", err)
	}
	// Children raise their score, so that the kernel never chooses this process. Lowering this
	// process's score needs CAP_SYS_RESOURCE; without it the difference is still 500.
	_ = os.WriteFile("/proc/self/oom_score_adj", []byte("-500"), 0)
	return serve(func(memory uint64) (oomKill, error) {
		if memory == 0 { // a request for a reply only
			return oomKill{PID: os.Getpid()}, nil
		}
		cmd := childCommand("oom-child", strconv.FormatUint(memory, 10))
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

// oomChild touches memory page by page until it is killed. It stops by itself at twice the limit.
func oomChild(args []string) error {
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

// memoryHierarchy returns the cgroup hierarchy with this machine's memory controller, v1 or v2: a
// controller, and so its files, is only in one of them.
func memoryHierarchy() (hostfs.CgroupLayout, error) {
	mounts, err := hostfs.OwnMounts()
	if err != nil {
		return hostfs.CgroupLayout{}, fmt.Errorf("find memory controller: %w", err)
	}
	var disabled string
	for _, m := range mounts {
		if m.FSType == "cgroup" && slices.Contains(strings.Split(m.SuperOptions, ","), "memory") {
			return hostfs.CgroupLayout{Controllers: map[string]string{"memory": m.Path}}, nil
		}
		if m.FSType != "cgroup2" || !hasWord(filepath.Join(m.Path, "cgroup.controllers"), "memory") {
			continue
		}
		if hasWord(filepath.Join(m.Path, "cgroup.subtree_control"), "memory") {
			return hostfs.CgroupLayout{Unified: m.Path}, nil
		}
		disabled = m.Path
	}
	if disabled != "" {
		return hostfs.CgroupLayout{}, &Refused{Reason: "the memory controller is not enabled for children of " + disabled +
			" (echo +memory > " + filepath.Join(disabled, "cgroup.subtree_control") + ")"}
	}
	return hostfs.CgroupLayout{}, &Refused{Reason: "no memory cgroup hierarchy is mounted"}
}

func hasWord(path, word string) bool {
	b, err := os.ReadFile(path)
	return err == nil && slices.Contains(strings.Fields(string(b)), word)
}

type memoryCgroup struct {
	hierarchy hostfs.CgroupLayout
	name      string // below the hierarchy's root
	dir       string
}

// createCgroup creates a cgroup, limits memory and swap together to limit bytes, and
// adds it to the record.
func createCgroup(r *record, hierarchy hostfs.CgroupLayout, name string, limit uint64) (memoryCgroup, error) {
	root, v1 := hierarchy.Controllers["memory"]
	files := []struct{ name, value string }{
		{"memory.limit_in_bytes", strconv.FormatUint(limit, 10)},
		{"memory.memsw.limit_in_bytes", strconv.FormatUint(limit, 10)}, // after the limit: may not be below it
		{"memory.swappiness", "0"},
	}
	if !v1 {
		root = hierarchy.Unified
		files = []struct{ name, value string }{
			{"memory.max", strconv.FormatUint(limit, 10)},
			{"memory.swap.max", "0"},
		}
	}
	c := memoryCgroup{hierarchy: hierarchy, name: name, dir: filepath.Join(root, name)}
	if err := r.will(step{Kind: stepCgroup, Path: c.dir}); err != nil {
		return c, err
	}
	if err := os.Mkdir(c.dir, 0o755); err != nil {
		return c, fmt.Errorf("create cgroup: %w", err)
	}
	for i, f := range files {
		err := os.WriteFile(filepath.Join(c.dir, f.name), []byte(f.value), 0)
		// Kernels without swap accounting lack the swap files: nothing to limit.
		if err != nil && (i == 0 || !errors.Is(err, os.ErrNotExist)) {
			return c, fmt.Errorf("limit cgroup: %w", err)
		}
	}
	return c, nil
}
