package vmtest

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/kernosis/kernosis/cmd/kernosis/inject"
	"github.com/kernosis/kernosis/collector/event"
	"github.com/kernosis/kernosis/reporter/journal"
	"github.com/kernosis/kernosis/vmtest/agenttest"
)

// floodHungTasks makes more tasks hang at once than the ring holds, which is 620, while the agent is
// paused. khungtaskd finds all of them, again and again. Records that find the ring full are counted as
// lost, but the next check writes them again: in the end each hang is reported once, and so is its end.
// On a slow machine the agent may report so many before its pause that the ring does not overflow.
func floodHungTasks(t *testing.T, a *agenttest.Agent) {
	khungtaskd(t, "2")                             // the agent takes its threshold from it
	setSysctl(t, "kernel/hung_task_warnings", "0") // the console is slow
	n := len(a.Entries())
	found := khungtaskdFinds(t)
	c := newHungCrowd(t, 700)
	a.Signal(syscall.SIGSTOP)
	eventually(t, "khungtaskd finds all", hungLimit, func() bool {
		hung := found()
		return !slices.ContainsFunc(c.pids, func(pid int) bool { return hung[pid] == 0 })
	})
	a.Signal(syscall.SIGCONT)
	c.await(t, a, n, event.HungTask)
	// After the thaw they wait for each other, for the directory's lock: for over 2 s on a slow machine.
	setSysctl(t, "kernel/hung_task_timeout_secs", "120")
	if err := c.heal(t.Context()); err != nil {
		t.Fatal(err)
	}
	c.await(t, a, n, event.HungTaskResumed)

	entries := a.Entries()[n:]
	checkLosses(t, entries)
	lost := uint64(0)
	for _, ev := range agenttest.Events(entries, event.Lost) {
		if ev.Lost.Stem == "hungtask" && ev.Lost.Reason == "ring-full" {
			lost += ev.Lost.Count
		}
	}
	for _, kind := range []event.Kind{event.HungTask, event.HungTaskResumed} {
		for pid, times := range c.events(entries, kind) {
			if times != 1 || !slices.Contains(c.pids, pid) {
				t.Errorf("%d events %s of task %d", times, kind, pid)
			}
		}
	}
	t.Logf("%d hung tasks reported, %d records found the ring full", len(c.pids), lost)
}

// hungCrowd is a cgroup of many processes that all hang on one frozen filesystem.
type hungCrowd struct {
	group controlGroup
	pids  []int
	heal  func(context.Context) error
}

func newHungCrowd(t *testing.T, n int) *hungCrowd {
	t.Helper()
	needConfig(t, "CONFIG_EXT4_FS")
	c := &hungCrowd{group: newControlGroup(t, hangGroup+"crowd")}
	fault := &inject.FSFreeze{StateDir: t.TempDir(), Cgroup: c.group.dir, Limit: 20 * time.Minute}
	if _, err := fault.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	atEnd(t, fault.Close)
	_, dir := fault.Mount()
	const script = `i=0; while [ $i -lt "$1" ]; do : >"$2/$i" & i=$((i+1)); done; wait`
	shell := exec.Command("sh", "-c", script, "sh", strconv.Itoa(n), dir)
	c.group.start(t, shell)
	c.heal = func(ctx context.Context) error {
		if err := fault.Heal(ctx); err != nil {
			return err
		}
		return shell.Wait()
	}
	// Must run before the processes are ended, whatever happens.
	t.Cleanup(func() { _ = fault.Heal(context.WithoutCancel(t.Context())) })
	eventually(t, strconv.Itoa(n)+" processes", hungLimit, func() bool {
		c.pids = slices.DeleteFunc(c.group.processes(t), func(pid int) bool { return pid == shell.Process.Pid })
		return len(c.pids) == n+1 // with the fault's own
	})
	return c
}

// processes returns the PIDs of the cgroup's processes.
func (g controlGroup) processes(t *testing.T) (pids []int) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(g.dir, "cgroup.procs"))
	if err != nil {
		t.Fatal(err)
	}
	for field := range strings.FieldsSeq(string(text)) {
		pid, err := strconv.Atoi(field)
		if err != nil {
			t.Fatal(err)
		}
		pids = append(pids, pid)
	}
	return pids
}

// await waits for an event of a kind of each process, in the entries from the n-th on.
func (c *hungCrowd) await(t *testing.T, a *agenttest.Agent, n int, kind event.Kind) {
	t.Helper()
	eventually(t, string(kind)+" of all", hungLimit, func() bool {
		return len(c.events(a.Entries()[n:], kind)) >= len(c.pids)
	})
}

// events counts the events of a kind in the cgroup by PID.
func (c *hungCrowd) events(entries []journal.Entry, kind event.Kind) map[int]int {
	times := map[int]int{}
	for _, ev := range agenttest.Events(entries, kind) {
		if ev.Cgroup != nil && ev.Cgroup.Path == c.group.path {
			times[int(ev.Task.PID)]++
		}
	}
	return times
}
