package hostfs

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/kernosis/kernosis/collector/display"
)

// Ext4Errors is an ext4's record of errors, which is kept across mounts until e2fsck runs.
type Ext4Errors struct {
	Count       uint64
	First, Last Ext4Error
}

// Ext4Error is one such error. Fields that the kernel does not provide are zero.
type Ext4Error struct {
	Time     time.Time
	Function string // the kernel function that detected it
	Line     uint64
	Code     string // "EIO", "EFSBADCRC" …; Linux 5.6
}

// Ext4Errors reads the errors of the mounted ext4 on a device, given by its kernel name. It returns
// [fs.ErrNotExist] if no ext4 is mounted there.
func (f FS) Ext4Errors(device string) (e Ext4Errors, err error) {
	name, err := sysBlockName(device)
	if err != nil {
		return e, err
	}
	dir := "/sys/fs/ext4/" + name + "/"
	if e.Count, err = f.readUint(dir + "errors_count"); err != nil {
		return e, err
	}
	var err1, err2 error
	e.First, err1 = f.ext4Error(dir + "first_error_")
	e.Last, err2 = f.ext4Error(dir + "last_error_")
	return e, errors.Join(err1, err2)
}

func (f FS) ext4Error(prefix string) (e Ext4Error, err error) {
	read := func(name string) uint64 {
		n, readErr := f.optional(prefix + name)
		err = errors.Join(err, readErr)
		return n
	}
	if at := read("time"); at > 0 && at < 1<<40 {
		e.Time = time.Unix(int64(at), 0).UTC()
	}
	e.Line = read("line")
	e.Code = ext4Code(read("errcode"))
	function, readErr := f.readValue(prefix + "func")
	if readErr != nil && !errors.Is(readErr, fs.ErrNotExist) {
		err = errors.Join(err, readErr)
	}
	e.Function = display.Safe(function, 64)
	return e, err
}

// ext4Code returns the name of an EXT4_ERR_* number of fs/ext4/ext4.h, as stored on disk.
func ext4Code(n uint64) string {
	names := []string{
		"", "UNKNOWN", "EIO", "ENOMEM", "EFSBADCRC", "EFSCORRUPTED", "ENOSPC", "ENOKEY", "EROFS", "EFBIG", "EEXIST",
		"ERANGE", "EOVERFLOW", "EBUSY", "ENOTDIR", "ENOTEMPTY", "ESHUTDOWN", "EFAULT",
	}
	if n < uint64(len(names)) {
		return names[n]
	}
	return "CODE_" + strconv.FormatUint(n, 10)
}

// BtrfsErrors are the error counters of a mounted btrfs, summed over its devices. They are kept
// across mounts until reset.
type BtrfsErrors struct {
	Write, Read, Flush, Corruption, Generation uint64
}

// Sum returns the sum of all counters.
func (b *BtrfsErrors) Sum() uint64 { return b.Write + b.Read + b.Flush + b.Corruption + b.Generation }

// BtrfsErrors reads the counters of the mounted btrfs that a device, given by its kernel name, is
// part of. It returns [fs.ErrNotExist] if there is none, or the kernel is older than 5.14.
func (f FS) BtrfsErrors(device string) (b BtrfsErrors, err error) {
	dir, err := f.btrfs(device)
	if err != nil {
		return b, err
	}
	members, err := os.ReadDir(f.Path(dir + "/devinfo"))
	if err != nil {
		return b, err
	}
	for _, m := range members {
		var one BtrfsErrors
		if err := f.readKeyed(dir+"/devinfo/"+m.Name()+"/error_stats", map[string]*uint64{
			"write_errs": &one.Write, "read_errs": &one.Read, "flush_errs": &one.Flush,
			"corruption_errs": &one.Corruption, "generation_errs": &one.Generation,
		}); err != nil {
			return b, err
		}
		b = BtrfsErrors{
			b.Write + one.Write, b.Read + one.Read, b.Flush + one.Flush,
			b.Corruption + one.Corruption, b.Generation + one.Generation,
		}
	}
	return b, nil
}

