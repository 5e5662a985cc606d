package vmtest

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/kernosis/kernosis/cmd/kernosis/inject"
)

// hangGroup is the prefix of the paths of hanging tasks' cgroups.
const hangGroup = "/kn-hang-"

// hang is a set of tasks that hang at once, and how each must be reported.
type hang struct {
	tasks  []hungTask
	began  time.Time // shortly before the first one hung
	heal   func() error
	group  string // path of their cgroup
	exit   bool   // heal also ends the tasks
	wait   string
	lock   string // kind of the lock, if the kernel records it
	holder *inject.Task

	innermost string // innermost function of the stack
	frame     string // a function in the stack of all tasks without one of their own
	detector  string // the required detector; empty for any
	repeats   int    // how often khungtaskd must have detected each
}

type hungTask struct {
	inject.Task
	function string // a function in its stack
}

func (task hungTask) frame(h *hang) string {
	if task.function != "" {
		return task.function
	}
	return h.frame
}

// hangOnMutex makes tasks wait for the mutex of a pipe whose holder sleeps.
func hangOnMutex(t *testing.T) *hang {
	t.Helper()
	group := newControlGroup(t, hangGroup+filepath.Base(t.Name()))
	h := &hang{began: time.Now(), group: group.path, wait: "lock", innermost: "mutex_lock", frame: "fifo_open"}
	fault := &inject.HungTask{Cgroup: group.dir}
	first, err := fault.Start(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	atEnd(t, fault.Close)
	if kernelTypes(t).HasField("task_struct", "blocker") { // since v6.16
		h.lock, h.holder = "mutex", &first.Holder
	}
	h.tasks = []hungTask{{first.Waiter, "pipe_write"}}
	pipe := fmt.Sprintf("/proc/%d/fd/3", first.Holder.PID)
	w := group.writers(t, faults-1, func(int) []string { return []string{"of=" + pipe, "bs=1", "conv=notrunc"} })
	// Must run before the processes are ended, whatever happens.
	t.Cleanup(func() { _ = fault.Heal(context.WithoutCancel(t.Context())) })
	h.await(t, w)
	h.heal = func() error {
		if !h.exit {
			return fault.Heal(t.Context())
		}
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			w.end()
		}()
		err := fault.Close() // its waiter can no longer respond
		<-ended
		return err
	}
	return h
}

// hangOnFrozen makes tasks write to a frozen filesystem: they wait for a percpu_rwsem, which
// records no holder.
func hangOnFrozen(t *testing.T) *hang {
	t.Helper()
	needConfig(t, "CONFIG_EXT4_FS")
	group := newControlGroup(t, hangGroup+filepath.Base(t.Name()))
	h := &hang{began: time.Now(), group: group.path, wait: "lock", innermost: "percpu", frame: "mnt_want_write"}
	fault := &inject.FSFreeze{StateDir: t.TempDir(), Cgroup: group.dir}
	first, err := fault.Start(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	atEnd(t, fault.Close)
	h.tasks = []hungTask{{first.Waiter, "ksys_write"}}
	_, dir := fault.Mount()
	w := group.writers(t, faults-1, func(i int) []string { return []string{fmt.Sprintf("of=%s/%d", dir, i), "bs=1"} })
	t.Cleanup(w.end)
	t.Cleanup(func() { _ = fault.Heal(context.WithoutCancel(t.Context())) })
	h.await(t, w)
	h.heal = func() error { return fault.Heal(t.Context()) }
	return h
}

// hangOnDisk makes tasks write to a suspended device-mapper device, with direct I/O or not,
// according to dd's flag.
func hangOnDisk(t *testing.T, flag string) *hang {
	t.Helper()
	group := newControlGroup(t, hangGroup+filepath.Base(t.Name()))
	disk := mapLinear(t, "hang", loopOver(t, sparseFile(t, 1<<20), 0, 0), 1, 1<<20)
	path := disk.devices[0].path()
	w := group.writers(t, faults, func(i int) []string {
		return []string{"of=" + path, "bs=" + strconv.Itoa(blockSize), "seek=" + strconv.Itoa(i), "conv=notrunc", "iflag=fullblock", flag}
	})
	t.Cleanup(w.end)
	w.opened(t, path)
	t.Cleanup(disk.resume)
	disk.suspend()
	h := &hang{began: time.Now(), group: group.path, wait: "io", innermost: "io_schedule", frame: "blkdev_fsync"}
	w.write(t, make([]byte, blockSize))
	h.await(t, w)
	h.heal = func() error {
		disk.resume()
		return nil
	}
	return h
}

// await waits until the writers also hang.
func (h *hang) await(t *testing.T, w *writers) {
	t.Helper()
	for _, cmd := range w.commands {
		task := inject.Task{PID: cmd.Process.Pid, TID: cmd.Process.Pid, Comm: "dd"}
		eventually(t, task.String()+" hangs", 30*time.Second, func() bool {
			state, err := task.State()
			if err != nil {
				t.Fatal(err)
			}
			return state == 'D'
		})
		h.tasks = append(h.tasks, hungTask{Task: task})
	}
}

// writers are processes that write their input and continue to run.
type writers struct {
	commands []*exec.Cmd
	stdins   []io.WriteCloser
}

// writers starts n dd processes in the cgroup, with arguments for each.
func (g controlGroup) writers(t *testing.T, n int, args func(i int) []string) *writers {
	t.Helper()
	w := &writers{}
	for i := range n {
		cmd := exec.Command("dd", append(args(i), "status=none")...)
		stdin, err := cmd.StdinPipe()
		if err != nil {
			t.Fatal(err)
		}
		g.start(t, cmd)
		w.commands, w.stdins = append(w.commands, cmd), append(w.stdins, stdin)
	}
	return w
}

// opened waits until all of them have the file open.
func (w *writers) opened(t *testing.T, path string) {
	t.Helper()
	for _, cmd := range w.commands {
		eventually(t, "dd opens "+path, 30*time.Second, func() bool {
			to, err := os.Readlink(fmt.Sprintf("/proc/%d/fd/1", cmd.Process.Pid))
			return err == nil && to == path
		})
	}
}

func (w *writers) write(t *testing.T, data []byte) {
	t.Helper()
	for _, stdin := range w.stdins {
		if _, err := stdin.Write(data); err != nil {
			t.Fatal(err)
		}
	}
}

// end ends the processes once they no longer hang.
func (w *writers) end() {
	for i, cmd := range w.commands {
		w.stdins[i].Close()
		if cmd.ProcessState == nil {
			_ = cmd.Wait() // those killed return an error
		}
	}
}
