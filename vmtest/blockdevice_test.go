package vmtest

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/kernosis/kernosis/vmtest/disklab"
)

const (
	sectorSize = 512
	blockSize  = 4096
)

// blockDevice is a block device created by a test.
type blockDevice struct {
	name string // the kernel's name, such as dm-0; its node is /dev/<name>
	t    *testing.T
}

func (d blockDevice) path() string { return "/dev/" + d.name }

// findDevice waits until a block device exists for which is returns true, and its node. is gets the
// device's directory in sysfs.
func findDevice(t *testing.T, what string, is func(dir string) bool) blockDevice {
	t.Helper()
	var found string
	eventually(t, what, 30*time.Second, func() bool {
		dirs, err := filepath.Glob("/sys/block/*")
		if err != nil {
			t.Fatal(err)
		}
		for _, dir := range dirs {
			name := filepath.Base(dir)
			if _, err := os.Stat("/dev/" + name); err == nil && is(dir) {
				found = name
				return true
			}
		}
		return false
	})
	if found == "" {
		t.FailNow()
	}
	return blockDevice{name: found, t: t}
}

// attribute returns the content of a sysfs file without its newline, or "" if there is no file.
func attribute(path string) string {
	text, err := os.ReadFile(path)
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(text))
}

// requester sends requests to a file or device, bypassing the page cache unless stated otherwise.
type requester struct {
	f   *os.File
	buf []byte
}

// open opens the device for requests of up to 64 KiB; flags is O_DIRECT or 0.
func (d blockDevice) open(flags int) *requester { return openRequester(d.t, d.path(), flags) }

func openRequester(t *testing.T, path string, flags int) *requester {
	t.Helper()
	f, err := os.OpenFile(path, os.O_RDWR|flags, 0)
	if err != nil {
		t.Fatal(err)
	}
	// Page-aligned, as O_DIRECT requires.
	buf, err := unix.Mmap(-1, 0, 64<<10, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		f.Close() // errors of writes that failed on purpose are expected
		if err := unix.Munmap(buf); err != nil {
			t.Error(err)
		}
	})
	return &requester{f: f, buf: buf}
}

// request reads or writes n bytes at a sector, in one system call.
func (r *requester) request(op string, sector uint64, n int) error {
	call := unix.Pread
	switch op {
	case "write":
		call = unix.Pwrite
	case "read":
	default:
		return fmt.Errorf("no such operation: %q", op)
	}
	done, err := call(int(r.f.Fd()), r.buf[:n], int64(sector)*sectorSize)
	if err == nil && done != n {
		return fmt.Errorf("%s of %d bytes at sector %d: only %d", op, n, sector, done)
	}
	return err
}

// loopOver creates a loop device over a file or device, with an offset and size in bytes (size 0:
// up to the end), and detaches it at the end of the test.
func loopOver(t *testing.T, path string, offset, size int64) blockDevice {
	t.Helper()
	module(t, "CONFIG_BLK_DEV_LOOP", "loop")
	return blockDevice{name: filepath.Base(disklab.Attach(t, path, offset, size)), t: t}
}

// sparseFile creates a file that uses no memory until it is written.
func sparseFile(t *testing.T, size int64) (path string) {
	t.Helper()
	return newFile(t, filepath.Join(t.TempDir(), "image"), size)
}

func newFile(t *testing.T, path string, size int64) string {
	t.Helper()
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(path, size); err != nil {
		t.Fatal(err)
	}
	return path
}

// writeAttribute writes a sysfs file.
func writeAttribute(t *testing.T, path, value string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(value), 0); err != nil {
		t.Fatal(err)
	}
}
