// Package kernellock serializes tests that cause or count faults of this machine's kernel, because
// an agent under test detects the faults of all tests. Other tests run in parallel. A package
// takes the lock in its TestMain (Hold) or for some of its tests (HoldFor).
//
// Only tests may import it.
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

// heldEnv is set for the children of a test binary, which may run the same binary: their parent
// holds the lock.
const heldEnv = "KERNELLOCK_HELD"

// Hold waits for the lock and holds it until this process ends, on behalf of its children too.
// TestMain calls it. Without root it does nothing, because then no test can cause faults.
func Hold() {
	if free() {
		if _, err := take(); err != nil {
			fmt.Fprintln(os.Stderr, "kernellock:", err)
			os.Exit(1)
		}
	}
}

// HoldFor holds the lock until the end of a test. Tests of the same process share it. A parallel
// test must call it after t.Parallel, which may wait for all other tests of its package.
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

// tests counts the tests of this process that hold the lock through HoldFor.
var tests struct { //nolint:gochecknoglobals // the kernel is one, for all of the process
	sync.Mutex
	running int
	fd      int
}

// free reports whether this process must take the lock, because no parent process holds it.
func free() bool { return os.Geteuid() == 0 && os.Getenv(heldEnv) == "" }

func take() (fd int, err error) {
	if fd, err = lock(filepath.Join(os.TempDir(), "kernosis-tests.lock")); err != nil {
		return 0, err
	}
	return fd, os.Setenv(heldEnv, strconv.Itoa(os.Getpid()))
}

func lock(path string) (int, error) {
	// A bare descriptor: no finalizer closes it, and no child inherits it.
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
