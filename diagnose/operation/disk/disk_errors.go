package disk

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/kernosis/kernosis/collector/display"
	"github.com/kernosis/kernosis/collector/hostfs"
	"github.com/kernosis/kernosis/diagnose/operation"
)

func DiskErrors(h operation.Host) operation.Builtin {
	return operation.Bounded(operation.Builtin{
		Name: "disk-errors",
		Doc: "Counts hardware errors of one device or all disks: errors counted by the driver, errors in the kernel log, degraded arrays, and errors " +
			"recorded by filesystems on the disk. The results describe the disk with the most errors; artifact disk-errors.txt has all.",
		Effect: operation.Collect,
		Parameters: append(diskParameters("all disks"),
			operation.Parameter{Name: "maxAge", Doc: "ignore older log lines", Kind: operation.Duration, Default: "1h"}),
		Results: []operation.Result{
			{Name: "disk", Doc: "disk with the most errors; the results below describe it"},
			{Name: "disks", Doc: "all inspected disks"},
			{Name: "state", Doc: "its state, if the driver reports it: running, live, offline, dead …"},
			{Name: "logErrors", Doc: "failed requests in the kernel log, a lower bound"},
			{Name: "logErrorKinds", Doc: "these by kind: I/O=3 critical medium=1"},
			{Name: "lastLogError", Doc: "last of them"},
			{Name: "lastLogErrorAge", Doc: "its age"},
			{Name: "ioErrors", Doc: "commands that ended with an error since the disk was attached (SCSI); not all are faults"},
			{Name: "ioTimeouts", Doc: "commands that timed out (SCSI)"},
			{Name: "reads", Doc: "completed reads"},
			{Name: "writes", Doc: "completed writes"},
			{Name: "averageReadMillis", Doc: "average duration of a read in milliseconds"},
			{Name: "averageWriteMillis", Doc: "average duration of a write in milliseconds"},
			{Name: "inFlight", Doc: "I/Os in flight"},
			{Name: "degradedArrays", Doc: "arrays on it with missing disks, and how many"},
			{Name: "filesystemErrors", Doc: "errors recorded by filesystems on it"},
			operation.NoteResult(),
		},
		Run: host{h, operation.NewPatience()}.diskErrors,
	})
}

// diskHealth has the error counters of a disk.
type diskHealth struct {
	name       string
	gone       bool
	state      string
	ioErrors   string // empty: not counted
	timeouts   string
	log        diskLog
	stat       *hostfs.DiskStat
	arrays     []string // degraded arrays on it
	filesystem []string // errors recorded by filesystems on it
}

func (h host) diskErrors(ctx context.Context, call *operation.Call) (operation.Output, error) {
	f := operation.NewFinding()
	disks, err := h.hardwareOf(call.Parameters)
	if err != nil {
		return operation.Output{}, err
	}
	logs, err := h.diskLogs(ctx, call.Parameters.Duration("maxAge"), f)
	if err != nil {
		if ctx.Err() != nil {
			return operation.Output{}, err
		}
		f.Note("%v", err)
	}
	table, err := h.FS.MountTable()
	if err != nil {
		f.Note("can't determine the filesystems on it: %v", err)
	}
	list := make([]*diskHealth, 0, len(disks))
	for _, name := range disks {
		list = append(list, h.readDiskHealth(name, logs, table))
	}
	slices.SortStableFunc(list, func(a, b *diskHealth) int { return cmp.Compare(b.weight(), a.weight()) })
	f.Text("disks", strings.Join(disks, " "))
	if len(list) > 0 {
		reportDiskHealth(f, list[0], logs != nil)
		if list[0].gone {
			f.Note("this node has no device %s (any more)", list[0].name)
		}
	} else {
		f.Note("this node has no local disk")
	}
	err = f.Artifact(call, "disk-errors.txt", func(w *operation.Page) {
		for _, d := range list {
			d.write(w)
		}
	})
	return f.Output(nil), err
}

