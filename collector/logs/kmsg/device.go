package kmsg

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/kernosis/kernosis/collector/poller"
)

// device is the open log: the kernel's, or a test's.
type device interface {
	// read returns one record, or the errno of read(2): EAGAIN if there is none, EPIPE if records
	// were overwritten, EINVAL if the record is longer than b, in which case it is skipped.
	read(b []byte) (int, error)
	// wait returns when there is something to read, or when ctx ends.
	wait(ctx context.Context) error
	close() error
}

// charDevice is /dev/kmsg.
type charDevice struct {
	fd     int
	poller *poller.Poller
	ends   func() bool // stops waiting for the context's end
	later  *time.Timer

	records int           // read since the last wait
	gather  time.Duration // of the last wait
	latest  time.Time     // when the last wait ended
}

func openDevice(ctx context.Context, path string) (device, error) {
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, &os.PathError{Op: "open", Path: path, Err: err}
	}
	d := &charDevice{fd: fd, later: time.NewTimer(0)}
	if d.poller, err = poller.New(fd); err != nil {
		return nil, errors.Join(fmt.Errorf("%s: %w", path, err), unix.Close(fd))
	}
	d.ends = context.AfterFunc(ctx, func() { _ = d.poller.Close() })
	return d, nil
}

// read never blocks, so it bypasses the runtime ([poller.Poller]). Most errnos are not failures.
func (d *charDevice) read(b []byte) (int, error) {
	n, _, errno := unix.RawSyscall(unix.SYS_READ, uintptr(d.fd), uintptr(unsafe.Pointer(unsafe.SliceData(b))), uintptr(len(b)))
	if errno != 0 {
		return 0, errno
	}
	d.records++
	return int(n), nil
}

// After the first record, wait lets more records accumulate for gather: the report of an OOM kill
// has about eighty, and waking up for each costs more than reading it. During a storm the time
// grows up to gatherStorm, while fewer than gatherMost records arrive in it. That many records
// take 40 KiB; the smallest kernel buffer has 128 KiB.
const (
	gather      = 20 * time.Millisecond
	gatherStorm = 80 * time.Millisecond
	gatherMost  = 200
	// gatherWithin is the largest gap between records of a storm.
	gatherWithin = 100 * time.Millisecond
)

// pause returns how long to let records accumulate, now that there is one.
func (d *charDevice) pause(now time.Time) time.Duration {
	switch {
	case now.Sub(d.latest) > gatherWithin:
		d.gather = gather
	case d.records < gatherMost/2:
		d.gather = min(2*d.gather, gatherStorm)
	case d.records > gatherMost:
		d.gather = max(d.gather/2, gather)
	}
	d.records = 0
	return d.gather
}

func (d *charDevice) wait(ctx context.Context) error {
	if err := d.poller.Wait(-1); errors.Is(err, os.ErrClosed) { // ctx has ended
		return nil
	} else if err != nil {
		return err
	}
	d.later.Reset(d.pause(time.Now()))
	select {
	case <-d.later.C:
	case <-ctx.Done():
	}
	d.latest = time.Now()
	return nil
}

func (d *charDevice) close() error {
	d.ends()
	d.later.Stop()
	return errors.Join(d.poller.Close(), unix.Close(d.fd))
}
