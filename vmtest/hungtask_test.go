package vmtest

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/kernosis/kernosis/collector/event"
	"github.com/kernosis/kernosis/detector/problem"
	"github.com/kernosis/kernosis/reporter/journal"
	"github.com/kernosis/kernosis/vmtest/agenttest"
)

// hungAfter is after how long a task counts as hung here, also for khungtaskd.
const hungAfter = 2 * time.Second

// hungLimit bounds each wait: 92 tasks that hang at once keep an emulated machine busy, and
// khungtaskd writes about some of them to a slow console.
const hungLimit = 180 * time.Second

// TestHungTask makes 23 tasks hang at once in each of its rows. The last rows run in parallel.
func TestHungTask(t *testing.T) {
	rules := quickRules(t, "hungtask", "for", "3s")
	a := startAgent(t, "--rules-dir", rules, "--hung-task-after", hungAfter.String())
	shipped := startAgent(t, "--rules-dir", rules) // uses the kernel's settings
	t.Cleanup(func() {
		noLoss(t, a.Entries())
		noLoss(t, shipped.Entries())
	})

	t.Run("dm-suspended-direct", func(t *testing.T) {
		// The kernel wakes tasks that wait for direct I/O twice within khungtaskd's timeout, so
		// khungtaskd does not detect them, whatever the timeout.
		khungtaskd(t, "2")
		h := hangOnDisk(t, "oflag=direct")
		h.innermost, h.frame = "", "__blkdev_direct_IO_simple"
		h.detector = "poll"
		h.run(t, a)
	})
	t.Run("khungtaskd-off", func(t *testing.T) {
		khungtaskd(t, "0")
		h := hangOnMutex(t)
		h.detector = "poll"
		h.run(t, a)
	})
	t.Run("warnings-used-up", func(t *testing.T) {
		khungtaskd(t, "2")
		setSysctl(t, "kernel/hung_task_warnings", "0")
		// So that only khungtaskd detects it: the agent's own check uses this file.
		pretendSysctl(t, "kernel/hung_task_timeout_secs", "120")
		log := openKernelLog(t)
		h := hangOnMutex(t)
		h.detector = "khungtaskd"
		h.repeats = 3
		h.run(t, shipped)
		if said := log.matching("blocked for more than"); len(said) > 0 {
			t.Errorf("the kernel log is not silent: %q", said)
		}
	})

	khungtaskd(t, "2")
	for _, row := range []struct {
		name string
		hang func(*testing.T) *hang
	}{
		{"mutex-holder", hangOnMutex},
		{"frozen-filesystem", hangOnFrozen},
		{"dm-suspended-buffered", func(t *testing.T) *hang { return hangOnDisk(t, "oflag=dsync") }},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			h := row.hang(t)
			h.repeats = 3
			h.run(t, a)
		})
	}
	t.Run("exit", func(t *testing.T) {
		t.Parallel()
		h := hangOnMutex(t)
		for _, task := range h.tasks {
			if err := unix.Kill(task.PID, unix.SIGKILL); err != nil {
				t.Fatal(err)
			}
		}
		h.exit = true
		h.run(t, a)
	})
}

// run waits until the hangs are reported, heals them, waits until their end is reported, and fails
// the test if a report is wrong.
func (h *hang) run(t *testing.T, a *agenttest.Agent) {
	t.Helper()
	found := khungtaskdFinds(t)
	a.WaitIn(t, "23 hangs and the condition", hungLimit, func(entries []journal.Entry) bool {
		firing := agenttest.States(entries, "kernel-deadlock", func(p *problem.Problem) bool {
			return p.Subject == "cgroup "+h.group && p.State == problem.Firing
		})
		return len(h.events(entries, event.HungTask)) >= len(h.tasks) && len(firing) >= len(h.tasks) &&
			agenttest.Condition(entries, "KernelDeadlock").Status == problem.True
	})
	if h.repeats > 0 {
		eventually(t, "khungtaskd finds each task again and again", hungLimit, func() bool {
			n := found()
			return !slices.ContainsFunc(h.tasks, func(task hungTask) bool { return n[task.TID] < h.repeats })
		})
	}
	if err := h.heal(); err != nil {
		t.Fatal(err)
	}
	entries := a.WaitIn(t, "end of the hangs", hungLimit, func(entries []journal.Entry) bool {
		return len(h.events(entries, event.HungTaskResumed)) >= len(h.tasks) && agenttest.Condition(entries, "KernelDeadlock").Status == problem.False
	})
	if n := found(); h.detector == "poll" && len(n) > 0 {
		t.Errorf("khungtaskd found tasks %v, but was to find none", n)
	}
	for _, task := range h.tasks {
		h.check(t, entries, task)
	}
	for _, kind := range []event.Kind{event.HungTask, event.HungTaskResumed} {
		if n := len(h.events(entries, kind)); n != len(h.tasks) {
			t.Errorf("%d events %s of %d tasks", n, kind, len(h.tasks))
		}
	}
	if h.exit && !slices.ContainsFunc(h.events(entries, event.HungTaskResumed), func(ev *event.Event) bool { return ev.HungTask.Exited }) {
		// Not all of them: some tasks are found awake, on their way out of the kernel.
		t.Error("no end is reported as an exit")
	}
	if h.lock != "" {
		jam := agenttest.States(entries, "lock-pileup", func(p *problem.Problem) bool { return p.Subject == "cgroup "+h.group })
		if !slices.Contains(jam, problem.Firing) || jam[len(jam)-1] != problem.Resolved {
			t.Errorf("states of the jam on one lock are %v", jam)
		}
	}
	for _, ev := range agenttest.Events(entries, event.HungTask) {
		// Kernel threads have no cgroup: in an emulated machine under load one may well block for
		// two seconds.
		ours := func(task hungTask) bool { return uint32(task.TID) == ev.Task.PID }
		if ev.Cgroup != nil && (!strings.HasPrefix(ev.Cgroup.Path, hangGroup) || ev.Cgroup.Path == h.group && !slices.ContainsFunc(h.tasks, ours)) {
			t.Errorf("reported also: %s %+v", ev.Task, ev.HungTask)
		}
	}
	t.Logf("%s", problems(entries, "task-hung", func(p *problem.Problem) bool { return p.Subject == "cgroup "+h.group })[0].Message)
}