// hardwareOf returns the hardware below the device that the parameters name, or all disks. It
// returns the device itself if no hardware below it is known (loop), or if it is gone: the kernel
// log still has its errors.
func (h host) hardwareOf(v operation.Values) ([]string, error) {
	device, err := h.diskOf(v)
	if err != nil {
		return nil, err
	}
	if device == "" {
		return h.allHardware()
	}
	disks, err := h.hardware(device)
	if errors.Is(err, fs.ErrNotExist) {
		return []string{device}, nil
	}
	return disks, err
}

func (h host) readDiskHealth(name string, logs map[string]*diskLog, table *hostfs.MountTable) *diskHealth {
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
	d.gone = errors.Is(err, fs.ErrNotExist)
	for _, upper := range above {
		if n := h.FS.DiskValue(upper, "md/degraded"); n != "" && n != "0" {
			d.arrays = append(d.arrays, h.calledAs(upper)+" is missing "+n)
		}
	}
	for _, f := range h.selectFilesystems(table, h.mountedOn(above)) {
		if f.errors() > 0 {
			d.filesystem = append(d.filesystem, f.String()+": "+f.errorText())
		}
	}
	return d
}

// hexCount converts a SCSI counter ("0x1f") to decimal; empty stays empty.
func hexCount(s string) string {
	n, err := strconv.ParseUint(s, 0, 64)
	if err != nil {
		return ""
	}
	return strconv.FormatUint(n, 10)
}

// weight returns how bad a disk looks, for sorting.
func (d *diskHealth) weight() int {
	w := d.log.bad() + 100*len(d.filesystem) + 100*len(d.arrays)
	if d.dead() {
		w += 1_000_000
	}
	return w
}

// dead reports whether the driver has given the disk up.
func (d *diskHealth) dead() bool {
	switch d.state {
	case "dead", "offline", "transport-offline", "deleting", "deleting (no IO)":
		return true
	}
	return false
}

func reportDiskHealth(f *operation.Finding, d *diskHealth, logRead bool) {
	f.Text("disk", d.name)
	f.Text("state", d.state)
	if logRead {
		f.Int("logErrors", int64(d.log.bad()))
		f.Text("logErrorKinds", d.log.String())
	}
	if d.log.last != "" {
		f.Text("lastLogError", d.log.last)
		f.Text("lastLogErrorAge", d.log.lastAge.Truncate(time.Second).String())
	}
	f.Text("ioErrors", d.ioErrors)
	f.Text("ioTimeouts", d.timeouts)
	f.Text("degradedArrays", strings.Join(d.arrays, ", "))
	f.Text("filesystemErrors", strings.Join(d.filesystem, "; "))
	if s := d.stat; s != nil {
		f.Uint("reads", s.Reads)
		f.Uint("writes", s.Writes)
		f.Uint("inFlight", uint64(s.InFlight))
		if s.Reads > 0 {
			f.Float("averageReadMillis", float64(s.ReadTime.Milliseconds())/float64(s.Reads))
		}
		if s.Writes > 0 {
			f.Float("averageWriteMillis", float64(s.WriteTime.Milliseconds())/float64(s.Writes))
		}
	}
}

func (d *diskHealth) write(w *operation.Page) {
	w.Printf("%s state=%q ioerr_cnt=%q iotmo_cnt=%q log=%q\n", d.name, d.state, d.ioErrors, d.timeouts, d.log.String())
	if d.log.last != "" {
		w.Printf("  last, %s ago: %s\n", d.log.lastAge.Truncate(time.Second), d.log.last)
	}
	if s := d.stat; s != nil {
		w.Printf("  reads %d writes %d discards %d flushes %d in flight %d busy %s\n", s.Reads, s.Writes, s.Discards, s.Flushes, s.InFlight, s.Busy)
	}
	for _, s := range append(slices.Clone(d.arrays), d.filesystem...) {
		w.Printf("  %s\n", s)
	}
}

