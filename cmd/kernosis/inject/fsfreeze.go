package inject

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/moby/sys/mountinfo"
	"golang.org/x/sys/unix"
)

// From include/uapi/linux/fs.h, generic ioctl encoding.
const (
	fiFreeze = 0xc0045877
	fiThaw   = 0xc0045878
)

// FSFreeze makes a task hang in a write to a frozen filesystem, an ext4 made for it. The lock that
// the writer waits for has no holder (a percpu_rwsem records none).
type FSFreeze struct {
	StateDir string
	Limit    time.Duration // thawed and removed after this, whatever happens; 0 for DefaultLimit
	Cgroup   string        // directory of a v2 cgroup that the writer is started in; empty: this process's

	record *record
	fs     *ext4Mount
	writer writer
}

// Start returns once the writer hangs.
func (z *FSFreeze) Start(ctx context.Context) (hang Hang, err error) {
	if z.record, err = openRecord(z.StateDir, "hung-task-fs", z.Limit); err != nil {
		return Hang{}, err
	}
	defer func() { ending(&err, "freeze a filesystem", z.Close) }()
	image, err := newImage(z.record, filepath.Join(z.record.dir, "image"), 8<<20)
	if err != nil {
		return Hang{}, err
	}
	defer image.Close()
	if z.fs, err = mountExt4(ctx, z.record, image, false, ""); err != nil {
		return Hang{}, err
	}
	file, err := os.Create(filepath.Join(z.fs.dir, "file"))
	if err != nil {
		return Hang{}, err
	}
	defer file.Close()
	if z.writer, err = startWriter(ctx, "kn-fs-writer", file, z.Cgroup); err != nil {
		return Hang{}, err
	}
	if err = z.record.will(step{Kind: stepFreeze, Path: z.fs.dir}); err != nil {
		return Hang{}, err
	}
	if err = fsIoctl(z.fs.dir, fiFreeze); err != nil {
		return Hang{}, fmt.Errorf("freeze %s: %w", z.fs.dir, err)
	}
	return Hang{Waiter: z.writer.task}, z.writer.hang(ctx)
}

// Mount returns the frozen filesystem's device and mount point.
func (z *FSFreeze) Mount() (device, dir string) { return z.fs.loop.path(), z.fs.dir }

// fsIoctl makes a request of the filesystem mounted at path.
func fsIoctl(path string, request uint) error {
	dir, err := os.Open(path)
	if err != nil {
		return err
	}
	defer dir.Close()
	return unix.IoctlSetInt(int(dir.Fd()), request, 0)
}

// Heal thaws the filesystem and returns once the writer has written.
func (z *FSFreeze) Heal(ctx context.Context) error {
	if err := thaw(z.fs.dir); err != nil {
		return fmt.Errorf("thaw %s: %w", z.fs.dir, err)
	}
	if err := z.writer.finish(ctx); err != nil {
		return fmt.Errorf("thaw %s: %w", z.fs.dir, err)
	}
	return nil
}

// Close thaws the filesystem, ends the writer and removes everything.
func (z *FSFreeze) Close() error {
	var err error
	if z.writer.owes { // otherwise the writer can't exit
		err = thaw(z.fs.dir)
		z.writer.owes = false
	}
	z.writer.stop()
	return errors.Join(err, z.record.undo())
}

// thaw thaws the filesystem mounted at path. It is no error if none is mounted or it isn't frozen.
func thaw(path string) error {
	// Without the mount the path is the host's filesystem, which isn't ours to thaw.
	mounted, err := mountinfo.Mounted(path)
	if errors.Is(err, os.ErrNotExist) || err == nil && !mounted {
		return nil
	} else if err != nil {
		return err
	}
	if err := fsIoctl(path, fiThaw); !errors.Is(err, unix.EINVAL) { // EINVAL: not frozen
		return err
	}
	return nil
}
