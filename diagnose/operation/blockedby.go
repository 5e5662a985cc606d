package operation

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/kernosis/kernosis/collector/display"
)

// blockedParameters are those of the checks that look for tasks blocked for one
// cause.
func blockedParameters() []Parameter {
	return append(pidParameters(false, "task to look at; none: all that are blocked"),
		Parameter{Name: "minBlocked", Doc: "tasks blocked for less do not count", Kind: Duration, Default: "1s"})
}

// blockedBy returns the tasks that wait for one thing, longest first, and says what
// the others wait for. A task that is named counts however short its sleep. stacks.txt
// has those found.
func (h Host) blockedBy(ctx context.Context, patient patience, call *Call, kind string, f *finding) (tasks []*blockedTask, others string, err error) {
	var all []*blockedTask
	if call.Parameters["pid"] != "" {
		stat, err := h.task(call.Parameters)
		switch {
		case errors.Is(err, errTaskGone):
			return nil, err.Error(), nil
		case err != nil:
			return nil, "", err
		}
		if stat.State == 'D' {
			all = []*blockedTask{h.blockedTask(stat, newLastRan(h.FS))}
		}
	} else if all, _, err = h.blockedTasks(ctx, call.Parameters.Duration("minBlocked"), f); err != nil {
		return nil, "", err
	}
	if len(all) > blockedMostMax {
		f.note("%d more blocked tasks are not looked at", len(all)-blockedMostMax)
		all = all[:blockedMostMax]
	}
	var unread error
	for _, t := range all {
		if ctx.Err() != nil {
			return nil, "", context.Cause(ctx)
		}
		h.explain(ctx, patient, t, f)
		switch {
		case t.cause.kind == kind:
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
		err = f.artifact(call, "stacks.txt", func(w *page) {
			for _, t := range tasks {
				t.write(w)
			}
		})
	}
	return tasks, others, err
}

// since is " for 12s", or empty where it is not known or short.
func (t *blockedTask) since() string {
	if !t.known || t.blockedFor < 100*time.Millisecond {
		return ""
	}
	return " for " + t.blockedFor.Truncate(100*time.Millisecond).String()
}

// blockedByResults are those that finding.blockedBy sets.
func blockedByResults() []Result {
	return append([]Result{
		{"blockedCount", "tasks that wait for it"},
		{"pid", "the one blocked longest"},
		{"comm", "its name"},
		{"blockedFor", "how long it has not run, a lower bound"},
		{"stackTop", "the kernel function it sleeps in"},
		noteResult(),
	}, ownerResults()...)
}

func (f *finding) blockedBy(tasks []*blockedTask) {
	f.int("blockedCount", int64(len(tasks)))
	if len(tasks) == 0 {
		return
	}
	t := tasks[0]
	f.int("pid", int64(t.pid))
	f.text("comm", t.comm)
	if t.known {
		f.duration("blockedFor", t.blockedFor)
	}
	f.text("stackTop", stackTop(t.stack))
	f.owner(&t.owner)
}