// events returns the events of a kind for the hang's tasks.
func (h *hang) events(entries []journal.Entry, kind event.Kind) (events []*event.Event) {
	for _, task := range h.tasks {
		events = append(events, task.events(entries, kind)...)
	}
	return events
}

func (task hungTask) events(entries []journal.Entry, kind event.Kind) []*event.Event {
	return slices.DeleteFunc(agenttest.Events(entries, kind), func(ev *event.Event) bool { return ev.Task.PID != uint32(task.TID) })
}

// check fails the test if an event of one task is wrong.
func (h *hang) check(t *testing.T, entries []journal.Entry, task hungTask) {
	t.Helper()
	begin, end := task.events(entries, event.HungTask), task.events(entries, event.HungTaskResumed)
	if len(begin) != 1 || len(end) != 1 {
		t.Errorf("%s: reported %d times, its end %d times", task, len(begin), len(end))
		return
	}
	ev, over := begin[0], end[0]
	h.checkHung(t, ev, task)
	if over.HungTask.Exited && !h.exit || over.HungTask.BlockedFor < ev.HungTask.BlockedFor {
		t.Errorf("%s: end %+v", task, over.HungTask)
	}
	if over.Task.ID() != ev.Task.ID() || over.Subject() != ev.Subject() || over.HungTask.LockAddr != ev.HungTask.LockAddr {
		t.Errorf("%s: begins as %s of %q and ends as %s of %q", task, ev.Task.ID(), ev.Subject(), over.Task.ID(), over.Subject())
	}

	holder := "unknown"
	if h.holder != nil {
		holder = fmt.Sprintf("%s[%d]", h.holder.Comm, h.holder.TID)
	}
	ours := func(p *problem.Problem) bool { return strings.HasPrefix(p.Message, ev.Task.String()+" ") }
	for _, rule := range []string{"task-hung", "kernel-deadlock"} {
		states := agenttest.States(entries, rule, ours)
		if rule == "kernel-deadlock" {
			states = slices.DeleteFunc(states, func(s problem.State) bool { return s == problem.Pending })
		}
		if fmt.Sprint(states) != "[firing resolved]" {
			t.Errorf("%s: states of %s are %v", task, rule, states)
		}
		for _, p := range problems(entries, rule, ours) {
			want := "in cgroup " + h.group + " "
			if !strings.Contains(p.Message, want) || !strings.Contains(p.Message, "lock held by "+holder) || p.Subject != "cgroup "+h.group {
				t.Errorf("%s: %s says %q of %q, want %q and holder %s", task, rule, p.Message, p.Subject, want, holder)
			}
		}
	}
}

func (h *hang) checkHung(t *testing.T, ev *event.Event, task hungTask) {
	t.Helper()
	d := ev.HungTask
	if ev.Task.TGID != uint32(task.PID) || ev.Task.Comm != task.Comm || ev.Cgroup == nil || ev.Cgroup.Path != h.group {
		t.Errorf("%s: reported as %s of %d in %+v", task, ev.Task, ev.Task.TGID, ev.Cgroup)
	}
	if d.Wait != h.wait || d.Lock != h.lock || (d.LockAddr != 0) != (h.lock != "") {
		t.Errorf("%s: waits for %s, lock %q at %#x, want %s, %q", task, d.Wait, d.Lock, d.LockAddr, h.wait, h.lock)
	}
	if h.holder == nil && d.Holder != nil || h.holder != nil && (d.Holder == nil || d.HolderHint ||
		d.Holder.PID != uint32(h.holder.TID) || d.Holder.TGID != uint32(h.holder.PID) || d.Holder.Comm != h.holder.Comm) {
		t.Errorf("%s: held by %v (hint %v), want %v", task, d.Holder, d.HolderHint, h.holder)
	}
	if h.detector != "" && d.Detector != h.detector {
		t.Errorf("%s: found by %s, want %s", task, d.Detector, h.detector)
	}
	// Allow for rounding to ticks, which khungtaskd counts.
	if blocked := time.Duration(d.BlockedFor); blocked < hungAfter-10*time.Millisecond || blocked > ev.Time.Sub(h.began)+10*time.Millisecond {
		t.Errorf("%s: blocked for %s at %s from the start", task, blocked, ev.Time.Sub(h.began))
	}
	function := func(name string) func(frame string) bool {
		return func(frame string) bool {
			called, _, _ := strings.Cut(frame, "+")
			return strings.Contains(called, name)
		}
	}
	// The innermost function may be the scheduler's.
	if len(d.Stack) < 4 || !slices.ContainsFunc(d.Stack[:2], function(h.innermost)) || !slices.ContainsFunc(d.Stack, function(task.frame(h))) {
		t.Errorf("%s: stack %q, want %s innermost, then %s", task, d.Stack, h.innermost, task.frame(h))
	}
}
