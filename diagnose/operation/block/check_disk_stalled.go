package block

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"
	"time"

	"github.com/kernosis/kernosis/collector/display"
	"github.com/kernosis/kernosis/collector/hostfs"
	"github.com/kernosis/kernosis/diagnose/operation"
	"github.com/kernosis/kernosis/diagnose/operation/disk"
	"github.com/kernosis/kernosis/diagnose/operation/process"
)

func CheckDiskStalled(h operation.Host) operation.Builtin {
	return operation.Bounded(operation.Builtin{
		Name: "check-disk-stalled",
		Doc: "Checks whether a disk completes no I/O. Verdict DiskStalled: it has I/O in flight and completes none of it during window. Of stacked " +
			"devices (dm, md, partitions) the verdict names the lowest one that stalls.",
		Effect: operation.Check,
		Parameters: []operation.Parameter{
			{Name: "device", Doc: "kernel name of a disk, partition or volume (nvme0n1p2); none: any disk", Kind: operation.String},
			{Name: "pid", Doc: "task that waits for that device, from blocked-stacks; the result reports for how long", Kind: operation.Integer, Max: 1 << 22},
			{Name: "comm", Doc: "its name", Kind: operation.String},
			{Name: "waitsFor", Doc: "what it waits for; the verdict names the task only for disk and jbd2", Kind: operation.String},
			{Name: "holderPID", Doc: "holder of the lock it waits for; the disk is not blamed unless the holder is in uninterruptible sleep too", Kind: operation.Integer, Max: 1 << 22},
			{Name: "blockedFor", Doc: "how long it has waited", Kind: operation.Duration},
			{Name: "window", Doc: "observation time", Kind: operation.Duration, Default: "2s", Max: int64(time.Minute)},
		},
		Results: append([]operation.Result{
			{Name: "device", Doc: "the disk"},
			{Name: "deviceNumber", Doc: "its MAJ:MIN"},
			{Name: "inFlight", Doc: "I/Os in flight at the end"},
			{Name: "window", Doc: "time without a completion"},
			{Name: "stalledDevices", Doc: "all stalled devices, including those stacked above"},
			operation.NoteResult(),
		}, disk.UserResults()...),
		Run: host{h, operation.NewPatience()}.checkDiskStalled,
	})
}

func (h host) checkDiskStalled(ctx context.Context, call *operation.Call) (operation.Output, error) {
	f := operation.NewFinding()
	if err := h.blockedElsewhere(call.Parameters); err != nil {
		return operation.Output{}, err
	}
	disks, unseen, err := h.disksToLookAt(call.Parameters["device"])
	if errors.Is(err, fs.ErrNotExist) {
		if _, blind := h.FS.Disks(); blind == nil {
			return operation.Output{}, operation.RefutedBy("NoDiskStalled", "this node has no device %s (any more)", call.Parameters["device"])
		}
	}
	if err != nil {
		return operation.Output{}, err
	}
	before, unread, _ := h.diskStats(disks)
	began := time.Now()
	if err := operation.Pause(ctx, call.Parameters.Duration("window")); err != nil {
		return operation.Output{}, err
	}
	after, unreadAfter, gone := h.diskStats(disks)
	window := time.Since(began)
	for _, d := range append(unread, unreadAfter...) {
		unseen = operation.AddOnce(unseen, d)
	}
	if len(unseen) > 0 {
		f.Note("%s", notExamined(unseen))
	}
	var stalled []string
	var busy []string
	for _, name := range disks {
		was, then := before[name]
		is, now := after[name]
		switch {
		case !then || !now || is.InFlight == 0:
		case was.InFlight > 0 && was.Done() == is.Done():
			stalled = append(stalled, name)
		default:
			busy = append(busy, fmt.Sprintf("%s: %d in flight, %d done", name, is.InFlight, is.Done()-was.Done()))
		}
	}
	if len(stalled) == 0 {
		seen := slices.DeleteFunc(disks, func(name string) bool { _, ok := after[name]; return !ok })
		return operation.Output{}, notStalled(seen, gone, unseen, busy, window)
	}
	hidden := func(name string) int { // a path to a multipath NVMe disk: the disk has the mounts
		if hostfs.IsNVMePath(name) {
			return 1
		}
		return 0
	}
	slices.SortStableFunc(stalled, func(a, b string) int {
		return cmp.Or(cmp.Compare(hidden(a), hidden(b)), cmp.Compare(after[b].InFlight, after[a].InFlight))
	})
	f.Text("stalledDevices", strings.Join(stalled, " "))
	device := h.lowest(stalled)
	f.Text("device", device)
	if major, minor, err := h.FS.DeviceNumber(device); err == nil {
		f.Text("deviceNumber", fmt.Sprintf("%d:%d", major, minor))
	}
	f.Uint("inFlight", uint64(after[device].InFlight))
	f.Duration("window", window)
	table, err := h.FS.MountTable()
	if err != nil {
		f.Note("can't determine the mounts on it: %v", err)
	}
	users := disk.UsersOf(h.Host, table, device)
	disk.ReportUsers(f, &users)
	return f.Output(operation.VerdictOf("DiskStalled", "%s: %d in flight, none done in %s%s%s",
		device, after[device].InFlight, window.Truncate(100*time.Millisecond), waiterOf(call.Parameters), users.String())), nil
}

