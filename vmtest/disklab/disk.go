package disklab

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/kernosis/kernosis/vmtest/testenv"
)

// Disk is an in-memory filesystem on a loop device. It can be frozen: writes to it, or to a device
// over one of its files, are then in flight until the thaw.
type Disk struct {
	tb     testing.TB
	Dir    string // mount point
	Device string // /dev/loop7
	Name   string // loop7

	fsType string
	image  *os.File
}

// From include/uapi/linux/fs.h, generic ioctl encoding.
const (
	fiFreeze = 0xc0045877
	fiThaw   = 0xc0045878
)

// From fs/xfs/libxfs/xfs_fs.h; fs/ext4/ext4.h has the same. The others are arguments of goingDown.
const (
	goingDown  = 0x8004587d
	flushFirst = 0
	noLogFlush = 2
)

// mountFlags restrict what a test's filesystem can be used for.
const mountFlags = unix.MS_NODEV | unix.MS_NOSUID | unix.MS_NOEXEC

// NewExt4 creates an ext4 filesystem of a size in bytes and mounts it. mkfs are additional
// arguments of mkfs.ext4. It skips the test if that is not possible.
func NewExt4(tb testing.TB, size int64, mkfs ...string) *Disk {
	tb.Helper()
	return New(tb, size, "ext4", append(mkfs, "-q", "-F")...)
}

// New is NewExt4 for another type of filesystem.
func New(tb testing.TB, size int64, fsType string, mkfs ...string) *Disk {
	tb.Helper()
	d, keep := newDevice(tb, size, fsType, mkfs...)
	defer keep.Close() // the mount keeps the device
	d.guard(`fsfreeze -u "$1"; umount -l "$1"`, d.Dir)
	d.mount(d.Device, fsType, "")
	return d
}

// NewXFS creates and mounts an XFS filesystem of 32 MiB. It skips the test if the kernel does not
// support XFS.
func NewXFS(tb testing.TB) *Disk {
	tb.Helper()
	if b, err := os.ReadFile("/proc/filesystems"); err != nil || !strings.Contains(string(b), "\txfs\n") {
		tb.Skip("no XFS here")
	}
	return New(tb, 32<<20, "xfs", "-q")
}

