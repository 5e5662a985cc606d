package testenv

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

// HoldKernelForProcess is [HoldKernel] until this process ends, on behalf of its children too.
// TestMain calls it.
func HoldKernelForProcess() {
	if kernelFree() {
		if _, err := takeKernel(); err != nil {
			fmt.Fprintln(os.Stderr, "hold the kernel:", err)
			os.Exit(1)
		}
	}
}

// HoldKernel waits until no other process holds this machine's kernel, and holds it until the end of
// the test. A test that causes or counts faults of the kernel calls it, because an agent under test
// detects the faults of all tests. Other tests run in parallel. Tests of the same process share it.
// A parallel test must call it after t.Parallel, which may wait for all other tests of its package.
// Without root it does nothing, because then no test can cause faults.
//
// vmtest/testrun finds the packages that need the kernel by their tests' calls of functions whose
// names begin with HoldKernel.
func HoldKernel(tb testing.TB) {
	tb.Helper()
	holders.Lock()
	defer holders.Unlock()
	if holders.running == 0 {
		if !kernelFree() {
			return
		}
		fd, err := takeKernel()
		if err != nil {
			tb.Fatal(err)
		}
		holders.fd = fd
	}
	holders.running++
	tb.Cleanup(func() {
		holders.Lock()
		defer holders.Unlock()
		if holders.running--; holders.running > 0 {
			return
		}
		if err := errors.Join(os.Unsetenv(heldEnv), unix.Close(holders.fd)); err != nil {
			tb.Error(err)
		}
	})
}

// holders counts the tests of this process that hold the kernel.
var holders struct { //nolint:gochecknoglobals // the kernel is one, for all of the process
	sync.Mutex
	running int
	fd      int
}

// kernelFree reports whether this process must take the lock, because no parent process holds it.
func kernelFree() bool { return os.Geteuid() == 0 && os.Getenv(heldEnv) == "" }

func takeKernel() (fd int, err error) {
	if fd, err = lockKernel(filepath.Join(os.TempDir(), "kernosis-tests.lock")); err != nil {
		return 0, err
	}
	return fd, os.Setenv(heldEnv, strconv.Itoa(os.Getpid()))
}

func lockKernel(path string) (int, error) {
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
