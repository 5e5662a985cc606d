package operation

import (
	"cmp"
	"context"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/kernosis/kernosis/collector/hostfs"
)

// DiskErrors returns the built-in disk-errors.
func DiskErrors(h Host) Builtin {
	return bounded(Builtin{
		Name: "disk-errors",
		Doc: "Counts the errors of a device's hardware, or of all disks: those that the driver counts, those in the kernel's log, degraded arrays, and errors " +
			"that filesystems on it remember. Results are of the disk with the most; disk-errors.txt has all.",
		Effect: Collect,
		Parameters: append(diskParameters("all disks"),
			Parameter{Name: "maxAge", Doc: "older lines of the log do not count", Kind: Duration, Default: "1h"}),
		Results: []Result{
			{"disk", "the disk with the most errors; those below are of it"},
			{"disks", "all that were looked at"},
			{"state", "its state, where the driver reports it: running, live, offline, dead …"},
			{"logErrors", "failed requests in the kernel's log, a lower bound"},
			{"logErrorKinds", "these by kind: I/O=3 critical medium=1"},
			{"lastLogError", "the last of them"},
			{"lastLogErrorAge", "how long ago that was"},
			{"ioErrors", "commands that ended with an error, since the disk is there (SCSI); not all of them are faults"},
			{"ioTimeouts", "commands that ended by time-out (SCSI)"},
			{"reads", "reads completed"},
			{"writes", "writes completed"},
			{"averageReadMillis", "milliseconds that a read took on average"},
			{"averageWriteMillis", "milliseconds that a write took on average"},
			{"inFlight", "I/Os in flight"},
			{"degradedArrays", "arrays on it that miss a disk, and how many"},
			{"filesystemErrors", "errors that filesystems on it remember"},
			noteResult(),
		},
		Run: func(ctx context.Context, call *Call) (Output, error) { return h.diskErrors(ctx, call) },
	})
}

// diskHealth is what is counted of a disk's errors.
type diskHealth struct {
	name       string
	state      string
	ioErrors   string // empty: not counted
	timeouts   string
	log        diskLog
	stat       *hostfs.DiskStat
	arrays     []string // degraded ones on it
	filesystem []string // errors that they remember
}

func (h Host) diskErrors(ctx context.Context, call *Call) (Output, error) {
	f := newFinding()
	disks, err := h.hardwareOf(call.Parameters)
	if err != nil {
		return Output{}, err
	}
	logs, err := h.diskLogs(ctx, call.Parameters.Duration("maxAge"), f)
	if err != nil {
		if ctx.Err() != nil {
			return Output{}, err
		}
		f.note("%v", err)
	}
	table, err := h.FS.MountTable()
	if err != nil {
		f.note("filesystems on it are not known: %v", err)
	}
	list := make([]*diskHealth, 0, len(disks))
	for _, name := range disks {
		list = append(list, h.diskHealth(name, logs, table))
	}
	slices.SortStableFunc(list, func(a, b *diskHealth) int { return cmp.Compare(b.weight(), a.weight()) })
	f.text("disks", strings.Join(disks, " "))
	if len(list) > 0 {
		f.diskHealth(list[0], logs != nil)
	} else {
		f.note("this node has no disk of its own")
	}
	err = f.artifact(call, "disk-errors.txt", func(w *page) {
		for _, d := range list {
			d.write(w)
		}
	})
	return f.output(nil), err
}

// hardwareOf is the hardware below the device that the parameters name, or all disks.
// A device that is made of none that the kernel knows (loop) stands for itself.
func (h Host) hardwareOf(v Values) ([]string, error) {
	device, err := h.diskOf(v)
	if err != nil {
		return nil, err
	}
	if device == "" {
		return h.allHardware()
	}
	return h.hardware(device)
}