// diskLog has the errors of one disk in the kernel log. The kernel rate-limits such lines, so
// counts are lower bounds.
type diskLog struct {
	kinds   map[string]int // "I/O", "critical medium" …
	last    string
	lastAge time.Duration
}

func newDiskLog() *diskLog { return &diskLog{kinds: map[string]int{}} }

// add counts an error.
func (d *diskLog) add(kind []byte, r *hostfs.KernelRecord) {
	d.kinds[display.Safe(string(kind), 64)]++
	d.last, d.lastAge = display.Safe(string(r.Text), operation.MaxLogLine), r.Age()
}

// diskErrorLine matches the block layer's line for a failed request. On older kernels it starts
// with the function's name.
func diskErrorLine() *regexp.Regexp {
	return regexp.MustCompile(`^(?:[a-z_]+: )?([A-Za-z/ ]+) error, dev ([^ ,]+)(?:,|$)`)
}

// bad counts the errors that indicate a fault of the disk itself, not an unsupported command, a
// path to the disk, a reservation, or a full thin pool.
func (d *diskLog) bad() (n int) {
	for kind, count := range d.kinds {
		switch kind {
		case "I/O", "critical medium", "critical target", "protection", "device offline", "timeout":
			n += count
		}
	}
	return n
}

// String returns "I/O=3 critical medium=1".
func (d *diskLog) String() string { return operation.Counts(d.kinds) }

// diskLogs reads the disk errors of the last maxAge from the kernel log, by disk name. If a name was
// given to another SCSI or virtio disk, it has only the errors of the last one. NVMe disks have no
// such line: the kernel's names the controller, not its disks.
func (h host) diskLogs(ctx context.Context, maxAge time.Duration, f *operation.Finding) (map[string]*diskLog, error) {
	logs, form := map[string]*diskLog{}, diskErrorLine()
	// The kernel logs these lines when it attaches a SCSI disk: the capacity before it reads the
	// partition table, "Attached" after that. It also logs the capacity when a disk is resized.
	scsi := regexp.MustCompile(`^sd [^ ]+: \[([a-z]+)\] (?:(Attached) SCSI |[0-9]+ [0-9]+-byte logical blocks)`)
	sized := map[string]*diskLog{} // since the line of the disk's capacity
	// The kernel logs this line before it attaches a virtio disk. At a resize it says "new size".
	virtio := regexp.MustCompile(`^virtio_blk [^ ]+: \[([a-z]+)\] [0-9]+ [0-9]+-byte logical blocks`)
	lost, err := h.FS.KernelLog(ctx, func(r *hostfs.KernelRecord) bool {
		if r.Facility != 0 { // written by a process
			return true
		}
		if m := scsi.FindSubmatch(r.Text); m != nil {
			name := string(m[1])
			if len(m[2]) == 0 {
				sized[name] = newDiskLog()
			} else if d := sized[name]; d != nil {
				logs[name] = d
				delete(sized, name)
			}
			return true
		}
		if m := virtio.FindSubmatch(r.Text); m != nil {
			delete(logs, string(m[1]))
			return true
		}
		if m := form.FindSubmatch(r.Text); m != nil && r.Age() <= maxAge {
			name := display.Safe(string(m[2]), 64)
			if head, ok := hostfs.NVMeHead(name); ok {
				name = head
			}
			if logs[name] == nil {
				logs[name] = newDiskLog()
			}
			logs[name].add(m[1], r)
			if d := sized[name]; d != nil {
				d.add(m[1], r)
			}
		}
		return true
	})
	if lost {
		f.Note("some lines of the kernel log were overwritten or unreadable")
	}
	if err != nil {
		return nil, fmt.Errorf("read the kernel log (may need CAP_SYSLOG): %w", err)
	}
	return logs, nil
}
