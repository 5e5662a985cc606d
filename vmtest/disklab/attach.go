// Package disklab creates disks for the duration of a test: loop devices, filesystems on them, and
// what can happen to them, such as a disk that does not respond. Only tests may import it.
package disklab

import (
	"errors"
	"os"
	"strconv"
	"testing"

	"golang.org/x/sys/unix"
)

const control = "/dev/loop-control"

// Need skips the test where it can't make loop devices.
func Need(tb testing.TB) {
	tb.Helper()
	if os.Geteuid() != 0 {
		tb.Skip("needs root to make a loop device")
	}
	f, err := os.OpenFile(control, os.O_RDWR, 0)
	if err != nil {
		tb.Skipf("no loop devices here: %v", err)
	}
	f.Close()
}

// Attach creates a loop device over a file or device, with an offset and size in bytes (size 0: up
// to the end), and detaches it at the end of the test. It returns the device's path.
func Attach(tb testing.TB, backing string, offset, size int64) (path string) {
	tb.Helper()
	f, err := os.OpenFile(backing, os.O_RDWR, 0)
	if err != nil {
		tb.Fatal(err)
	}
	defer f.Close()
	path, device := attach(tb, f, unix.LoopInfo64{Offset: uint64(offset), Sizelimit: uint64(size)})
	device.Close()
	tb.Cleanup(func() { detach(tb, path) })
	return path
}

// attach configures a free loop device and returns it open.
func attach(tb testing.TB, backing *os.File, info unix.LoopInfo64) (path string, device *os.File) {
	tb.Helper()
	c, err := os.OpenFile(control, os.O_RDWR, 0)
	if err != nil {
		tb.Fatal(err)
	}
	defer c.Close()
	config := unix.LoopConfig{Fd: uint32(backing.Fd()), Info: info}
	copy(config.Info.File_name[:len(config.Info.File_name)-1], backing.Name())
	for range 100 { // another process or a parallel test may take the free device first
		n, err := unix.IoctlRetInt(int(c.Fd()), unix.LOOP_CTL_GET_FREE)
		if err != nil {
			tb.Fatal(err)
		}
		path = "/dev/loop" + strconv.Itoa(n)
		if device, err = os.OpenFile(path, os.O_RDWR, 0); err != nil {
			tb.Fatal(err)
		}
		if err = unix.IoctlLoopConfigure(int(device.Fd()), &config); err == nil {
			return path, device
		}
		device.Close()
		if !errors.Is(err, unix.EBUSY) {
			tb.Fatalf("attach %s: %v", path, err)
		}
	}
	tb.Fatal("every free loop device was taken by others")
	return "", nil
}

func detach(tb testing.TB, path string) {
	f, err := os.Open(path)
	if err != nil {
		tb.Error(err)
		return
	}
	defer f.Close()
	if err := unix.IoctlSetInt(int(f.Fd()), unix.LOOP_CLR_FD, 0); err != nil {
		tb.Errorf("detach %s: %v", path, err)
	}
}
