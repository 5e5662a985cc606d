// Package kernellock keeps test packages that provoke or count faults of this machine's
// kernel from running at the same time: an agent under test sees the faults of all. Other
// packages run beside them.
//
// It must not be imported by anything but tests.
package kernellock

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"

	"golang.org/x/sys/unix"
)

// heldEnv tells the children of a test binary, which may be the same binary again, that
// their parent has the kernel.
const heldEnv = "KERNELLOCK_HELD"

// Hold waits until no other test package has the kernel, and takes it until this process
// ends, for its children too. TestMain calls it. Without root it does nothing: no test then
// reaches the kernel.
func Hold() {
	if os.Geteuid() != 0 || os.Getenv(heldEnv) != "" {
		return
	}
	err := hold(filepath.Join(os.TempDir(), "kernosis-tests.lock"))
	if err == nil {
		err = os.Setenv(heldEnv, strconv.Itoa(os.Getpid()))
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "kernellock:", err)
		os.Exit(1)
	}
}

func hold(path string) error {
	// A bare descriptor: nothing closes it before the process ends, and no child has it.
	fd, err := unix.Open(path, unix.O_CREAT|unix.O_RDONLY|unix.O_CLOEXEC, 0o600)
	if err != nil {
		return &os.PathError{Op: "open", Path: path, Err: err}
	}
	for {
		if err := unix.Flock(fd, unix.LOCK_EX); !errors.Is(err, unix.EINTR) {
			return os.NewSyscallError("flock", err)
		}
	}
}
