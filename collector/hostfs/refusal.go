package hostfs

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// XFSShutDown reports whether the XFS of a device has shut down, using a path on it: mountinfo does
// not show this, but stat fails with EIO then. It tries the path as the node's init sees it first,
// because the mount table is init's. It is an error if neither path leads to the filesystem. The
// call may hang.
func (f FS) XFSShutDown(major, minor uint32, path string) (bool, error) {
	var errs []error
	for _, p := range []string{f.Path("/proc/1/root" + path), f.Path(path)} {
		var st unix.Stat_t
		err := unix.Stat(p, &st)
		switch {
		case errors.Is(err, unix.EIO):
			return true, nil
		case err != nil:
			errs = append(errs, &fs.PathError{Op: "stat", Path: p, Err: err})
		case unix.Major(st.Dev) == major && unix.Minor(st.Dev) == minor:
			return false, nil
		default:
			errs = append(errs, fmt.Errorf("another filesystem is at %s", p))
		}
	}
	return false, errors.Join(errs...)
}

// Ext4ShutDown reports whether the ext4 of a device accepts no writes, using a directory on it: up
// to v6.14 mountinfo does not show this, but fsync fails with EIO then; up to v6.5 only after a
// shutdown. It tries the paths that [FS.XFSShutDown] tries. The call may write the journal, and may
// hang.
func (f FS) Ext4ShutDown(major, minor uint32, path string) (bool, error) {
	var errs []error
	for _, p := range []string{f.Path("/proc/1/root" + path), f.Path(path)} {
		down, err := ext4ShutDown(major, minor, p)
		if err == nil {
			return down, nil
		}
		errs = append(errs, err)
	}
	return false, errors.Join(errs...)
}

func ext4ShutDown(major, minor uint32, path string) (bool, error) {
	dir, err := os.OpenFile(path, unix.O_DIRECTORY, 0)
	if err != nil {
		return false, err
	}
	defer dir.Close()
	var st unix.Stat_t
	if err := unix.Fstat(int(dir.Fd()), &st); err != nil {
		return false, &fs.PathError{Op: "stat", Path: path, Err: err}
	}
	if unix.Major(st.Dev) != major || unix.Minor(st.Dev) != minor {
		return false, fmt.Errorf("another filesystem is at %s", path)
	}
	if dir.Sync() == nil {
		return false, nil
	}
	// The first error may be of an earlier write; that is returned once.
	err = dir.Sync()
	if errors.Is(err, unix.EIO) || errors.Is(err, unix.EROFS) {
		return true, nil
	}
	return false, err
}

// Ext4AbortedIn is the kernel function that reports an aborted journal. From then on the ext4
// accepts no writes, whatever its errors= policy is.
const Ext4AbortedIn = "ext4_journal_check_start"

// Ext4Stopped reports whether the ext4 of a mount accepts no writes without showing it, as from
// d3476f3dad4a (v6.12, and backports to 6.1) until v6.15; device is its device's kernel name. That
// is the case if it had an error since it was mounted, and that error or all errors end writing. It
// reads the device.
func (f FS) Ext4Stopped(m *Mount, device string) (bool, error) {
	if m.FSType != "ext4" || m.MountReadOnly || m.SuperReadOnly || m.EmergencyRO || m.Shutdown {
		return false, nil
	}
	e, err := f.Ext4Errors(device)
	if err != nil || e.Count == 0 {
		return false, err
	}
	// What needs the journal later adds an error with this code.
	if e.Last.Function != Ext4AbortedIn && e.Last.Code != "EROFS" {
		if ends, err := f.RemountsReadOnly(m, device); err != nil || !ends {
			return false, err
		}
	}
	mounted, err := f.Ext4MountedAt(device)
	if now := time.Now(); mounted.After(now) {
		// The clock was ahead at the time of the mount, as it may be during boot.
		mounted = now.Add(-BootTime())
	}
	return err == nil && !e.Last.Time.Before(mounted), err
}