func (h Host) diskHealth(name string, logs map[string]*diskLog, table *hostfs.MountTable) *diskHealth {
	d := &diskHealth{
		name:     name,
		state:    h.FS.DiskValue(name, "device/state"),
		ioErrors: hexCount(h.FS.DiskValue(name, "device/ioerr_cnt")),
		timeouts: hexCount(h.FS.DiskValue(name, "device/iotmo_cnt")),
	}
	if log := logs[name]; log != nil {
		d.log = *log
	}
	if stat, err := h.FS.DiskStat(name); err == nil {
		d.stat = &stat
	}
	above, err := h.FS.Above(name)
	if err != nil {
		return d
	}
	mounted := map[[2]uint32]bool{}
	for _, upper := range above {
		if n := h.FS.DiskValue(upper, "md/degraded"); n != "" && n != "0" {
			d.arrays = append(d.arrays, h.calledAs(upper)+" misses "+n)
		}
		major, minor, err := h.FS.DeviceNumber(upper)
		if err != nil {
			continue
		}
		for _, m := range table.Mounts() {
			key := [2]uint32{m.Major, m.Minor}
			if m.Major == major && m.Minor == minor && !mounted[key] {
				mounted[key] = true
				if fs := h.filesystem(m); fs.errors() > 0 {
					d.filesystem = append(d.filesystem, fs.String()+": "+fs.errorText())
				}
			}
		}
	}
	return d
}

// hexCount turns SCSI's counters ("0x1f") into decimal; empty stays so.
func hexCount(s string) string {
	n, err := strconv.ParseUint(s, 0, 64)
	if err != nil {
		return ""
	}
	return strconv.FormatUint(n, 10)
}

// weight orders disks by how bad they look.
func (d *diskHealth) weight() int {
	w := d.log.bad() + 100*len(d.filesystem) + 100*len(d.arrays)
	if d.dead() {
		w += 1_000_000
	}
	return w
}

// dead tells that the driver has given the disk up.
func (d *diskHealth) dead() bool {
	switch d.state {
	case "dead", "offline", "transport-offline", "deleting", "deleting (no IO)":
		return true
	}
	return false
}

func (f *finding) diskHealth(d *diskHealth, logRead bool) {
	f.text("disk", d.name)
	f.text("state", d.state)
	if logRead {
		f.int("logErrors", int64(d.log.bad()))
		f.text("logErrorKinds", d.log.String())
	}
	if d.log.last != "" {
		f.text("lastLogError", d.log.last)
		f.text("lastLogErrorAge", d.log.lastAge.Truncate(time.Second).String())
	}
	f.text("ioErrors", d.ioErrors)
	f.text("ioTimeouts", d.timeouts)
	f.text("degradedArrays", strings.Join(d.arrays, ", "))
	f.text("filesystemErrors", strings.Join(d.filesystem, "; "))
	if s := d.stat; s != nil {
		f.uint("reads", s.Reads)
		f.uint("writes", s.Writes)
		f.uint("inFlight", uint64(s.InFlight))
		f.text("averageReadMillis", average(s.ReadTime, s.Reads))
		f.text("averageWriteMillis", average(s.WriteTime, s.Writes))
	}
}

func average(total time.Duration, n uint64) string {
	if n == 0 {
		return ""
	}
	return strconv.FormatFloat(float64(total.Milliseconds())/float64(n), 'f', 2, 64)
}

func (d *diskHealth) write(w *page) {
	w.printf("%s state=%q ioerr_cnt=%q iotmo_cnt=%q log=%q\n", d.name, d.state, d.ioErrors, d.timeouts, d.log.String())
	if d.log.last != "" {
		w.printf("  last, %s ago: %s\n", d.log.lastAge.Truncate(time.Second), d.log.last)
	}
	if s := d.stat; s != nil {
		w.printf("  reads %d writes %d discards %d flushes %d in flight %d busy %s\n", s.Reads, s.Writes, s.Discards, s.Flushes, s.InFlight, s.Busy)
	}
	for _, s := range append(slices.Clone(d.arrays), d.filesystem...) {
		w.printf("  %s\n", s)
	}
}
