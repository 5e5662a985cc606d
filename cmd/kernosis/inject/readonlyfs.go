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

// ReadonlyFS turns a filesystem read-only: it triggers an error in an ext4 of its own, mounted with
// errors=remount-ro.
type ReadonlyFS struct {
	StateDir string
	Limit    time.Duration // removed after this, whatever happens; 0 for DefaultLimit

	record *record
	fs     *ext4Mount
}

// Start returns once the filesystem refuses writes.
func (f *ReadonlyFS) Start(ctx context.Context) (err error) {
	if f.record, err = openRecord(f.StateDir, "readonly-fs", f.Limit); err != nil {
		return err
	}
	defer func() { ending(&err, "turn a filesystem read-only", f.Close) }()
	image, err := newImage(f.record, filepath.Join(f.record.dir, "image"), 16<<20)
	if err != nil {
		return err
	}
	defer image.Close()
	if f.fs, err = mountExt4(ctx, f.record, image, true, "errors=remount-ro"); err != nil {
		return err
	}
	if err = f.write(); err != nil {
		return err
	}
	trigger := filepath.Join("/sys/fs/ext4", f.fs.loop.name, "trigger_fs_error")
	err = os.WriteFile(trigger, []byte("kernosis inject readonly-fs"), 0)
	if errors.Is(err, os.ErrNotExist) {
		return &Refused{Reason: "this kernel's ext4 has no trigger_fs_error in sysfs"}
	} else if err != nil {
		return fmt.Errorf("trigger filesystem error: %w", err)
	}
	return waitFor(ctx, 5*time.Second, "a refused write", func() (bool, error) {
		err := f.write()
		// EIO if ext4 stops writes without a read-only mark (6.12).
		if errors.Is(err, unix.EROFS) || errors.Is(err, unix.EIO) {
			return true, nil
		}
		return false, err
	})
}

// Mount returns the filesystem's device and mount point.
func (f *ReadonlyFS) Mount() (device, dir string) { return f.fs.loop.path(), f.fs.dir }

// Options returns the options in mountinfo: the mount's own, and the filesystem's. From 6.15
// on both have rw, and the latter also emergency_ro; before, the latter have ro.
func (f *ReadonlyFS) Options() (mount, super string, err error) {
	mounts, err := mountinfo.GetMounts(mountinfo.SingleEntryFilter(f.fs.dir))
	if err != nil {
		return "", "", fmt.Errorf("read mount options: %w", err)
	} else if len(mounts) == 0 {
		return "", "", fmt.Errorf("read mount options: %s is not mounted", f.fs.dir)
	}
	return mounts[0].Options, mounts[0].VFSOptions, nil
}

func (f *ReadonlyFS) write() error {
	return os.WriteFile(filepath.Join(f.fs.dir, "file"), []byte("x"), 0o600)
}

// Heal makes the filesystem writable again: by remount if the kernel allows that (not with
// an aborted journal), else by unmount, e2fsck and mount. repaired reports the latter.
func (f *ReadonlyFS) Heal(ctx context.Context) (repaired bool, err error) {
	if f.fs.mount(unix.MS_REMOUNT) == nil && f.write() == nil {
		return false, nil
	}
	// Keep the device open between the mounts, because the kernel detaches it at its last close.
	if f.fs.loop.file, err = os.OpenFile(f.fs.loop.path(), os.O_RDWR, 0); err != nil {
		return false, fmt.Errorf("repair filesystem: %w", err)
	}
	defer f.fs.loop.file.Close()
	if err := unmount(f.fs.dir); err != nil {
		return false, fmt.Errorf("repair filesystem: unmount: %w", err)
	}
	var exit interface{ ExitCode() int }
	err = command(ctx, "e2fsck", "-p", f.fs.loop.path())
	if err != nil && !(errors.As(err, &exit) && exit.ExitCode() == 1) { // 1: errors were corrected
		return false, fmt.Errorf("repair filesystem: %w", err)
	}
	if err := f.fs.mount(0); err != nil {
		return false, fmt.Errorf("repair filesystem: %w", err)
	}
	if err := f.write(); err != nil {
		return false, fmt.Errorf("repair filesystem: %w", err)
	}
	return true, nil
}

// Close unmounts the filesystem and removes everything.
func (f *ReadonlyFS) Close() error { return f.record.undo() }