// newDevice creates a filesystem on a loop device, which the kernel detaches at its last close.
func newDevice(tb testing.TB, size int64, fsType string, mkfs ...string) (d *Disk, keep *os.File) {
	tb.Helper()
	Need(tb)
	for _, tool := range []string{"mkfs." + fsType, "fsfreeze", "sh", "umount"} {
		if _, err := exec.LookPath(tool); err != nil {
			tb.Skipf("%s is missing", tool)
		}
	}
	d = &Disk{tb: tb, Dir: tb.TempDir()}
	// In memory, so that the test does not depend on this machine's disks.
	fd, err := unix.MemfdCreate("kernosis-disklab", unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	d.must(err)
	d.image = os.NewFile(uintptr(fd), "/proc/"+strconv.Itoa(os.Getpid())+"/fd/"+strconv.Itoa(fd))
	tb.Cleanup(func() { d.image.Close() })
	d.must(d.image.Truncate(size))
	c := exec.Command("mkfs."+fsType, append(mkfs, d.image.Name())...)
	c.Env = append(os.Environ(), "TEST_DIR=x", "TEST_DEV=x", "QA_CHECK_FS=x") // makes mkfs.xfs accept small sizes
	if out, err := c.CombinedOutput(); err != nil {
		tb.Fatalf("mkfs.%s: %v: %s", fsType, err, out)
	}
	d.Device, keep = attach(tb, d.image, unix.LoopInfo64{Flags: unix.LO_FLAGS_AUTOCLEAR})
	d.Name = filepath.Base(d.Device)
	return d, keep
}

func (d *Disk) mount(device, fsType, options string) {
	d.tb.Helper()
	d.must(unix.Mount(device, d.Dir, fsType, mountFlags, options))
	d.fsType = fsType
	d.tb.Cleanup(d.unmount)
}

// Renew unmounts the filesystem and mounts it again.
func (d *Disk) Renew() {
	d.tb.Helper()
	device, err := os.Open(d.Device) // otherwise the device would be detached at the unmount
	d.must(err)
	defer device.Close()
	d.must(unix.Unmount(d.Dir, 0))
	d.must(unix.Mount(d.Device, d.Dir, d.fsType, mountFlags, ""))
}

func (d *Disk) must(err error) {
	d.tb.Helper()
	if err != nil {
		d.tb.Fatal(err)
	}
}

// unmount unmounts the filesystem. It waits for devices over its files, which the kernel detaches
// asynchronously.
func (d *Disk) unmount() {
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for late := time.Now().Add(testenv.Within(5 * time.Second)); ; <-tick.C {
		err := unix.Unmount(d.Dir, 0)
		if err == nil {
			return
		}
		if !errors.Is(err, unix.EBUSY) || time.Now().After(late) {
			d.tb.Error(err, unix.Unmount(d.Dir, unix.MNT_DETACH))
			return
		}
	}
}

// guard runs shell commands to thaw and unmount if this process dies, which the shell detects by
// the end of its pipe. That works only if no thread of this process waits for the device, because
// such a thread would survive a kill and keep the pipe open: a writer must be a separate process.
func (d *Disk) guard(commands string, args ...string) {
	d.tb.Helper()
	guard := exec.Command("sh", append([]string{"-c", "read _; " + commands, "sh"}, args...)...)
	pipe, err := guard.StdinPipe()
	d.must(err)
	d.must(guard.Start())
	d.tb.Cleanup(func() { // runs last, when everything is thawed and unmounted
		d.must(guard.Process.Kill())
		guard.Wait()
		pipe.Close()
	})
}

// Freeze blocks writes until thaw is called, or until the end of the test.
func (d *Disk) Freeze() (thaw func()) {
	d.tb.Helper()
	d.onDir(func(fd int) error { return unix.IoctlSetInt(fd, fiFreeze, 0) })
	thaw = sync.OnceFunc(func() { d.onDir(func(fd int) error { return unix.IoctlSetInt(fd, fiThaw, 0) }) })
	d.tb.Cleanup(thaw)
	return thaw
}

// ShutDown stops all I/O of an XFS or ext4 filesystem, like its own reaction to an error.
func (d *Disk) ShutDown() {
	d.tb.Helper()
	d.onDir(func(fd int) error { return unix.IoctlSetPointerInt(fd, goingDown, noLogFlush) })
}

// Fail writes what is cached and then fails all I/O of an XFS or ext4 filesystem with EIO, until Renew.
func (d *Disk) Fail() {
	d.tb.Helper()
	d.onDir(func(fd int) error { return unix.IoctlSetPointerInt(fd, goingDown, flushFirst) })
}

// onDir calls fn with a descriptor of the mount point.
func (d *Disk) onDir(fn func(fd int) error) {
	d.tb.Helper()
	dir, err := os.Open(d.Dir)
	d.must(err)
	defer dir.Close()
	d.must(fn(int(dir.Fd())))
}

// AbortJournal makes writes to the disk fail until an ext4 filesystem has aborted its journal. From
// then on it refuses writes.
func (d *Disk) AbortJournal() {
	d.tb.Helper()
	_, err := unix.FcntlInt(d.image.Fd(), unix.F_ADD_SEALS, unix.F_SEAL_FUTURE_WRITE)
	d.must(err)
	for i := range 10 {
		if err := os.Mkdir(filepath.Join(d.Dir, strconv.Itoa(i)), 0o755); err != nil {
			return
		}
		d.onDir(func(fd int) error { _ = unix.Fsync(fd); return nil }) // fails, and has the journal aborted
	}
	d.tb.Fatal("the filesystem accepts writes that its disk refuses")
}

// SetReadOnly remounts the filesystem read-only or writable. No file of it may be open for writing.
func (d *Disk) SetReadOnly(is bool) error {
	flags := uintptr(unix.MS_REMOUNT | mountFlags)
	if is {
		flags |= unix.MS_RDONLY
	}
	return os.NewSyscallError("mount", unix.Mount("", d.Dir, "", flags, ""))
}

// Upper returns a device of 8 MiB over a file of this disk: its writes block while the disk is
// frozen. Write to it only from another process.
func (d *Disk) Upper() (device string) {
	d.tb.Helper()
	image, err := os.Create(filepath.Join(d.Dir, "image"))
	d.must(err)
	defer image.Close()
	d.must(unix.Fallocate(int(image.Fd()), 0, 0, 8<<20))
	d.must(image.Sync())
	// The kernel detaches the device at its last close.
	device, keep := attach(d.tb, image, unix.LoopInfo64{Flags: unix.LO_FLAGS_AUTOCLEAR})
	d.tb.Cleanup(func() { keep.Close() })
	return device
}

// MountExt4 creates an ext4 filesystem with a journal on such a device, and returns its mount
// point.
func (d *Disk) MountExt4(device string) (dir string) {
	d.tb.Helper()
	if out, err := exec.Command("mkfs.ext4", "-q", "-F", device).CombinedOutput(); err != nil {
		d.tb.Fatalf("mkfs.ext4: %v: %s", err, out)
	}
	u := &Disk{tb: d.tb, Dir: d.tb.TempDir()}
	u.mount(device, "ext4", "commit=1")
	return u.Dir
}
