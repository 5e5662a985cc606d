package disk

import (
	"context"
	"fmt"
	"regexp"
	"time"

	"github.com/kernosis/kernosis/collector/display"
	"github.com/kernosis/kernosis/collector/hostfs"
	"github.com/kernosis/kernosis/diagnose/operation"
)

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

// scsiDiskLine matches the lines that the kernel logs when it attaches a SCSI disk: the capacity
// before it reads the partition table, "Attached" after that. It also logs the capacity when a disk
// is resized.
func scsiDiskLine() *regexp.Regexp {
	return regexp.MustCompile(`^sd [^ ]+: \[([a-z]+)\] (?:(Attached) SCSI |[0-9]+ [0-9]+-byte logical blocks)`)
}

// diskLogs reads the disk errors of the last maxAge from the kernel log, by disk name. If a name was
// given to another SCSI disk, it has only the errors of the last one.
func diskLogs(h operation.Host, ctx context.Context, maxAge time.Duration, f *operation.Finding) (map[string]*diskLog, error) {
	logs, form := map[string]*diskLog{}, diskErrorLine()
	sized, scsi := map[string]*diskLog{}, scsiDiskLine() // sized: since the line of the disk's capacity
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
