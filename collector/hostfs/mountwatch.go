package hostfs

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// mountSettle is the minimum time between two notifications: starting a pod makes a dozen mounts,
// and reading thousands of lines takes milliseconds.
const mountSettle = 200 * time.Millisecond

// MountWatcher notifies of changes of the mount table.
type MountWatcher struct {
	open   func() (*os.File, error)
	settle time.Duration
}

// NewMountWatcher returns a watcher of the node's mount table.
func NewMountWatcher(f FS) *MountWatcher {
	return &MountWatcher{open: f.openMountinfo, settle: mountSettle}
}

// Run calls fn once it watches and after each change, until ctx is done (nil) or the table can't be
// watched. Changes in quick succession cause one call.
//
// Only system calls cause notifications. Changes that the kernel makes itself after an error
// (emergency_ro, errors=remount-ro) appear in the table without one (tested on 6.18): to detect
// those, read [FS.MountTable] regularly.
func (w *MountWatcher) Run(ctx context.Context, fn func()) error {
	file, err := w.open()
	if err != nil {
		return fmt.Errorf("watch mounts: %w", err)
	}
	defer file.Close()
	wake, err := newWaker(ctx)
	if err != nil {
		return fmt.Errorf("watch mounts: %w", err)
	}
	defer wake.close()

	for {
		fn()
		if done, err := wake.wait(-1, w.settle); done || err != nil {
			return err
		}
		// The kernel raises POLLPRI once for all changes since the last poll.
		if done, err := wake.wait(int(file.Fd()), -1); done || err != nil {
			return err
		}
	}
}

// waker makes poll(2) return when a context ends.
type waker struct {
	fd   int // eventfd
	stop func() bool
	done chan struct{} // closed once the context's callback has run
}

func newWaker(ctx context.Context) (*waker, error) {
	fd, err := unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK)
	if err != nil {
		return nil, os.NewSyscallError("eventfd", err)
	}
	w := &waker{fd: fd, done: make(chan struct{})}
	w.stop = context.AfterFunc(ctx, func() {
		defer close(w.done)
		_, _ = unix.Write(fd, binary.NativeEndian.AppendUint64(nil, 1)) // can't block, can't fail
	})
	return w, nil
}

// close stops the callback before it closes the descriptor: otherwise the callback might write to a
// new file with the same number.
func (w *waker) close() {
	if !w.stop() {
		<-w.done
	}
	_ = unix.Close(w.fd) // nothing is written back
}

// wait blocks until fd has an exceptional condition, the context is done (true), or the timeout has
// passed. A negative fd or timeout means none.
func (w *waker) wait(fd int, timeout time.Duration) (done bool, err error) {
	fds := []unix.PollFd{
		{Fd: int32(w.fd), Events: unix.POLLIN},
		{Fd: int32(fd), Events: unix.POLLPRI}, // poll ignores a negative fd
	}
	ms := -1
	if timeout >= 0 {
		ms = int(timeout.Milliseconds())
	}
	for {
		_, err := unix.Poll(fds, ms)
		switch {
		case errors.Is(err, unix.EINTR):
			continue // a signal of the Go scheduler; the timeout starts again
		case err != nil:
			return false, os.NewSyscallError("poll", err)
		case fds[0].Revents != 0:
			return true, nil
		case fds[1].Revents&unix.POLLNVAL != 0:
			return false, os.NewSyscallError("poll", unix.EBADF)
		}
		return false, nil
	}
}
