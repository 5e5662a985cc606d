package vmtest

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/kernosis/kernosis/vmtest/testenv"
)

// mountLoads returns what administrators and container runtimes do with mounts.
func mountLoads(t *testing.T) []*load {
	t.Helper()
	return []*load{
		remountLoad(t),
		{what: "mounts of a tmpfs", pause: 50 * time.Millisecond, step: func(dir string) func() (int, error) {
			return func() (int, error) {
				if err := unix.Mount("busy", dir, "tmpfs", 0, ""); err != nil {
					return 0, os.NewSyscallError("mount", err)
				}
				return 1, unmount(dir)
			}
		}(t.TempDir())},
	}
}

// remountLoad remounts a filesystem read-only as an administrator would, which the kernel does in
// two steps, just after a file was written to it, and then writable again. A bind mount of it, like
// a pod's, stays writable.
func remountLoad(t *testing.T) *load {
	t.Helper()
	disk := loopOver(t, sparseFile(t, 16<<20), 0, 0)
	makeFS(t, "ext4", disk.path())
	fs := mountFS(t, "ext4", disk.path(), "errors=remount-ro")
	pod := t.TempDir()
	t.Cleanup(func() {
		if t.Failed() {
			_ = unix.Unmount(pod, unix.MNT_DETACH)
		}
	})
	remount := func(flags uintptr) error {
		return os.NewSyscallError("remount", unix.Mount("", fs.dir, "", unix.MS_REMOUNT|flags, ""))
	}
	// A closed file may still be counted as open for writing.
	remountReadOnly := func() (err error) {
		for end := time.Now().Add(testenv.Within(10 * time.Second)); time.Now().Before(end); time.Sleep(time.Millisecond) {
			if err = remount(unix.MS_RDONLY); !errors.Is(err, unix.EBUSY) {
				return err
			}
		}
		return err
	}
	n := 0
	return &load{what: "remounts by an administrator", pause: 100 * time.Millisecond, step: func() (int, error) {
		if err := fs.write("written"); err != nil {
			return 0, err
		}
		if n++; n%3 == 0 {
			if err := unix.Mount(fs.dir, pod, "", unix.MS_BIND, ""); err != nil {
				return 0, os.NewSyscallError("bind", err)
			}
		}
		// Unwritten data is written back during the remount.
		if err := os.WriteFile(filepath.Join(fs.dir, "unwritten"), make([]byte, 256<<10), 0o600); err != nil {
			return 0, err
		}
		if err := remountReadOnly(); err != nil {
			return 0, err
		}
		if err := fs.write("refused"); !errors.Is(err, unix.EROFS) {
			return 0, errors.Join(errors.New("a file could be written"), err)
		}
		time.Sleep(50 * time.Millisecond)
		if n%3 == 0 {
			if err := unmount(pod); err != nil {
				return 0, err
			}
		}
		return 1, remount(0)
	}}
}
