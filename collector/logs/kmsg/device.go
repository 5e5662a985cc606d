package kmsg

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// device is the open log: of the kernel or of a test.
type device interface {
	// read returns one record, or the errno of read(2): EAGAIN, there is none;
	// EPIPE, records were written over; EINVAL, the record is longer than b and
	// is passed by.
	read(b []byte) (int, error)
	// wait returns when there is something to read, or when ctx ends.
	wait(ctx context.Context) error
	close() error
}

// charDevice is /dev/kmsg. Go's poller waits for records, for a thread that is blocked
// in poll(2) costs more CPU than the records (see [bpf.Poller]); it is read past the
// os.File, which would turn each errno into an error that wraps it, for no gain.
type charDevice struct {
	fd    int // of file
	file  *os.File
	conn  syscall.RawConn
	ends  func() bool // no longer waits for the context's end
	later *time.Timer
}

func openDevice(ctx context.Context, path string) (device, error) {
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, &os.PathError{Op: "open", Path: path, Err: err}
	}
	d := &charDevice{fd: fd, file: os.NewFile(uintptr(fd), path), later: time.NewTimer(0)}
	if d.conn, err = d.file.SyscallConn(); err != nil {
		return nil, errors.Join(err, d.file.Close())
	}
	// A deadline that has passed ends all waiting.
	d.ends = context.AfterFunc(ctx, func() { _ = d.file.SetReadDeadline(time.Unix(1, 0)) })
	return d, nil
}

func (d *charDevice) read(b []byte) (int, error) { return unix.Read(d.fd, b) }

// gather is for how long records are let come once there is one: the report of an OOM
// kill has some eighty, and to be woken for each costs more than to read it. It is far
// less than the smallest buffer (128 KiB) lasts in a flood.
const gather = 20 * time.Millisecond

func (d *charDevice) wait(ctx context.Context) error {
	var failed error
	err := d.conn.Read(func(fd uintptr) bool {
		fds := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}
		n, err := unix.Poll(fds, 0)
		if err != nil && !errors.Is(err, unix.EINTR) {
			failed = fmt.Errorf("poll: %w", err)
		}
		return n > 0 || failed != nil
	})
	switch {
	case failed != nil:
		return failed
	case errors.Is(err, os.ErrDeadlineExceeded): // ctx has ended
		return nil
	case err != nil:
		return err
	}
	d.later.Reset(gather)
	select {
	case <-d.later.C:
	case <-ctx.Done():
	}
	return nil
}

func (d *charDevice) close() error {
	d.ends()
	d.later.Stop()
	return d.file.Close()
}

// readBootID returns the random id of this boot.
func readBootID(path string) (string, error) {
	b, err := os.ReadFile(path)
	if err != nil {
		return "", fmt.Errorf("boot id: %w", err)
	}
	id := strings.TrimSpace(string(b))
	if id == "" || strings.ContainsAny(id, " \n") {
		return "", fmt.Errorf("boot id: %s holds %.100q", path, b)
	}
	return id, nil
}
