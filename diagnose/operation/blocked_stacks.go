package operation

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/kernosis/kernosis/collector/display"
)

const (
	// blockedDefaultMax tasks are named: a node on which more hang has one cause, and
	// the first of them show it.
	blockedDefaultMax = 64
	blockedMostMax    = 512
)

// BlockedStacks returns the built-in blocked-stacks.
func BlockedStacks(h Host) Builtin {
	patient := newPatience()
	return bounded(Builtin{
		Name: "blocked-stacks",
		Doc: "Names the tasks in uninterruptible sleep, longest first, or one task: kernel stack, since when, whose it is, " +
			"and what the stack says it waits for. stacks.txt has all of them.",
		Effect: Collect,
		Parameters: append(pidParameters(false, "task (thread or process) to look at; none: all that are blocked"),
			Parameter{Name: "holderPID", Doc: "task that holds the lock, where the event has it; its stack is added", Kind: Integer, Max: 1 << 22},
			Parameter{Name: "minBlocked", Doc: "shorter sleeps are left out: a healthy disk makes tasks wait as well", Kind: Duration, Default: "1s"},
			Parameter{Name: "max", Doc: "tasks to name at most", Kind: Integer, Default: strconv.Itoa(blockedDefaultMax), Max: blockedMostMax},
		),
		Results: append([]Result{
			{"blockedCount", "blocked tasks, also those not named"},
			{"kinds", "how many of those named wait for what: disk=3 lock=1"},
			{"pid", "the task, of several the one blocked longest; those below are of it"},
			{"tgid", "its process"},
			{"comm", "its name"},
			{"startTime", "when it started, since boot"},
			{"state", "its state: D where it is blocked"},
			{"blockedFor", "how long it has not run, a lower bound; missing: the kernel does not say"},
			{"stackTop", "the function it called to wait, with offset"},
			{"waitsFor", "disk, nfs, lock, frozen-filesystem, fuse, network-filesystem, jbd2, memory-reclaim or unknown"},
			{"waitReason", "what that means, and the function that shows it"},
			{"waitFunction", "the kernel function that shows what it waits for"},
			{"holderPID", "task that holds the lock, as it was given"},
			{"device", "block device of the file it works on, where its system call names one"},
			{"deviceNumber", "MAJ:MIN of that file's filesystem"},
			{"mountPoint", "where that filesystem is mounted"},
			{"fsType", "type of that filesystem"},
			{"source", "what is mounted there: a device, or an NFS server's export"},
			noteResult(),
		}, ownerResults()...),
		Run: func(ctx context.Context, call *Call) (Output, error) { return h.blockedStacks(ctx, patient, call) },
	})
}

func (h Host) blockedStacks(ctx context.Context, patient patience, call *Call) (Output, error) {
	f := newFinding()
	var tasks []*blockedTask
	var count int
	if call.Parameters["pid"] != "" {
		stat, err := h.task(call.Parameters)
		if err != nil {
			return Output{}, err
		}
		t := h.blockedTask(stat, newLastRan(h.FS))
		if tasks = []*blockedTask{t}; t.state == 'D' {
			count = 1
		}
	} else {
		var err error
		if tasks, count, err = h.blockedTasks(ctx, call.Parameters.Duration("minBlocked"), f); err != nil {
			return Output{}, err
		}
	}
	most := int(call.Parameters.Int("max"))
	if most == 0 {
		most = blockedDefaultMax
	}
	if len(tasks) > most {
		f.note("%d more blocked tasks are not named", len(tasks)-most)
		tasks = tasks[:most]
	}
	for _, t := range tasks {
		if err := ctx.Err(); err != nil {
			return Output{}, context.Cause(ctx)
		}
		h.explain(ctx, patient, t, f)
	}
	f.int("blockedCount", int64(count))
	if call.Parameters["pid"] != "" {
		tasks[0].heldBy(int(call.Parameters.Int("holderPID")))
	}
	holder := h.holderStack(ctx, patient, call.Parameters, f)
	err := f.artifact(call, "stacks.txt", func(w *page) {
		if holder != nil {
			w.printf("# holds the lock\n")
			holder.write(w)
		}
		for _, t := range tasks {
			t.write(w)
		}
	})
	if err != nil {
		return Output{}, err
	}
	if len(tasks) > 0 {
		f.text("kinds", waitKinds(tasks))
		f.blocked(tasks[0])
	}
	return f.output(nil), nil
}

// blockedTasks finds the tasks in state D, the longest blocked first, then those of
// which it is not known.
func (h Host) blockedTasks(ctx context.Context, atLeast time.Duration, f *finding) (tasks []*blockedTask, count int, err error) {
	pids, err := h.FS.PIDs()
	if err != nil {
		return nil, 0, fmt.Errorf("look for processes: %w", err)
	}
	ran := newLastRan(h.FS)
	brief := 0
	for _, pid := range pids {
		if ctx.Err() != nil {
			return nil, 0, context.Cause(ctx)
		}
		tids, err := h.FS.Threads(pid)
		if err != nil {
			continue // ended meanwhile
		}
		for _, tid := range tids {
			stat, err := h.FS.Stat(tid)
			if err != nil || stat.State != 'D' {
				continue
			}
			t := h.blockedTask(stat, ran)
			t.tgid = pid
			if t.known && t.blockedFor < atLeast {
				brief++
				continue
			}
			tasks = append(tasks, t)
		}
	}
	if brief > 0 {
		f.note("%s blocked for less than %s left out", display.Count(brief, "task"), atLeast)
	}
	slices.SortStableFunc(tasks, func(a, b *blockedTask) int {
		return cmp.Or(cmp.Compare(b.blockedFor, a.blockedFor), cmp.Compare(a.pid, b.pid))
	})
	return tasks, len(tasks), nil
}

// holderStack describes the task that holds the lock, where one was given.
func (h Host) holderStack(ctx context.Context, patient patience, v Values, f *finding) *blockedTask {
	if v["holderPID"] == "" {
		return nil
	}
	pid := int(v.Int("holderPID"))
	f.int("holderPID", int64(pid))
	stat, err := h.FS.Stat(pid)
	if err != nil {
		f.note("the holder %d can't be looked at: %v", pid, err)
		return nil
	}
	t := h.blockedTask(stat, newLastRan(h.FS))
	h.explain(ctx, patient, t, f)
	return t
}

// blocked sets the results about one task.
func (f *finding) blocked(t *blockedTask) {
	f.int("pid", int64(t.pid))
	if t.tgid != 0 {
		f.int("tgid", int64(t.tgid))
	}
	f.text("comm", t.comm)
	f.text("startTime", t.startTime.String())
	f.text("state", string(t.state))
	if t.known {
		f.duration("blockedFor", t.blockedFor)
	}
	f.text("stackTop", stackTop(t.stack))
	f.text("waitsFor", t.cause.kind)
	f.text("waitReason", t.cause.String())
	f.text("waitFunction", t.cause.function)
	f.owner(&t.owner)
	if m := t.file; m != nil {
		f.text("device", m.device)
		f.text("deviceNumber", m.number)
		f.text("mountPoint", m.mountPoint)
		f.text("fsType", m.fsType)
		f.text("source", m.source)
	}
}

// waitKinds counts tasks by what they wait for.
func waitKinds(tasks []*blockedTask) string {
	counts := map[string]int{}
	for _, t := range tasks {
		counts[t.cause.kind]++
	}
	var out []string
	for _, kind := range slices.Sorted(maps.Keys(counts)) {
		out = append(out, kind+"="+strconv.Itoa(counts[kind]))
	}
	return strings.Join(out, " ")
}
