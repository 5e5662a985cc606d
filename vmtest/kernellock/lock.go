// Package kernellock keeps tests that provoke or count faults of this machine's kernel from
// running at the same time: an agent under test sees the faults of all. Other tests run beside
// them. A package holds the kernel from its TestMain (Hold), or for some of its tests (HoldFor).
//
// It must not be imported by anything but tests.
package kernellock

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"testing"

	"golang.org/x/sys/unix"
)

// heldEnv is set for the children of a test binary, which may be the same binary again: their
// parent has the kernel.
const heldEnv = "KERNELLOCK_HELD"

// Hold waits until no other test process has the kernel, and takes it until this process
// ends, for its children too. TestMain calls it. Without root it does nothing: no test then
// reaches the kernel.
func Hold() {
	if free() {
		if _, err := take(); err != nil {
			fmt.Fprintln(os.Stderr, "kernellock:", err)
			os.Exit(1)
		}
	}
}

// HoldFor is Hold until the end of a test. Tests of the same process share the kernel. A
// parallel test calls it after t.Parallel, which may wait for all others of its package.
func HoldFor(tb testing.TB) {
	tb.Helper()
	tests.Lock()
	defer tests.Unlock()
	if tests.running == 0 {
		if !free() {
			return
		}
		fd, err := take()
		if err != nil {
			tb.Fatal(err)
		}
		tests.fd = fd
	}
	tests.running++
	tb.Cleanup(func() {
		tests.Lock()
		defer tests.Unlock()
		if tests.running--; tests.running > 0 {
			return
		}
		if err := errors.Join(os.Unsetenv(heldEnv), unix.Close(tests.fd)); err != nil {
			tb.Error(err)
		}
	})
}

// tests are those of this process that have the kernel by HoldFor.
var tests struct { //nolint:gochecknoglobals // the kernel is one, for all of the process
	sync.Mutex
	running int
	fd      int
}

// free reports whether this process must take the kernel: nobody above it has.
func free() bool { return os.Geteuid() == 0 && os.Getenv(heldEnv) == "" }

func take() (fd int, err error) {
	if fd, err = lock(filepath.Join(os.TempDir(), "kernosis-tests.lock")); err != nil {
		return 0, err
	}
	return fd, os.Setenv(heldEnv, strconv.Itoa(os.Getpid()))
}

func lock(path string) (int, error) {
	// A bare descriptor: nothing closes it by chance, and no child has it.
	fd, err := unix.Open(path, unix.O_CREAT|unix.O_RDONLY|unix.O_CLOEXEC, 0o600)
	if err != nil {
		return 0, &os.PathError{Op: "open", Path: path, Err: err}
	}
	for {
		if err := unix.Flock(fd, unix.LOCK_EX); !errors.Is(err, unix.EINTR) {
			return fd, os.NewSyscallError("flock", err)
		}
	}
}
