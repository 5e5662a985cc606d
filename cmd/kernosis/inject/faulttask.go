package inject

import (
	"context"
	"fmt"
	"path/filepath"
	"time"
)

// hangLong is how long a task hangs by default: long enough for two of the detector's polls
// (5–10 s apart), too short for khungtaskd's default of 120 s.
const hangLong = 20 * time.Second

// lingering is how long a cgroup or mount stays after its fault, so that a detector can
// still look up the subject's details.
const lingering = time.Second

func taskFaults() []spec {
	return []spec{{
		Fault: Fault{
			Name:    "oom",
			Summary: "a child process killed for memory",
			Does: "makes a memory cgroup with a small limit (32 MiB) and lets child processes in it allocate more: " +
				"the kernel kills each, the cgroup's main process survives.",
			DefaultDuration: lingering,
			DefaultCount:    1,
		},
		requires: []func() error{requireMemoryCgroup},
		do:       runOOM,
	}, {
		Fault: Fault{
			Name:    "hung-task",
			Summary: "a task stuck on a lock that another task holds",
			Does: "makes process kn-hang-waiter hang in uninterruptible sleep (state D) on a pipe's mutex, " +
				"which kn-hang-holder holds, and lets it go afterwards.",
			DefaultDuration: hangLong,
		},
		requires: []func() error{requireUserfaultfd},
		do: func(ctx context.Context, r *run) error {
			return runHang(ctx, r, &HungTask{Limit: r.limit})
		},
	}, {
		Fault: Fault{
			Name:    "hung-task-fs",
			Summary: "a task stuck writing to a frozen filesystem",
			Does: "mounts an ext4 of 8 MiB through a loop device, freezes it, makes process kn-fs-writer hang " +
				"in uninterruptible sleep (state D) writing to it, and thaws it afterwards.",
			DefaultDuration: hangLong,
		},
		requires: []func() error{requireExt4Image},
		do: func(ctx context.Context, r *run) error {
			return runHang(ctx, r, &FSFreeze{StateDir: r.env.StateDir, Limit: r.limit})
		},
	}}
}

func runOOM(ctx context.Context, r *run) (err error) {
	o := &OOM{StateDir: r.env.StateDir, Limit: r.limit, Memory: r.env.Memory}
	if err := o.Start(ctx); err != nil {
		return err
	}
	defer closing(&err, r, o.Close)
	r.Subject = "kn-oom-child in cgroup " + filepath.Base(o.Cgroup())
	r.say("cgroup %s, limit %d MiB, main process kn-oom-main[%d]", o.Cgroup(), o.Memory>>20, o.MainPID())
	for range r.want {
		pid, err := o.Kill(ctx)
		if err != nil {
			return err
		}
		r.Count++
		r.say("the kernel killed kn-oom-child[%d]", pid)
	}
	kills, err := o.Kills()
	if err != nil {
		return err
	}
	r.note("%d killed by SIGKILL, %d counted by the kernel (oom_kill)", r.Count, kills)
	return pause(ctx, r.env.Duration)
}

// hang is implemented by both ways to make a task hang.
type hang interface {
	Start(context.Context) (Hang, error)
	Heal(context.Context) error
	Close() error
}

func runHang(ctx context.Context, r *run, h hang) (err error) {
	t, err := h.Start(ctx)
	if err != nil {
		return err
	}
	defer closing(&err, r, h.Close)
	r.Count = 1
	r.Subject = t.Waiter.String()
	where := ""
	if w := t.Waiter.WaitChannel(); w != "" {
		where = " in " + w
	}
	held := "not blocked by another task"
	if t.Holder.PID != 0 {
		held = "held by " + t.Holder.String() + fmt.Sprintf(", thread %d", t.Holder.TID)
	}
	r.note("%s hangs%s, %s", t.Waiter, where, held)
	r.say("healed by itself in %s", r.env.Duration)
	if err := pause(ctx, r.env.Duration); err != nil {
		return err
	}
	if err := h.Heal(ctx); err != nil {
		return err
	}
	r.say("%s runs again", t.Waiter)
	return nil
}
