package operation

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// loopDisk is an ext4 in memory on a loop device, mounted at dir.
type loopDisk struct {
	t      *testing.T
	dir    string
	device string // /dev/loop7
	name   string // loop7
}

// From include/uapi/linux/fs.h, generic ioctl encoding.
const (
	fiFreeze = 0xc0045877
	fiThaw   = 0xc0045878
)

func newLoopDisk(t *testing.T, size int64, options string, mkfs ...string) *loopDisk {
	t.Helper()
	return newLoopFilesystem(t, size, "ext4", options, append(mkfs, "-q", "-F")...)
}

func newLoopFilesystem(t *testing.T, size int64, fsType, options string, mkfs ...string) *loopDisk {
	t.Helper()
	needRoot(t)
	for _, tool := range []string{"mkfs." + fsType, "fsfreeze", "sh", "umount"} {
		if _, err := exec.LookPath(tool); err != nil {
			t.Skipf("%s is missing", tool)
		}
	}
	if _, err := os.Stat("/dev/loop-control"); err != nil {
		t.Skipf("no loop devices here: %v", err)
	}
	d := &loopDisk{t: t, dir: t.TempDir()}
	// In memory, so that this machine's disks have no part in it.
	fd, err := unix.MemfdCreate("kernosis-operation", unix.MFD_CLOEXEC)
	d.must(err)
	image := os.NewFile(uintptr(fd), "/proc/"+strconv.Itoa(os.Getpid())+"/fd/"+strconv.Itoa(fd))
	defer image.Close()
	d.must(image.Truncate(size))
	c := exec.Command("mkfs."+fsType, append(mkfs, image.Name())...)
	c.Env = append(os.Environ(), "TEST_DIR=x", "TEST_DEV=x", "QA_CHECK_FS=x") // lets mkfs.xfs make small ones
	if out, err := c.CombinedOutput(); err != nil {
		t.Fatalf("mkfs.%s: %v: %s", fsType, err, out)
	}
	device, keep := d.loop(image)
	defer keep.Close() // the mount keeps it
	d.device, d.name = device, filepath.Base(device)
	d.guard()
	d.must(unix.Mount(device, d.dir, fsType, unix.MS_NODEV|unix.MS_NOSUID|unix.MS_NOEXEC, options))
	t.Cleanup(d.unmount)
	return d
}

func (d *loopDisk) must(err error) {
	d.t.Helper()
	if err != nil {
		d.t.Fatal(err)
	}
}

// loop makes a device over a file; the kernel detaches it at its last close.
func (d *loopDisk) loop(image *os.File) (path string, keep *os.File) {
	d.t.Helper()
	control, err := os.OpenFile("/dev/loop-control", os.O_RDWR, 0)
	d.must(err)
	defer control.Close()
	config := unix.LoopConfig{Fd: uint32(image.Fd())}
	config.Info.Flags = unix.LO_FLAGS_AUTOCLEAR
	for range 10 { // another process may take the free one first
		n, err := unix.IoctlRetInt(int(control.Fd()), unix.LOOP_CTL_GET_FREE)
		d.must(err)
		path = "/dev/loop" + strconv.Itoa(n)
		keep, err = os.OpenFile(path, os.O_RDWR, 0)
		d.must(err)
		if err = unix.IoctlLoopConfigure(int(keep.Fd()), &config); err == nil {
			return path, keep
		}
		keep.Close()
		if !errors.Is(err, unix.EBUSY) {
			d.t.Fatal(err)
		}
	}
	d.t.Fatal("every free loop device was taken by others")
	return "", nil
}

func (d *loopDisk) unmount() {
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for late := time.Now().Add(5 * time.Second); ; <-tick.C {
		err := unix.Unmount(d.dir, 0)
		if err == nil {
			return
		}
		if !errors.Is(err, unix.EBUSY) || time.Now().After(late) {
			d.t.Error(err, unix.Unmount(d.dir, unix.MNT_DETACH))
			return
		}
	}
}

// guard thaws and unmounts if this process dies: it sees its pipe end then. So no
// thread of this process may wait for the device: a writer is a process of its own.
func (d *loopDisk) guard() {
	d.t.Helper()
	guard := exec.Command("sh", "-c", `read _; fsfreeze -u "$1"; umount -l "$1"`, "sh", d.dir)
	pipe, err := guard.StdinPipe()
	d.must(err)
	d.must(guard.Start())
	d.t.Cleanup(func() { // last: all is thawed and unmounted
		d.must(guard.Process.Kill())
		guard.Wait()
		pipe.Close()
	})
}

// freeze holds up writes until thaw, and at the latest until the test's end.
func (d *loopDisk) freeze() (thaw func()) {
	d.t.Helper()
	ioctl := func(op uint) error {
		dir, err := os.Open(d.dir)
		if err != nil {
			return err
		}
		defer dir.Close()
		return unix.IoctlSetInt(int(dir.Fd()), op, 0)
	}
	d.must(ioctl(fiFreeze))
	thaw = sync.OnceFunc(func() { d.must(ioctl(fiThaw)) })
	d.t.Cleanup(thaw)
	return thaw
}

// upper is a disk whose writes wait while the filesystem below it is frozen.
func (d *loopDisk) upper() (device string) {
	d.t.Helper()
	image, err := os.Create(filepath.Join(d.dir, "image"))
	d.must(err)
	defer image.Close()
	d.must(unix.Fallocate(int(image.Fd()), 0, 0, 8<<20))
	d.must(image.Sync())
	device, keep := d.loop(image)
	d.t.Cleanup(func() { keep.Close() })
	return device
}

// mounted is an ext4 with a journal on such a disk.
func (d *loopDisk) mounted(device string) (dir string) {
	d.t.Helper()
	if out, err := exec.Command("mkfs.ext4", "-q", "-F", device).CombinedOutput(); err != nil {
		d.t.Fatalf("mkfs.ext4: %v: %s", err, out)
	}
	u := &loopDisk{t: d.t, dir: d.t.TempDir()}
	d.must(unix.Mount(device, u.dir, "ext4", unix.MS_NODEV|unix.MS_NOSUID|unix.MS_NOEXEC, "commit=1"))
	d.t.Cleanup(u.unmount)
	return u.dir
}

// background starts a program that ends with what it waits for.
func (d *loopDisk) background(thaw func(), name string, args ...string) *exec.Cmd {
	d.t.Helper()
	c := exec.Command(name, args...)
	c.Stderr = os.Stderr
	d.must(c.Start())
	d.t.Cleanup(func() {
		thaw() // before all other clean-up, or it stays
		c.Wait()
	})
	return c
}

// hangs waits until a process is in state D, and stays.
func hangs(t *testing.T, pid int) {
	t.Helper()
	h, looks := realHost(), 0
	eventually(t, "process "+strconv.Itoa(pid)+" hangs", func() bool {
		stat, err := h.FS.Stat(pid)
		if err != nil {
			t.Fatal(err)
		}
		if looks++; stat.State != 'D' {
			looks = 0
		}
		return looks >= 4
	})
}
