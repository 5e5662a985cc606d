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

// blockedParameters returns the parameters of checks that look for tasks blocked by one kind of
// cause.
func blockedParameters() []operation.Parameter {
	return append(process.PIDParameters(false, "task to inspect; none: all blocked tasks"),
		operation.Parameter{Name: "minBlocked", Doc: "ignore tasks blocked for less", Kind: operation.Duration, Default: "1s"})
}

// runBlockedBy returns the tasks that wait for one kind of thing, longest first, and a description
// of all blocked tasks. A task that the parameters name counts, however short its sleep. It writes
// the tasks found to stacks.txt.
func runBlockedBy(h operation.Host, ctx context.Context, patient operation.Patience, call *operation.Call, kind string, f *operation.Finding) (tasks []*blockedTask, others string, err error) {
	all, err := tasksToLookAt(h, ctx, call.Parameters, f)
	switch {
	case errors.Is(err, process.ErrTaskGone):
		return nil, err.Error(), nil
	case err != nil:
		return nil, "", err
	}
	all = slices.DeleteFunc(all, func(t *blockedTask) bool { return t.state != 'D' })
	if len(all) > blockedMostMax {
		f.Note("%d more blocked tasks were not examined", len(all)-blockedMostMax)
		all = all[:blockedMostMax]
	}
	var unread error
	for _, t := range all {
		if ctx.Err() != nil {
			return nil, "", context.Cause(ctx)
		}
		explain(h, ctx, patient, t, f)
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
