package block

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/kernosis/kernosis/collector/display"
	"github.com/kernosis/kernosis/collector/hostfs"
	"github.com/kernosis/kernosis/diagnose/operation"
	"github.com/kernosis/kernosis/diagnose/operation/process"
)

func CheckFilesystemFrozen(h operation.Host) operation.Builtin {
	in := host{h, operation.NewPatience()}
	return operation.Bounded(operation.Builtin{
		Name: "check-filesystem-frozen",
		Doc: "Checks whether tasks wait to write to a frozen filesystem. Verdict FilesystemFrozen. The kernel does not expose which filesystems are " +
			"frozen, so a frozen filesystem without writers is not detected.",
		Effect:     operation.Check,
		Parameters: blockedParameters(),
		Results: append([]operation.Result{
			{Name: "mountPoint", Doc: "its mount point; missing: the tasks' system calls name no file"},
			{Name: "device", Doc: "its block device"},
			{Name: "deviceNumber", Doc: "its MAJ:MIN"},
			{Name: "fsType", Doc: "its type"},
		}, blockedByResults()...),
		Run: func(ctx context.Context, call *operation.Call) (operation.Output, error) {
			f := operation.NewFinding()
			tasks, others, err := in.runBlockedBy(ctx, call, hostfs.WaitFrozenFilesystem, f)
			if err != nil {
				return operation.Output{}, err
			}
			if len(tasks) == 0 {
				return operation.Output{}, operation.RefutedBy("NoFilesystemFrozen", "no task waits for a thaw; %s", others)
			}
			reportBlockedBy(f, tasks)
			what := "a filesystem (the tasks' system calls do not show which)"
			for _, t := range tasks {
				if m := t.file; m != nil {
					f.Text("mountPoint", m.mountPoint)
					f.Text("device", m.device)
					f.Text("deviceNumber", m.number)
					f.Text("fsType", m.fsType)
					what = fmt.Sprintf("%s on %s at %s", m.fsType, m.source, m.mountPoint)
					break
				}
			}
			return f.Output(operation.VerdictOf("FilesystemFrozen", "%s is frozen: %s to write", what, waitingVerb(tasks))), nil
		},
	})
}

// waitingVerb returns "pg[811] in pod … has waited for 12s", with the number of further tasks.
func waitingVerb(tasks []*blockedTask) string {
	t := tasks[0]
	s := process.TaskName(t.comm, t.pid) + t.owner.In()
	if n := len(tasks) - 1; n > 0 {
		return fmt.Sprintf("%s and %s have waited%s", s, display.Count(n, "more task"), t.since())
	}
	return s + " has waited" + t.since()
}

// blockedParameters returns the parameters of checks that look for tasks blocked by one kind of
// cause.
func blockedParameters() []operation.Parameter {
	return append(process.PIDParameters(false, "task to inspect; none: all blocked tasks"),
		operation.Parameter{Name: "minBlocked", Doc: "ignore tasks blocked for less", Kind: operation.Duration, Default: "1s"})
}

// runBlockedBy returns the tasks that wait for one kind of thing, longest first, and a description
// of all blocked tasks. A task that the parameters name counts, however short its sleep. It writes
// the tasks found to stacks.txt.
func (h host) runBlockedBy(ctx context.Context, call *operation.Call, kind string, f *operation.Finding) (tasks []*blockedTask, others string, err error) {
	all, err := h.tasksToLookAt(ctx, call.Parameters, f)
	switch {
	case errors.Is(err, process.ErrTaskGone):
		return nil, err.Error(), nil
	case err != nil:
		return nil, "", err
	}
	all = slices.DeleteFunc(all, func(t *blockedTask) bool { return t.state != 'D' })
	left := max(0, len(all)-blockedMostMax)
	if all = all[:len(all)-left]; left > 0 {
		f.Note("%d more blocked tasks were not examined", left)
	}
	var unread error
	for _, t := range all {
		if ctx.Err() != nil {
			return nil, "", context.Cause(ctx)
		}
		h.explain(ctx, t, f)
		switch {
		case t.cause.Kind == kind:
			tasks = append(tasks, t)
		case t.unread != nil:
			unread = t.unread
		}
	}
	if len(tasks) == 0 && unread != nil {
		return nil, "", fmt.Errorf("kernel stacks of blocked tasks can't be read (needs CAP_SYS_ADMIN): %w", unread)
	}
	others = "no task is blocked"
	if len(all) > 0 {
		others = display.Count(len(all), "blocked task") + ": " + waitKinds(all)
	}
	if len(tasks) == 0 && left > 0 {
		return nil, "", fmt.Errorf("%s; %d more were not examined", others, left)
	}
	if len(tasks) > 0 {
		err = f.Artifact(call, "stacks.txt", func(w *operation.Page) {
			for _, t := range tasks {
				t.write(w)
			}
		})
	}
	return tasks, others, err
}

// since returns " for 12s"; empty if the duration is unknown or short.
func (t *blockedTask) since() string {
	if !t.known || t.blockedFor < 100*time.Millisecond {
		return ""
	}
	return " for " + t.blockedFor.Truncate(100*time.Millisecond).String()
}

// blockedByResults returns the results that reportBlockedBy sets.
func blockedByResults() []operation.Result {
	return append([]operation.Result{
		{Name: "blockedCount", Doc: "tasks that wait for it"},
		{Name: "pid", Doc: "task blocked longest"},
		{Name: "comm", Doc: "its name"},
		{Name: "blockedFor", Doc: "time since it last ran, a lower bound"},
		{Name: "stackTop", Doc: "kernel function it sleeps in"},
		operation.NoteResult(),
	}, process.OwnerResults()...)
}

func reportBlockedBy(f *operation.Finding, tasks []*blockedTask) {
	f.Int("blockedCount", int64(len(tasks)))
	if len(tasks) > 0 {
		tasks[0].report(f)
	}
}

// report sets the results that all operations about blocked tasks share.
func (t *blockedTask) report(f *operation.Finding) {
	f.Int("pid", int64(t.pid))
	f.Text("comm", t.comm)
	if t.known {
		f.Duration("blockedFor", t.blockedFor)
	}
	f.Text("stackTop", hostfs.TopFrame(t.stack))
	process.ReportOwner(f, &t.owner)
}
