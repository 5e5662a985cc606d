package hostfs

import (
	"errors"
	"io/fs"
	"os"

	"golang.org/x/sys/unix"
)

// ErrOtherFilesystem is returned if another filesystem is at the path.
var ErrOtherFilesystem = errors.New("another filesystem is there")

// StatfsAt calls statfs at path, if the filesystem with these numbers in mountinfo is mounted there.
// Files have the device number of the mount, except on btrfs and bcachefs (major 0), which number
// their subvolumes. The call may hang.
func StatfsAt(path string, major, minor uint32) (st unix.Statfs_t, err error) {
	fd, err := unix.Open(path, unix.O_PATH|unix.O_CLOEXEC, 0)
	if err != nil {
		return st, err
	}
	defer unix.Close(fd)
	var file unix.Stat_t
	if err := unix.Fstat(fd, &file); err != nil {
		return st, err
	}
	atMajor, atMinor := unix.Major(file.Dev), unix.Minor(file.Dev)
	if major == 0 {
		switch m, err := (FS{}).FileMount(os.Getpid(), fd); {
		case err == nil:
			atMajor, atMinor = m.Major, m.Minor
		case errors.Is(err, fs.ErrNotExist):
			atMajor, atMinor = major, minor // seen through init's root: its own table has the mount at this path
		default:
			return st, err
		}
	}
	if atMajor != major || atMinor != minor {
		return st, ErrOtherFilesystem
	}
	return st, unix.Fstatfs(fd, &st)
}
