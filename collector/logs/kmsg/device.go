package kmsg

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"strings"
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

// charDevice is /dev/kmsg. It is not an os.File: Go's poller is edge-triggered
// and turns errno values into errors that wrap them, for no gain.
type charDevice struct {
	fd     int
	wake   int    // an eventfd that says that the context has ended
	disarm func() // stops waiting for the context's end
}

func openDevice(ctx context.Context, path string) (device, error) {
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, &os.PathError{Op: "open", Path: path, Err: err}
	}
	wake, err := unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("make eventfd: %w", err), unix.Close(fd))
	}
	done := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		defer close(done)
		// It can't fail: the counter is far from its limit.
		_, _ = unix.Write(wake, binary.NativeEndian.AppendUint64(nil, 1))
	})
	disarm := func() {
		if !stop() {
			<-done // it writes to the eventfd right now
		}
	}
	return &charDevice{fd: fd, wake: wake, disarm: disarm}, nil
}

func (d *charDevice) read(b []byte) (int, error) { return unix.Read(d.fd, b) }

// gather is for how long records are let come once there is one: the report of an OOM
// kill has some eighty, and to be woken for each costs more than to read it. It is far
// less than the smallest buffer (128 KiB) lasts in a flood.
const gather = 20 * time.Millisecond

func (d *charDevice) wait(context.Context) error {
	wake := unix.PollFd{Fd: int32(d.wake), Events: unix.POLLIN}
	if err := poll([]unix.PollFd{{Fd: int32(d.fd), Events: unix.POLLIN}, wake}, -1); err != nil {
		return err
	}
	return poll([]unix.PollFd{wake}, gather)
}

// poll waits until one of the descriptors is ready, or so long; negative: for ever.
func poll(fds []unix.PollFd, timeout time.Duration) error {
	ms := -1
	if timeout >= 0 {
		ms = int(timeout.Milliseconds())
	}
	for {
		_, err := unix.Poll(fds, ms)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil {
			return fmt.Errorf("poll: %w", err)
		}
		return nil
	}
}

func (d *charDevice) close() error {
	d.disarm()
	return errors.Join(unix.Close(d.wake), unix.Close(d.fd))
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
