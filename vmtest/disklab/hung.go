package disklab

import (
	"bytes"
	"encoding/binary"
	"os"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/kernosis/kernosis/vmtest/testenv"
)

// HungFiles are files that hang when they are opened, as on a disk that does not respond.
type HungFiles struct {
	tb      testing.TB
	waiting *os.File // receives an event for each open that waits
	release func()
}

// HangFiles makes each open of the given files, or of the given folders and the files in them, wait in
// the kernel until Release, or until the end of the test. It skips the test if that is not
// possible.
func HangFiles(tb testing.TB, paths ...string) *HungFiles {
	tb.Helper()
	if os.Geteuid() != 0 {
		tb.Skip("needs root to hold up who opens a file")
	}
	testenv.HoldKernel(tb) // the waiting task is a hung task for the tests of others
	fd, err := unix.FanotifyInit(unix.FAN_CLASS_CONTENT|unix.FAN_CLOEXEC|unix.FAN_NONBLOCK, unix.O_RDONLY|unix.O_CLOEXEC)
	if err != nil {
		tb.Skipf("no fanotify here: %v", err)
	}
	f := &HungFiles{tb: tb, waiting: os.NewFile(uintptr(fd), "fanotify")}
	f.release = sync.OnceFunc(func() { _ = f.waiting.Close() })
	tb.Cleanup(f.release)
	for _, path := range paths {
		if err := unix.FanotifyMark(fd, unix.FAN_MARK_ADD, unix.FAN_OPEN_PERM|unix.FAN_ONDIR|unix.FAN_EVENT_ON_CHILD, unix.AT_FDCWD, path); err != nil {
			tb.Skipf("%s can't be held: %v", path, err)
		}
	}
	return f
}

// Wait waits for a blocked open that no earlier Wait has returned for.
func (f *HungFiles) Wait() {
	f.tb.Helper()
	event := make([]byte, unix.FAN_EVENT_METADATA_LEN) // room for one event only
	err := f.waiting.SetReadDeadline(time.Now().Add(testenv.Within(20 * time.Second)))
	if err == nil {
		_, err = f.waiting.Read(event)
	}
	var m unix.FanotifyEventMetadata
	if err == nil {
		err = binary.Read(bytes.NewReader(event), binary.NativeEndian, &m)
	}
	if err != nil {
		f.tb.Fatalf("nobody opens what hangs: %v", err)
	}
	_ = unix.Close(int(m.Fd))
}

// Release lets the blocked opens continue.
func (f *HungFiles) Release() { f.release() }