// blockedElsewhere refutes all disks as the cause if the task waits for a lock and the lock's
// holder does not wait for a disk.
func (h host) blockedElsewhere(v operation.Values) error {
	if v["device"] != "" || v["waitsFor"] != hostfs.WaitLock || v["holderPID"] == "" {
		return nil
	}
	holder, err := h.FS.Stat(int(v.Int("holderPID")))
	if err != nil {
		return nil //nolint:nilerr // it has ended, which refutes nothing
	}
	if holder.State == 'D' {
		return nil // it may wait for a disk
	}
	return operation.RefutedBy("NoDiskStalled", "%s waits for a lock, and its holder %s, in state %c, does not wait for a disk",
		process.TaskName(v["comm"], int(v.Int("pid"))), process.TaskName(display.Safe(holder.Comm, 64), int(holder.PID)), holder.State)
}

// waiterOf returns "; pg[811] has waited for 131s" for a task that is known to wait for the device;
// otherwise it returns an empty string.
func waiterOf(v operation.Values) string {
	waited := v.Duration("blockedFor").Truncate(time.Second)
	if v["device"] == "" || v["pid"] == "" || waited == 0 || v["waitsFor"] != hostfs.WaitDisk && v["waitsFor"] != hostfs.WaitJournal {
		return ""
	}
	return fmt.Sprintf("; %s has waited for %s", process.TaskName(v["comm"], int(v.Int("pid"))), waited)
}

// disksToLookAt returns the disks that a device consists of, all of which keep counters. Without a
// device it returns all disks; those in unseen keep no counters.
func (h host) disksToLookAt(device string) (disks, unseen []string, err error) {
	off := func(name string) bool { return h.FS.DiskValue(name, "queue/iostats") == "0" }
	if device == "" {
		all, err := h.FS.Disks()
		if err != nil {
			return nil, nil, fmt.Errorf("list disks: %w", err)
		}
		for _, name := range all {
			switch {
			case !off(name):
				disks = append(disks, name)
			case !strings.HasPrefix(name, "zram"): // that is memory, which does not stall
				unseen = append(unseen, name+" (queue/iostats is 0)")
			}
		}
		switch {
		case len(all) == 0:
			return nil, nil, errors.New("this node has no disk")
		case len(disks) == 0:
			return nil, nil, errors.New("no disk keeps counters: " + notExamined(unseen))
		}
		return disks, unseen, nil
	}
	below, err := h.FS.Below(device)
	if err != nil {
		return nil, nil, fmt.Errorf("find device %q: %w", device, err)
	}
	// A partition's I/O also counts for its disk.
	disks = slices.DeleteFunc(below, func(name string) bool {
		disk, err := h.FS.Disk(name)
		return err != nil || disk != name
	})
	for _, d := range disks {
		if off(d) {
			return nil, nil, fmt.Errorf("device %s keeps no counters (queue/iostats is 0)", d)
		}
	}
	return disks, nil, nil
}

func notExamined(disks []string) string {
	return "not examined: " + display.List(disks, 5)
}

// diskStats reads the counters of disks. unread are those that can't be read, each with the error;
// gone are those that were removed.
func (h host) diskStats(disks []string) (stats map[string]hostfs.DiskStat, unread, gone []string) {
	stats = make(map[string]hostfs.DiskStat, len(disks))
	for _, name := range disks {
		s, err := h.FS.DiskStat(name)
		switch {
		case err == nil:
			stats[name] = s
		case errors.Is(err, fs.ErrNotExist):
			gone = append(gone, name)
		default:
			unread = append(unread, fmt.Sprintf("%s (%v)", name, err))
		}
	}
	return stats, unread, gone
}

// notStalled returns the error that refutes the check, with what the disks did instead, or another
// error if some could not be examined.
func notStalled(seen, gone, unseen, busy []string, window time.Duration) error {
	var text []string
	if len(seen) > 0 {
		name := strings.Join(seen, ", ")
		if len(seen) > 3 {
			name = display.Count(len(seen), "disk")
		}
		if len(busy) == 0 {
			busy = []string{"no I/O in flight"}
		}
		text = append(text, fmt.Sprintf("%s observed for %s: %s", name, window.Truncate(100*time.Millisecond), strings.Join(busy[:min(len(busy), 5)], "; ")))
	}
	if len(gone) > 0 {
		text = append(text, "removed meanwhile: "+display.List(gone, 5))
	}
	if len(unseen) > 0 {
		return errors.New(strings.Join(append(text, notExamined(unseen)), "; "))
	}
	return operation.RefutedBy("NoDiskStalled", "%s", strings.Join(text, "; "))
}

// lowest returns the first of the stalled devices that has no stalled device below.
func (h host) lowest(stalled []string) string {
	for _, name := range stalled {
		below, err := h.FS.Below(name)
		if err != nil || !slices.ContainsFunc(below[1:], func(b string) bool { return slices.Contains(stalled, b) }) {
			return name
		}
	}
	return stalled[0]
}
