package hostfs

import (
	"context"
	"errors"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// maxKernelRecord is CONSOLE_EXT_LOG_MAX, which bounds what one read returns.
const maxKernelRecord = 8 << 10

// KernelLog calls fn with each record that the kernel's log contains, oldest first, until fn
// returns false. It does not wait for more. lost reports that records were overwritten while it
// read, or could not be parsed. It needs CAP_SYSLOG if dmesg_restrict is set.
func (f FS) KernelLog(ctx context.Context, fn func(r *KernelRecord) bool) (lost bool, err error) {
	p := f.Path("/dev/kmsg")
	fd, err := unix.Open(p, unix.O_RDONLY|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		return false, &os.PathError{Op: "open", Path: p, Err: err}
	}
	defer func() { _ = unix.Close(fd) }() // only read
	buf, record := make([]byte, maxKernelRecord), KernelRecord{}
	for ctx.Err() == nil {
		n, err := unix.Read(fd, buf)
		switch {
		case errors.Is(err, unix.EINTR):
		case errors.Is(err, unix.EPIPE), errors.Is(err, unix.EINVAL): // overwritten; too long
			lost = true
		case errors.Is(err, unix.EAGAIN), err == nil && n == 0:
			return lost, nil
		case err != nil:
			return lost, &os.PathError{Op: "read", Path: p, Err: err}
		default:
			if _, err := ParseKernelRecord(buf[:n], &record); err != nil {
				lost = true
			} else if !fn(&record) {
				return lost, nil
			}
		}
	}
	return lost, context.Cause(ctx)
}

// Age returns how long ago the record was written. Its time stamp is from the scheduler's clock,
// which follows CLOCK_MONOTONIC with a drift of seconds a month.
func (r *KernelRecord) Age() time.Duration {
	return Monotonic() - r.Time
}
