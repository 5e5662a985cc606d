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

func taskFaults() []Fault {
	return []Fault{{
		Name:    "oom",
		Summary: "a child process killed for memory",
		Does: "makes a memory cgroup with a small limit (32 MiB) and lets child processes in it allocate more: " +
			"the kernel kills each, the cgroup's main process survives.",
		DefaultDuration: lingering,
		DefaultCount:    1,
		DefaultMemory:   DefaultMemoryLimit,
		require:         func() error { _, err := memoryHierarchy(); return err },
		do:              runOOM,
	}, {
		Name:    "hung-task",
		Summary: "a task stuck on a lock that another task holds",
		Does: "makes process kn-hang-waiter hang in uninterruptible sleep (state D) on a pipe's mutex, " +
			"which kn-hang-holder holds, and lets it go afterwards.",
		DefaultDuration: hangLong,
		require:         requireUserfaultfd,
		do: func(ctx context.Context, r *run) error {
			return runHang(ctx, r, &HungTask{Limit: r.limit})
		},
	}, {
		Name:    "hung-task-fs",
		Summary: "a task stuck writing to a frozen filesystem",
		Does: "mounts an ext4 of 8 MiB through a loop device, freezes it, makes process kn-fs-writer hang " +
			"in uninterruptible sleep (state D) writing to it, and thaws it afterwards.",
		DefaultDuration: hangLong,
		require:         requireExt4Image,
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
	return r.last(ctx)
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
	if err := r.last(ctx); err != nil {
		return err
	}
	if err := h.Heal(ctx); err != nil {
		return err
	}
	r.say("%s runs again", t.Waiter)
	return nil
}

func diskFaults() []Fault {
	faults := []Fault{{
		Name:    string(DiskWrite),
		Summary: "write requests a block device fails",
		Does: "mounts an ext4 of 8 MiB, kept in memory, through a loop device that lacks some blocks, and " +
			"writes there: each write fails with an I/O error.",
	}, {
		Name:    string(DiskRead),
		Summary: "read requests a block device fails",
		Does: "mounts an ext4 of 8 MiB, kept in memory, through a loop device that lacks some blocks, and " +
			"reads there: each read fails with an I/O error.",
	}, {
		Name:    string(DiskFull),
		Summary: "write requests a thin block device has no space for",
		Does: "mounts an ext4 through a loop device whose backing file lies on a full tmpfs (9 MiB) and " +
			"writes to it: each write fails for lack of space.",
	}}
	for i := range faults {
		f := &faults[i]
		f.DefaultDuration, f.DefaultCount, f.require, f.do = lingering, 3, requireExt4Image, runDisk
	}
	return append(faults, Fault{
		Name:    "readonly-fs",
		Summary: "a filesystem that turns read-only on an error",
		Does: "mounts an ext4 of 16 MiB through a loop device with errors=remount-ro and triggers a filesystem " +
			"error in it; repairs and unmounts it afterwards.",
		DefaultDuration: hangLong, // the read-only state is detected by polling
		require:         requireExt4Image,
		do:              runReadonly,
	})
}

func runDisk(ctx context.Context, r *run) (err error) {
	d := &DiskError{Kind: DiskKind(r.Fault), StateDir: r.env.StateDir, Limit: r.limit}
	if err := d.Start(ctx); err != nil {
		return err
	}
	defer closing(&err, r, d.Close)
	name, dir := d.Device()
	r.Subject = name + " → " + dir
	op := d.Kind.op()
	for range r.want {
		if err := ctx.Err(); err != nil {
			return err
		}
		sector, ioErr, err := d.Fail()
		if err != nil && ioErr == nil && d.Kind == DiskRead {
			return &Refused{Reason: "a loop device over a file that became shorter reads zeros on kernels before 6.12"}
		} else if err != nil {
			return err
		}
		r.Count++
		r.say("%s: %s of 8 sectors at %d: %v", r.Subject, op, sector, ioErr)
	}
	r.note("%d %s requests failed", r.Count, op)
	if err := r.last(ctx); err != nil {
		return err
	}
	if err := d.Heal(ctx); err != nil {
		return err
	}
	r.say("%s: healed", r.Subject)
	return nil
}

func runReadonly(ctx context.Context, r *run) (err error) {
	f := &ReadonlyFS{StateDir: r.env.StateDir, Limit: r.limit}
	if err := f.Start(ctx); err != nil {
		return err
	}
	defer closing(&err, r, f.Close)
	device, dir := f.Mount()
	r.Subject = device + " → " + dir
	r.Count = 1
	mount, super, err := f.Options()
	if err != nil {
		return err
	}
	r.note("%s refuses writes (mountinfo: %s - %s)", r.Subject, mount, super)
	r.say("healed in %s", r.env.Duration.Round(time.Millisecond))
	if err := r.last(ctx); err != nil {
		return err
	}
	repaired, err := f.Heal(ctx)
	if err != nil {
		return err
	}
	how := "remounted"
	if repaired {
		how = "unmounted, repaired by e2fsck and mounted again"
	}
	r.note("%s: %s, accepts writes", r.Subject, how)
	return nil
}

// probePeriod is the time between probes. Kubelet's is 10 s, which is too long for a drill.
const probePeriod = time.Second

func probeFaults() []Fault {
	const how = " A prober like kubelet's, in a network namespace of its own, probes over a veth pair; " +
		"at the end the target answers."
	faults := []Fault{
		{Name: string(ProbeRefused), Summary: "connection refused", Does: "probes a port without a listener."},
		{Name: string(ProbeTimeout), Summary: "no answer to the SYN", Does: "probes an unused address that has a neighbour entry."},
		{Name: string(ProbeReset), Summary: "connection reset by the target", Does: "probes a server that reads each request and resets the connection."},
		{Name: string(ProbeSilent), Summary: "connected, but no answer", Does: "probes a server that reads each request and never answers."},
		{Name: string(ProbeSlow), Summary: "an answer that is not complete in time", Does: "probes a server that never completes its answers."},
		{Name: string(ProbeQueueFull), Summary: "the listener's accept queue is full", Does: "probes a server that never accepts and whose accept queue is full."},
		{Name: string(ProbeNoRoute), Summary: "no route to the target", Does: "probes an address the prober has no route to."},
		{Name: string(ProbeDeadNeighbour), Summary: "no neighbour answers for the target", Does: "probes an unused address of the prober's subnet."},
	}
	for i := range faults {
		f := &faults[i]
		f.Does += how
		f.DefaultCount = 3 // as kubelet's failureThreshold
		f.require, f.do = requireNetns, runProbe
	}
	return faults
}

func runProbe(ctx context.Context, r *run) (err error) {
	rec, err := openRecord(r.env.StateDir, r.Fault, r.limit)
	if err != nil {
		return err
	}
	defer closing(&err, r, rec.undo)
	p := &Probe{Kind: ProbeKind(r.Fault)}
	t, err := p.Start(ctx)
	if err != nil {
		return err
	}
	defer closing(&err, r, p.Close)
	r.Subject = t.Addr.String()
	r.say("target %s of kn-target[%d] (netns %d), prober kn-prober[%d] (netns %d)",
		t.Addr, t.TargetPID, t.TargetNetns, t.ProberPID, t.Netns)
	if length, limit := p.Queue(); length > 0 {
		r.note("accept queue %d/%d", length, limit)
	}
	if err := writeTarget(rec, r.env.TargetsDir, r.Fault, t); err != nil {
		return err
	}
	if r.env.WaitTarget != nil {
		if err := r.env.WaitTarget(ctx, t.Netns, t.Addr); err != nil {
			r.note("no running kernosis watches this target: %v", err)
		}
	}
	if err := attempts(ctx, r, p); err != nil {
		return err
	}
	if err := p.Heal(ctx); err != nil {
		return err
	}
	r.say("%s answers: probe succeeded", t.Addr)
	return nil
}

// attempts probes r.want times or until the fault may end, a period apart. It returns an error unless
// each probe fails in the way that its kind requires.
func attempts(ctx context.Context, r *run, p *Probe) error {
	period := time.NewTicker(probePeriod)
	defer period.Stop()
	for i := 0; i < r.want || !r.over(); i++ {
		if i > 0 {
			select {
			case <-ctx.Done():
				return ctx.Err()
			case <-period.C:
			}
		}
		a, err := p.Attempt(ctx)
		if err != nil {
			return err
		}
		if a.Outcome != p.Kind.Expect() {
			return fmt.Errorf("probe %d of %s: %s, wanted %s: %s", i+1, r.Subject, a.Outcome, p.Kind.Expect(), a.Error)
		}
		r.Count++
		r.say("probe %d failed after %s: %s", i+1, a.Took.Round(time.Millisecond), a.Error)
	}
	r.note("%d probes failed: %s", r.Count, p.Kind.Expect())
	return nil
}
