package vmtest

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/kernosis/kernosis/cmd/kernosis/inject"
	"github.com/kernosis/kernosis/vmtest/testenv"
)

// processLoads returns processes that start and exit, and memory use.
func processLoads(t *testing.T) []*load {
	t.Helper()
	const forks = 10
	const script = `i=0; while [ $i -lt "$1" ]; do (:); i=$((i+1)); done; exec seq 1 1`
	n := 0
	return []*load{
		{what: "forks", pause: 200 * time.Millisecond, step: func() (int, error) {
			return forks + 1, run("sh", "-c", script, "sh", strconv.Itoa(forks))
		}},
		{what: "cgroups made, used and removed", pause: 200 * time.Millisecond, step: func() (int, error) {
			n++
			return 1, useCgroup(filepath.Join(cgroupRoot, "kn-busy-"+strconv.Itoa(n)))
		}},
		vforkLoad(t),
		reclaimLoad(t),
	}
}

func useCgroup(dir string) error {
	if err := os.Mkdir(dir, 0o755); err != nil {
		return err
	}
	if err := runIn(dir, "sh", "-c", ":"); err != nil {
		return err
	}
	for end := time.Now().Add(testenv.Within(10 * time.Second)); ; time.Sleep(time.Millisecond) {
		// A process that has been waited for may still be counted for a moment.
		if err := unix.Rmdir(dir); !errors.Is(err, unix.EBUSY) || time.Now().After(end) {
			return os.NewSyscallError("rmdir", err)
		}
	}
}

// runIn runs a program to completion in a cgroup.
func runIn(group, name string, args ...string) error {
	dir, err := os.Open(group)
	if err != nil {
		return err
	}
	defer dir.Close()
	cmd := exec.Command(name, args...)
	cmd.SysProcAttr = &syscall.SysProcAttr{UseCgroupFD: true, CgroupFD: int(dir.Fd())}
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%v: %w: %s", cmd.Args, err, out)
	}
	return nil
}

// reclaimLoad writes and reads a file larger than its cgroup's memory: the page cache is reclaimed
// all the time, and nothing has to be killed.
func reclaimLoad(t *testing.T) *load {
	t.Helper()
	// A disk whose own memory is not charged to the cgroup, unlike a file under a loop device.
	disk := newNullDisk(t, "reclaim", 64, "memory_backed=1")
	makeFS(t, "ext4", disk.path())
	fs := mountFS(t, "ext4", disk.path(), "")
	group := newControlGroup(t, "/kn-reclaim", "memory.high=12M", "memory.max=48M")
	file := filepath.Join(fs.dir, "large")
	kills := since(t, func() (int, error) { return numberIn(filepath.Join(group.dir, "memory.events"), "oom_kill") })
	reclaimed := since(t, func() (int, error) { return numberIn(filepath.Join(group.dir, "memory.stat"), "pgsteal") })
	return &load{
		what: "MiB written and read in too little memory, in pages reclaimed", pause: 2 * time.Second,
		step: func() (int, error) {
			const mib = 24
			if err := runIn(group.dir, "dd", "if=/dev/zero", "of="+file, "bs=64k", "count="+strconv.Itoa(mib*16), "conv=fsync"); err != nil {
				return 0, err
			}
			return 2 * mib, runIn(group.dir, "dd", "if="+file, "of=/dev/null", "bs=64k")
		},
		proof: func() (int, error) {
			if n, err := kills(); err != nil || n > 0 {
				return 0, errors.Join(fmt.Errorf("%d processes were killed", n), err)
			}
			return reclaimed()
		},
	}
}

// vforkInto, as an environment variable, makes TestHealthy start a process in the cgroup of that
// directory.
const vforkInto = "KERNOSIS_VMTEST_VFORK_INTO"

// vfork starts a process. Its parent, this one, is in uninterruptible sleep until the child
// executes its program: in a frozen cgroup, until that is thawed.
func vfork(t *testing.T, group string) {
	t.Helper()
	if err := runIn(group, "sh", "-c", ":"); err != nil {
		t.Fatal(err)
	}
}

// vforkLoad makes a process wait for some seconds for its child.
func vforkLoad(t *testing.T) *load {
	t.Helper()
	group := newControlGroup(t, "/kn-vfork")
	freeze := func(value string) error {
		return os.WriteFile(filepath.Join(group.dir, "cgroup.freeze"), []byte(value), 0)
	}
	atEnd(t, func() error { return freeze("0") })
	return &load{what: "parents that slept 5 s in vfork()", pause: 5 * time.Second, sleeps: true, step: func() (int, error) {
		if err := freeze("1"); err != nil {
			return 0, err
		}
		cmd := exec.Command("/proc/self/exe", "-test.run=^TestHealthy$")
		cmd.Env = append(os.Environ(), vforkInto+"="+group.dir)
		if err := cmd.Start(); err != nil {
			return 0, err
		}
		slept := sleeps(cmd.Process.Pid, 5*time.Second)
		if err := errors.Join(slept, freeze("0"), cmd.Wait()); err != nil {
			return 0, err
		}
		return 1, nil
	}}
}

// sleeps waits until a thread of a process has been in uninterruptible sleep for a time, at every
// poll.
func sleeps(pid int, d time.Duration) error {
	var asleep inject.Task
	var from time.Time
	for end := time.Now().Add(testenv.Within(30 * time.Second)); time.Now().Before(end); time.Sleep(100 * time.Millisecond) {
		if asleep.TID != 0 {
			if state, err := asleep.State(); err != nil || state != 'D' {
				asleep.TID = 0
			} else if time.Since(from) >= d {
				return nil
			}
			continue
		}
		threads, err := os.ReadDir(fmt.Sprintf("/proc/%d/task", pid))
		if err != nil {
			return err
		}
		for _, thread := range threads {
			tid, err := strconv.Atoi(thread.Name())
			if err != nil {
				return err
			}
			task := inject.Task{PID: pid, TID: tid}
			if state, err := task.State(); err == nil && state == 'D' {
				asleep, from = task, time.Now()
			}
		}
	}
	return fmt.Errorf("process %d does not sleep for %s", pid, d)
}