// BtrfsDevices returns the kernel names of all devices of the mounted btrfs that a device is part
// of. It returns [fs.ErrNotExist] if there is none.
func (f FS) BtrfsDevices(device string) (devices []string, err error) {
	dir, err := f.btrfs(device)
	if err != nil {
		return nil, err
	}
	return f.devices(dir + "/devices")
}

// btrfs returns the sysfs directory of the mounted btrfs that a device is part of.
func (f FS) btrfs(device string) (string, error) {
	name, err := sysBlockName(device)
	if err != nil {
		return "", err
	}
	entries, err := os.ReadDir(f.Path("/sys/fs/btrfs"))
	if err != nil {
		return "", err
	}
	for _, e := range entries {
		if dir := "/sys/fs/btrfs/" + e.Name(); f.exists(dir + "/devices/" + name) {
			return dir, nil
		}
	}
	return "", fmt.Errorf("no btrfs on %s: %w", device, fs.ErrNotExist)
}

// String lists the counters that are not 0: "write 3, flush 1".
func (b *BtrfsErrors) String() string {
	var out []string
	for _, c := range []struct {
		name string
		n    uint64
	}{{"write", b.Write}, {"read", b.Read}, {"flush", b.Flush}, {"corruption", b.Corruption}, {"generation", b.Generation}} {
		if c.n > 0 {
			out = append(out, c.name+" "+strconv.FormatUint(c.n, 10))
		}
	}
	return strings.Join(out, ", ")
}

// IsExt4 reports whether a filesystem of this type may be one of the kernel's ext4 driver, which also
// mounts ext3 and ext2.
func IsExt4(fsType string) bool { return fsType == "ext4" || fsType == "ext3" || fsType == "ext2" }

// RemountsReadOnly reports whether the filesystem of a mount stops accepting writes after an error;
// device is its device's kernel name. mountinfo omits this option of an ext4 if it is the
// filesystem's default; /proc/fs/ext4 lists all options.
func (f FS) RemountsReadOnly(m *Mount, device string) (bool, error) {
	if m.ErrorsPolicy != "" || !IsExt4(m.FSType) {
		return m.ErrorsPolicy == "remount-ro", nil
	}
	name, err := sysBlockName(device)
	if err != nil {
		return false, err
	}
	text, err := f.read("/proc/fs/ext4/"+name+"/options", 8<<10) // one option per line, about 40 lines
	return slices.Contains(strings.Fields(text), "errors=remount-ro"), err
}

// On-disk offsets in struct ext4_super_block of fs/ext4/ext4.h.
const (
	ext4Super   = 1024 // start of the superblock
	ext4MTime   = 0x2c // s_mtime, seconds
	ext4Magic   = 0x38 // s_magic, 0xef53
	ext4MTimeHi = 0x274
)

// Ext4MountedAt returns when the ext4 on a device, given by its kernel name, was last mounted for
// writing, in whole seconds. It reads the device.
func (f FS) Ext4MountedAt(device string) (time.Time, error) {
	if _, err := sysBlockName(device); err != nil {
		return time.Time{}, err
	}
	file, err := os.OpenFile(f.Path("/dev/"+device), os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return time.Time{}, err
	}
	defer file.Close()
	var super [1024]byte
	if _, err := file.ReadAt(super[:], ext4Super); err != nil {
		return time.Time{}, fmt.Errorf("read superblock: %w", err)
	}
	if magic := binary.LittleEndian.Uint16(super[ext4Magic:]); magic != 0xef53 {
		return time.Time{}, fmt.Errorf("/dev/%s has no ext4", device)
	}
	seconds := int64(super[ext4MTimeHi])<<32 | int64(binary.LittleEndian.Uint32(super[ext4MTime:]))
	return time.Unix(seconds, 0), nil
}

// Views returns two versions of each path: in the view of the node's init, because the mount table is
// init's (this requires the right to trace init), and in this process' view of the node.
func (f FS) Views(paths ...string) (all []string) {
	for _, p := range paths {
		all = append(all, f.Path("/proc/1/root"+p), f.Path(p))
	}
	return all
}

