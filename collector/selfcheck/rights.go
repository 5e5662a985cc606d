package selfcheck

import (
	"errors"
	"fmt"
	"slices"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/kernosis/kernosis/collector/hostfs"
)

// Needless are the capabilities that no part of the agent has a use for (docs/capabilities.md).
// One that a later kernel knows and this list does not is kept.
func Needless() []string {
	return []string{
		"CAP_LINUX_IMMUTABLE", "CAP_NET_BROADCAST", "CAP_IPC_OWNER", "CAP_SYS_MODULE", "CAP_SYS_RAWIO", "CAP_SYS_PACCT", "CAP_SYS_BOOT",
		"CAP_SYS_NICE", "CAP_SYS_TIME", "CAP_SYS_TTY_CONFIG", "CAP_MKNOD", "CAP_LEASE", "CAP_AUDIT_WRITE", "CAP_AUDIT_CONTROL", "CAP_SETFCAP",
		"CAP_MAC_OVERRIDE", "CAP_MAC_ADMIN", "CAP_WAKE_ALARM", "CAP_BLOCK_SUSPEND", "CAP_AUDIT_READ", "CAP_CHECKPOINT_RESTORE",
	}
}

// ErrCgo: a program with cgo has threads that can't be reached.
var ErrCgo = errors.New("this program is built with cgo") //nolint:gochecknoglobals // a constant

// Drop takes capabilities from all threads of this process, for good. With programs it
// takes them from the programs that it starts as well: those of root have again what is in
// the bounding set. It returns those that it had.
//
// It is to be called early, before threads are anything but alike.
func Drop(names []string, programs bool) (dropped []string, err error) {
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var data [2]unix.CapUserData
	if err := unix.Capget(&header, &data[0]); err != nil {
		return nil, fmt.Errorf("capget: %w", err)
	}
	var numbers []int
	for _, name := range names {
		n, ok := hostfs.CapNumber(name)
		if !ok {
			return nil, fmt.Errorf("%s is no capability", name)
		}
		numbers = append(numbers, n)
		if data[n/32].Permitted&(1<<(n%32)) != 0 {
			dropped = append(dropped, name)
		}
	}
	if programs {
		// While this process may still do it.
		for _, n := range numbers {
			if err := allThreads(unix.SYS_PRCTL, unix.PR_CAPBSET_DROP, uintptr(n)); err != nil && !errors.Is(err, unix.EINVAL) { // unknown to this kernel
				return nil, fmt.Errorf("bounding set: %w", err)
			}
		}
	}
	for _, n := range numbers {
		bit := ^uint32(1 << (n % 32))
		d := &data[n/32]
		d.Effective, d.Permitted, d.Inheritable = d.Effective&bit, d.Permitted&bit, d.Inheritable&bit
	}
	if err := capset(&header, &data); err != nil {
		return nil, fmt.Errorf("capset: %w", err)
	}
	return slices.Clip(dropped), nil
}

// allThreads makes a system call on each thread.
func allThreads(trap, a1, a2 uintptr) error {
	_, _, errno := syscall.AllThreadsSyscall(trap, a1, a2, 0)
	return ofThreads(errno)
}

func ofThreads(errno syscall.Errno) error {
	switch errno {
	case 0:
		return nil
	case unix.ENOTSUP:
		return ErrCgo
	}
	return errno
}
