package vmtest

import (
	"os"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// xfsMiB is the minimum size that mkfs.xfs accepts.
const xfsMiB = 300

// filesystem is a filesystem created by a test.
type filesystem struct {
	fsType, source, options string
	dir                     string // mount point
	t                       *testing.T
}

// makeFS creates a filesystem on a device or in a file.
func makeFS(t *testing.T, fsType, path string) {
	t.Helper()
	switch fsType {
	case "ext4":
		needConfig(t, "CONFIG_EXT4_FS")
		// Features that 5.10 can mount, and no checksums, so that a test can damage it.
		command(t, "mkfs.ext4", "-q", "-F", "-b", "4096", "-m", "0",
			"-E", "nodiscard,lazy_itable_init=0,lazy_journal_init=0",
			"-O", "none,has_journal,ext_attr,dir_index,filetype,extent,64bit,flex_bg,sparse_super,large_file", path)
	case "xfs":
		needConfig(t, "CONFIG_XFS_FS")
		command(t, "mkfs.xfs", "-q", "-K", "-m", "bigtime=0,inobtcount=0", "-i", "nrext64=0", path)
	case "btrfs":
		needConfig(t, "CONFIG_BTRFS_FS")
		command(t, "mkfs.btrfs", "-q", "-K", "-m", "single", "-d", "single", path)
	default:
		t.Fatalf("no filesystem %q", fsType)
	}
}

// mountFS mounts a filesystem and unmounts it at the end of the test.
func mountFS(t *testing.T, fsType, source, options string) *filesystem {
	t.Helper()
	fs := &filesystem{fsType: fsType, source: source, options: options, dir: t.TempDir(), t: t}
	fs.mount()
	t.Cleanup(func() {
		if fs.mounted() {
			fs.unmount()
		}
	})
	return fs
}

func (fs *filesystem) mount() {
	fs.t.Helper()
	if err := unix.Mount(fs.source, fs.dir, fs.fsType, 0, fs.options); err != nil {
		fs.t.Fatalf("mount %s %s: %v", fs.fsType, fs.source, err)
	}
}

// unmount unmounts the filesystem, and waits for processes that are about to stop using it.
func (fs *filesystem) unmount() {
	fs.t.Helper()
	eventually(fs.t, "unmount of "+fs.source, 30*time.Second, func() bool {
		return unix.Unmount(fs.dir, 0) == nil
	})
}

func (fs *filesystem) mounted() bool {
	var at, above unix.Stat_t
	return unix.Lstat(fs.dir, &at) == nil && unix.Lstat(fs.dir+"/..", &above) == nil && at.Dev != above.Dev
}

// write creates a file and syncs it to disk.
func (fs *filesystem) write(name string) error {
	f, err := os.OpenFile(fs.dir+"/"+name, os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer f.Close()
	if _, err := f.WriteString(name); err != nil {
		return err
	}
	return f.Sync()
}