// firstAnswer asks through the [FS.Views] of the paths until one leads to the filesystem, or fails.
func (f FS) firstAnswer(paths []string, ask func(p string) (bool, error)) (bool, error) {
	if len(paths) == 0 {
		return false, errors.New("no visible path leads to it")
	}
	var errs []error
	for _, p := range f.Views(paths...) {
		answer, err := ask(p)
		if err == nil {
			return answer, nil
		}
		errs = append(errs, err)
	}
	return false, errors.Join(errs...)
}

// isOn returns an error if the file at a path is on another device.
func isOn(major, minor uint32, p string, st *unix.Stat_t) error {
	if unix.Major(st.Dev) != major || unix.Minor(st.Dev) != minor {
		return fmt.Errorf("another filesystem is at %s", p)
	}
	return nil
}

// XFSShutDown reports whether the XFS of a device has shut down, using paths on it: mountinfo does
// not show this, but stat fails with EIO then. It is an error if none of the paths leads to the
// filesystem. The call may hang.
func (f FS) XFSShutDown(major, minor uint32, paths ...string) (bool, error) {
	return f.firstAnswer(paths, func(p string) (bool, error) {
		var st unix.Stat_t
		err := unix.Stat(p, &st)
		switch {
		case errors.Is(err, unix.EIO):
			return true, nil
		case err != nil:
			return false, &fs.PathError{Op: "stat", Path: p, Err: err}
		}
		return false, isOn(major, minor, p, &st)
	})
}

// Ext4ShutDown reports whether the ext4 of a device accepts no writes, using directories on it like
// [FS.XFSShutDown]: up to v6.14 mountinfo does not show this, but fsync fails with EIO then; up to
// v6.5 only after a shutdown. The call may write the journal, and may hang.
func (f FS) Ext4ShutDown(major, minor uint32, paths ...string) (bool, error) {
	return f.firstAnswer(paths, func(p string) (bool, error) {
		dir, err := os.OpenFile(p, unix.O_DIRECTORY, 0)
		if err != nil {
			return false, err
		}
		defer dir.Close()
		var st unix.Stat_t
		if err := unix.Fstat(int(dir.Fd()), &st); err != nil {
			return false, &fs.PathError{Op: "stat", Path: p, Err: err}
		}
		if err := isOn(major, minor, p, &st); err != nil {
			return false, err
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
	})
}

// Ext4AbortedIn is the kernel function that reports an aborted journal. From then on the ext4
// accepts no writes, whatever its errors= policy is.
const Ext4AbortedIn = "ext4_journal_check_start"

// Ext4WritingEnded returns the time of the latest error of the ext4 of a mount, which may be of an
// earlier mount, if that error or all errors end writing; device is its device's kernel name. The time
// is zero if there is none.
func (f FS) Ext4WritingEnded(m *Mount, device string) (at time.Time, err error) {
	if !IsExt4(m.FSType) {
		return at, nil
	}
	e, err := f.Ext4Errors(device)
	if err != nil || e.Count == 0 {
		return at, err
	}
	// What needs the journal later adds an error with this code.
	if e.Last.Function != Ext4AbortedIn && e.Last.Code != "EROFS" {
		if ends, err := f.RemountsReadOnly(m, device); err != nil || !ends {
			return at, err
		}
	}
	return e.Last.Time, nil
}

// Ext4Stopped reports whether the ext4 of a mount accepts no writes without showing it, as from
// d3476f3dad4a (v6.12, backports to 6.1) until v6.15; device is its device's kernel name. That is
// so after an error since the mount, if that error or all errors end writing. It reads the device.
func (f FS) Ext4Stopped(m *Mount, device string) (bool, error) {
	if m.MountReadOnly || m.SuperReadOnly || m.EmergencyRO || m.Shutdown {
		return false, nil
	}
	ended, err := f.Ext4WritingEnded(m, device)
	if err != nil || ended.IsZero() {
		return false, err
	}
	mounted, err := f.Ext4MountedAt(device)
	if now := time.Now(); mounted.After(now) {
		// The clock was ahead at the time of the mount, as it may be during boot.
		mounted = now.Add(-BootTime())
	}
	return err == nil && !ended.Before(mounted), err
}
