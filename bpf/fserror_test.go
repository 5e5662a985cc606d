package bpf

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"
)

// newFS makes a filesystem on a loop device of the test.
func newFS(t *testing.T, size int64, mkfs ...string) (blockDevice, string) {
	t.Helper()
	path, err := exec.LookPath(mkfs[0])
	if err != nil {
		path = filepath.Join("/sbin", mkfs[0])
	}
	if _, err := os.Stat(path); err != nil {
		t.Skipf("needs %s", mkfs[0])
	}
	dir := t.TempDir()
	backing := filepath.Join(dir, "image")
	if err := os.WriteFile(backing, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(backing, size); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command(path, append(mkfs[1:], backing)...).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	mnt := filepath.Join(dir, "mnt")
	if err := os.Mkdir(mnt, 0o700); err != nil {
		t.Fatal(err)
	}
	return attachLoop(t, backing), mnt
}

func mountFS(t *testing.T, disk blockDevice, mnt, fsType, options string) {
	t.Helper()
	if err := unix.Mount(disk.path, mnt, fsType, 0, options); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(mnt, 0); err != nil {
			t.Errorf("unmount: %v", err)
		}
	})
}

// mkfs options that 5.10 supports as well.
var mkfsExt4 = []string{"mkfs.ext4", "-q", "-F", "-O", "^orphan_file,^metadata_csum_seed"}

func drainFSErrors(t *testing.T, l *Loaded, dev uint32) []FSError {
	t.Helper()
	var records []FSError
	if _, err := l.Drain(func(raw []byte) {
		r, err := View[FSError](raw)
		if err != nil || r.H.Kind != KindFSError {
			t.Fatal(err, r)
		}
		if r.Dev == dev {
			records = append(records, *r)
		}
	}); err != nil {
		t.Fatal(err)
	}
	if n, err := l.RingFull(); err != nil || n != 0 {
		t.Errorf("lost %d records (%v)", n, err)
	}
	return records
}

func TestFSErrorsOfExt4(t *testing.T) {
	k := testKernel(t)
	l := openStem(t, fserror(), k, nil)
	disk, mnt := newFS(t, 16<<20, mkfsExt4...)
	mountFS(t, disk, mnt, "ext4", "errors=continue")
	withStatistics(t, l, func() {
		for range diskFaults {
			trigger := "/sys/fs/ext4/" + filepath.Base(disk.path) + "/trigger_fs_error"
			if err := os.WriteFile(trigger, []byte("kernosis test"), 0); err != nil {
				t.Fatal(err)
			}
		}
	})
	records := drainFSErrors(t, l, disk.dev)
	if len(records) != diskFaults {
		t.Fatalf("%d errors gave %d records", diskFaults, len(records))
	}
	for i, r := range records {
		if r.What != FSErrorFound || r.Line == 0 {
			t.Errorf("record %d: what %d, line %d", i, r.What, r.Line)
		}
		for want, got := range map[string][]byte{
			"ext4": r.FSType[:], filepath.Base(disk.path): r.ID[:], "trigger_test_error": r.Function[:],
		} {
			if string(CString(got)) != want {
				t.Errorf("record %d: %q, want %q", i, CString(got), want)
			}
		}
		if int(r.Task.TGID) != os.Getpid() || r.Task.StartNS == 0 {
			t.Errorf("record %d: task %+v", i, r.Task)
		}
	}
}

// goDown calls FS_IOC_GOINGDOWN, which shuts down a filesystem just like its own reaction to an
// error.
func goDown(t *testing.T, mnt string) {
	t.Helper()
	dir, err := os.Open(mnt)
	if err != nil {
		t.Fatal(err)
	}
	defer dir.Close()
	const goingDown = 0x8004587d // _IOR('X', 125, __u32)
	noFlush := uint32(2)
	if _, _, errno := unix.Syscall(unix.SYS_IOCTL, dir.Fd(), goingDown, uintptr(unsafe.Pointer(&noFlush))); errno != 0 {
		t.Fatal(errno)
	}
}

func TestFSShutdowns(t *testing.T) {
	k := testKernel(t)
	mkfsXFS := []string{"mkfs.xfs", "-q", "-f"}
	for _, c := range []struct {
		name, fsType string
		mkfs         []string
		program      string // of xfs; empty: the best one
	}{
		{"ext4", "ext4", mkfsExt4, ""},
		{"xfs", "xfs", mkfsXFS, ""},
		// On kernels 5.16 to 6.4, which have no tracepoint.
		{"xfs by kprobe", "xfs", mkfsXFS, FserrorProgXfsLogDownKp},
	} {
		t.Run(c.name, func(t *testing.T) {
			fsType, mkfs := c.fsType, c.mkfs
			s := fserror()
			for i := range s.hooks {
				if c.program != "" && s.hooks[i].name == "xfs_force_shutdown" {
					s.hooks[i].variants = slices.DeleteFunc(s.hooks[i].variants, func(v variant) bool { return v.program != c.program })
				}
			}
			l := openStem(t, s, k, nil)
			attached, reason := false, ""
			for _, r := range l.Reports() {
				if strings.HasPrefix(r.Hook, fsType) && strings.Contains(r.Hook, "shutdown") {
					attached = attached || r.State == Attached
					reason = r.Reason
				}
			}
			if !attached {
				t.Skip(reason)
			}
			disk, mnt := newFS(t, 320<<20, mkfs...)
			mountFS(t, disk, mnt, fsType, "")
			goDown(t, mnt)
			records := drainFSErrors(t, l, disk.dev)
			if len(records) != 1 {
				t.Fatalf("one shutdown gave %d records", len(records))
			}
			r := records[0]
			t.Logf("flags %#x at %s:%d", r.ShutdownFlags, CString(r.Function[:]), r.Line)
			if r.What != FSErrorShutdown || string(CString(r.FSType[:])) != fsType {
				t.Errorf("what %d of a %q", r.What, CString(r.FSType[:]))
			}
		})
	}
}
