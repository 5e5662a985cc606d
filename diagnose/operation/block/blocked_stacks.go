package block

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strconv"

	"github.com/kernosis/kernosis/collector/display"
	"github.com/kernosis/kernosis/diagnose/operation"
	"github.com/kernosis/kernosis/diagnose/operation/process"
)

const (
	// blockedDefaultMax is how many tasks are listed by default: if more hang, they have a common
	// cause, which the first show.
	blockedDefaultMax = 64
	blockedMostMax    = 512
)

func BlockedStacks(h operation.Host) operation.Builtin {
	return operation.Bounded(operation.Builtin{
		Name: "blocked-stacks",
		Doc: "Lists tasks in uninterruptible sleep, longest first, or one task: kernel stack, start of the sleep, owner, and what it waits for according " +
			"to the stack. Artifact stacks.txt has all of them.",
		Effect: operation.Collect,
		Parameters: append(process.PIDParameters(false, "task (thread or process) to inspect; none: all blocked tasks"),
			operation.Parameter{Name: "holderPID", Doc: "lock holder, if the event names it; its stack is added", Kind: operation.Integer, Max: 1 << 22},
			operation.Parameter{Name: "minBlocked", Doc: "omit shorter sleeps: tasks also wait on a healthy disk", Kind: operation.Duration, Default: "1s"},
			operation.Parameter{Name: "max", Doc: "maximum number of tasks listed", Kind: operation.Integer, Default: strconv.Itoa(blockedDefaultMax), Max: blockedMostMax},
		),
		Results: append([]operation.Result{
			{Name: "blockedCount", Doc: "blocked tasks, including those not listed"},
			{Name: "kinds", Doc: "listed tasks by what they wait for: disk=3 lock=1"},
			{Name: "pid", Doc: "the task, or the one blocked longest; the results below describe it"},
			{Name: "tgid", Doc: "its process"},
			{Name: "comm", Doc: "its name"},
			{Name: "startTime", Doc: "its start time since boot"},
			{Name: "state", Doc: "its state; D: blocked"},
			{Name: "blockedFor", Doc: "time since it last ran, a lower bound; missing: the kernel does not report it"},
			{Name: "stackTop", Doc: "function it called to wait, with offset"},
			{Name: "waitsFor", Doc: "disk, nfs, lock, frozen-filesystem, fuse, network-filesystem, jbd2, memory-reclaim or unknown"},
			{Name: "waitReason", Doc: "what that means, and the function that shows it"},
			{Name: "waitFunction", Doc: "kernel function that shows what it waits for"},
			{Name: "holderPID", Doc: "lock holder, as given"},
			{Name: "device", Doc: "block device of the file it works on, if its system call names one"},
			{Name: "deviceNumber", Doc: "MAJ:MIN of that file's filesystem"},
			{Name: "mountPoint", Doc: "mount point of that filesystem"},
			{Name: "fsType", Doc: "type of that filesystem"},
			{Name: "source", Doc: "mounted source: device or NFS export"},
			operation.NoteResult(),
		}, process.OwnerResults()...),
		Run: host{h, operation.NewPatience()}.blockedStacks,
	})
}

func (h host) blockedStacks(ctx context.Context, call *operation.Call) (operation.Output, error) {
	f := operation.NewFinding()
	tasks, err := h.tasksToLookAt(ctx, call.Parameters, f)
	if err != nil {
		return operation.Output{}, err
	}
	count := len(tasks)
	if count == 1 && tasks[0].state != 'D' { // the parameters name it
		count = 0
	}
	most := cmp.Or(int(call.Parameters.Int("max")), blockedDefaultMax)
	if len(tasks) > most {
		f.Note("%d more blocked tasks are not listed", len(tasks)-most)
		tasks = tasks[:most]
	}
	for _, t := range tasks {
		if err := ctx.Err(); err != nil {
			return operation.Output{}, context.Cause(ctx)
		}
		h.explain(ctx, t, f)
	}
	f.Int("blockedCount", int64(count))
	if call.Parameters["pid"] != "" {
		tasks[0].heldBy(int(call.Parameters.Int("holderPID")))
	}
	holder := h.holderStack(ctx, call.Parameters, f)
	err = f.Artifact(call, "stacks.txt", func(w *operation.Page) {
		if holder != nil {
			w.Printf("# holds the lock\n")
			holder.write(w)
		}
		for _, t := range tasks {
			t.write(w)
		}
	})
	if err != nil {
		return operation.Output{}, err
	}
	if len(tasks) > 0 {
		f.Text("kinds", waitKinds(tasks))
		reportBlocked(f, tasks[0])
	}
	return f.Output(nil), nil
}

