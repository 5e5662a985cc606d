package inject

import (
	"context"
	"time"
)

func diskFaults() []spec {
	var specs []spec
	for _, f := range []Fault{{
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
	}} {
		f.DefaultDuration, f.DefaultCount = lingering, 3
		specs = append(specs, spec{Fault: f, requires: []func() error{requireExt4Image}, do: runDisk})
	}
	return append(specs, spec{
		Fault: Fault{
			Name:    "readonly-fs",
			Summary: "a filesystem that turns read-only on an error",
			Does: "mounts an ext4 of 16 MiB through a loop device with errors=remount-ro and triggers a filesystem " +
				"error in it; repairs and unmounts it afterwards.",
			// The read-only state is detected by polling.
			DefaultDuration: hangLong,
		},
		requires: []func() error{requireExt4Image},
		do:       runReadonly,
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
	if err := pause(ctx, r.env.Duration); err != nil {
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
	if err := pause(ctx, r.env.Duration); err != nil {
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
