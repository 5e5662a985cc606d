package selfcheck

import (
	"errors"
	"fmt"
	"runtime"
	"slices"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/kernosis/kernosis/collector/hostfs"
)

// Uses is what an agent does, by its settings, that needs capabilities which other agents can drop.
type Uses struct {
	// Diagnose: causes of problems are diagnosed.
	Diagnose bool
	// Scripts run as another user.
	Scripts bool
	// Programs: check programs and exec services, which may need any capability, are run.
	Programs bool
	// Journal: the host's journalctl is run in another root directory.
	Journal bool
}

// Unneeded returns the capabilities that an agent does not need (docs/capabilities.md). It omits
// those that a later kernel added.
func Unneeded(u Uses) []string {
	all := []string{ // that nothing needs
		"CAP_CHOWN", "CAP_FSETID", "CAP_SETPCAP", "CAP_LINUX_IMMUTABLE", "CAP_NET_BROADCAST", "CAP_IPC_LOCK", "CAP_IPC_OWNER",
		"CAP_SYS_MODULE", "CAP_SYS_RAWIO", "CAP_SYS_PACCT", "CAP_SYS_BOOT", "CAP_SYS_NICE", "CAP_SYS_TIME", "CAP_SYS_TTY_CONFIG",
		"CAP_MKNOD", "CAP_LEASE", "CAP_AUDIT_WRITE", "CAP_AUDIT_CONTROL", "CAP_SETFCAP", "CAP_MAC_OVERRIDE", "CAP_MAC_ADMIN",
		"CAP_WAKE_ALARM", "CAP_BLOCK_SUSPEND", "CAP_AUDIT_READ", "CAP_CHECKPOINT_RESTORE",
	}
	for _, c := range []struct {
		name   string
		needed bool
	}{
		{"CAP_NET_RAW", u.Diagnose}, // packet captures
		{"CAP_SETUID", u.Scripts},
		{"CAP_SETGID", u.Scripts},
		{"CAP_KILL", u.Scripts || u.Programs}, // what they start may belong to another user
		{"CAP_SYS_CHROOT", u.Journal},
	} {
		if !c.needed {
			all = append(all, c.name)
		}
	}
	return all
}

// NoNewPrivileges reports whether programs that this process starts can't get back capabilities that
// it has dropped.
func NoNewPrivileges() bool {
	set, err := unix.PrctlRetInt(unix.PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0)
	return err == nil && set == 1
}

// ErrCgo: in a program with cgo, the capabilities of some threads can't be changed.
var ErrCgo = errors.New("this program is built with cgo") //nolint:gochecknoglobals // a constant

// Drop drops capabilities of all threads of this process, permanently. If programs is set, it also
// drops them from the bounding set, if it may: otherwise programs that this process starts as root
// get them back, unless [NoNewPrivileges]. It returns the capabilities that the process had.
//
// Call it early, before threads differ in their capabilities.
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
			return nil, fmt.Errorf("%s is not a capability", name)
		}
		numbers = append(numbers, n)
		if data[n/32].Permitted&(1<<(n%32)) != 0 {
			dropped = append(dropped, name)
		}
	}
	if programs {
		// Do this first, while the process still has CAP_SETPCAP. It may never have had it.
		for _, n := range numbers {
			err := allThreads(unix.SYS_PRCTL, unix.PR_CAPBSET_DROP, uintptr(n))
			if err != nil && !errors.Is(err, unix.EINVAL) && !errors.Is(err, unix.EPERM) { // EINVAL: unknown to this kernel
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

// capset sets the capabilities of each thread, to which a header without a pid applies.
func capset(header *unix.CapUserHeader, data *[2]unix.CapUserData) error {
	header.Pid = 0
	_, _, errno := syscall.AllThreadsSyscall(unix.SYS_CAPSET, uintptr(unsafe.Pointer(header)), uintptr(unsafe.Pointer(data)), 0)
	runtime.KeepAlive(header)
	runtime.KeepAlive(data)
	return ofThreads(errno)
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