// tasksToLookAt returns the task that the parameters name, in any state, or all tasks in state D:
// those blocked longest first, then those with unknown duration.
func (h host) tasksToLookAt(ctx context.Context, v operation.Values, f *operation.Finding) (tasks []*blockedTask, err error) {
	ran := newLastRan(h.FS)
	if v["pid"] != "" {
		stat, err := process.Task(h.Host, v)
		if err != nil {
			return nil, err
		}
		return []*blockedTask{h.lookAtBlockedTask(stat, ran)}, nil
	}
	pids, err := h.FS.PIDs()
	if err != nil {
		return nil, fmt.Errorf("list processes: %w", err)
	}
	brief, atLeast := 0, v.Duration("minBlocked")
	for _, pid := range pids {
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		tids, err := h.FS.Threads(pid)
		if err != nil {
			continue // ended in the meantime
		}
		for _, tid := range tids {
			stat, err := h.FS.Stat(tid)
			if err != nil || stat.State != 'D' {
				continue
			}
			t := h.lookAtBlockedTask(stat, ran)
			t.tgid = pid
			if t.known && t.blockedFor < atLeast {
				brief++
				continue
			}
			tasks = append(tasks, t)
		}
	}
	if brief > 0 {
		f.Note("%s blocked for less than %s omitted", display.Count(brief, "task"), atLeast)
	}
	slices.SortStableFunc(tasks, func(a, b *blockedTask) int {
		return cmp.Or(cmp.Compare(b.blockedFor, a.blockedFor), cmp.Compare(a.pid, b.pid))
	})
	return tasks, nil
}

// holderStack describes the lock holder, if the parameters name one.
func (h host) holderStack(ctx context.Context, v operation.Values, f *operation.Finding) *blockedTask {
	if v["holderPID"] == "" {
		return nil
	}
	pid := int(v.Int("holderPID"))
	f.Int("holderPID", int64(pid))
	stat, err := h.FS.Stat(pid)
	if err != nil {
		f.Note("can't examine the holder %d: %v", pid, err)
		return nil
	}
	t := h.lookAtBlockedTask(stat, newLastRan(h.FS))
	h.explain(ctx, t, f)
	return t
}

// reportBlocked sets the results about one task.
func reportBlocked(f *operation.Finding, t *blockedTask) {
	t.report(f)
	if t.tgid != 0 {
		f.Int("tgid", int64(t.tgid))
	}
	f.Text("startTime", t.startTime.String())
	f.Text("state", string(t.state))
	f.Text("waitsFor", t.cause.Kind)
	f.Text("waitReason", t.cause.String())
	f.Text("waitFunction", t.cause.Function)
	if m := t.file; m != nil {
		f.Text("device", m.device)
		f.Text("deviceNumber", m.number)
		f.Text("mountPoint", m.mountPoint)
		f.Text("fsType", m.fsType)
		f.Text("source", m.source)
	}
}

// waitKinds counts tasks by what they wait for.
func waitKinds(tasks []*blockedTask) string {
	counts := map[string]int{}
	for _, t := range tasks {
		counts[t.cause.Kind]++
	}
	return operation.Counts(counts)
}
