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
	fd, err := unix.Eventfd(0, unix.EFD_CLOEXEC)
	if err != nil {
		return fmt.Errorf("watch mounts: %w", os.NewSyscallError("eventfd", err))
	}
	done := os.NewFile(uintptr(fd), "eventfd") // readable once ctx is done
	defer done.Close()
	defer context.AfterFunc(ctx, func() {
		_, _ = done.Write(binary.NativeEndian.AppendUint64(nil, 1)) // fails only after Close
	})()

	for {
		fn()
		select {
		case <-ctx.Done():
		case <-time.After(w.settle):
		}
		// The kernel raises POLLPRI once for all changes since the last poll.
		fds := []unix.PollFd{
			{Fd: int32(done.Fd()), Events: unix.POLLIN},
			{Fd: int32(file.Fd()), Events: unix.POLLPRI},
		}
		_, err := unix.Poll(fds, -1)
		for errors.Is(err, unix.EINTR) { // a signal of the Go scheduler
			_, err = unix.Poll(fds, -1)
		}
		switch {
		case ctx.Err() != nil:
			return nil
		case err != nil:
			return fmt.Errorf("watch mounts: %w", os.NewSyscallError("poll", err))
		}
	}
}
