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

// diskLogs reads the disk errors of the last maxAge from the kernel log, by disk name.
func diskLogs(h operation.Host, ctx context.Context, maxAge time.Duration, f *operation.Finding) (map[string]*diskLog, error) {
	logs, form := map[string]*diskLog{}, diskErrorLine()
	lost, err := h.FS.KernelLog(ctx, func(r *hostfs.KernelRecord) bool {
		if r.Facility != 0 { // written by a process
			return true
		}
		age := r.Age()
		if m := form.FindSubmatch(r.Text); m != nil && age <= maxAge {
			name := display.Safe(string(m[2]), 64)
			if head, ok := hostfs.NVMeHead(name); ok {
				name = head
			}
			d := logs[name]
			if d == nil {
				d = &diskLog{kinds: map[string]int{}}
				logs[name] = d
			}
			d.kinds[display.Safe(string(m[1]), 64)]++
			d.last, d.lastAge = display.Safe(string(r.Text), operation.MaxLogLine), age
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
