package degradedtest_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"syscall"

	"golang.org/x/sys/unix"
)

// asLacking is the environment variable with what this process has to lack.
const asLacking = "KERNOSIS_TEST_LACKING"

// become replaces this process by a program that lacks what the text says. Mounts are made in a
// separate mount namespace.
func become(text string, argv []string) error {
	runtime.LockOSThread()
	var l lacking
	if err := json.Unmarshal([]byte(text), &l); err != nil {
		return err
	}
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("mounts of its own: %w", err)
	}
	if l.OwnPIDs {
		if err := unix.Mount("proc", "/proc", "proc", 0, ""); err != nil {
			return fmt.Errorf("mount /proc: %w", err)
		}
	}
	for _, dir := range l.ReadOnly {
		if err := unix.Mount("none", dir, "tmpfs", unix.MS_RDONLY, ""); err != nil {
			return fmt.Errorf("mount %s: %w", dir, err)
		}
	}
	if l.NoKmsg {
		if err := devicesWithoutKmsg(); err != nil {
			return err
		}
	}
	for _, name := range l.Caps {
		// A program run by root gets what is left in the bounding set.
		if err := unix.Prctl(unix.PR_CAPBSET_DROP, capability(name), 0, 0, 0); err != nil {
			return fmt.Errorf("drop %s: %w", name, err)
		}
	}
	if l.NoNewPrivs {
		if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
			return fmt.Errorf("no_new_privs: %w", err)
		}
	}
	var env []string
	for _, v := range os.Environ() {
		if len(v) < len(asLacking) || v[:len(asLacking)] != asLacking {
			env = append(env, v)
		}
	}
	return syscall.Exec(argv[0], argv, env) //nolint:gosec // the test's own program
}

// devicesWithoutKmsg replaces /dev by one with the usual devices of containers.
func devicesWithoutKmsg() error {
	dir, err := os.MkdirTemp("", "kernosis-dev-")
	if err != nil {
		return err
	}
	defer os.Remove(dir)
	if err := unix.Mount("none", dir, "tmpfs", 0, ""); err != nil {
		return fmt.Errorf("mount: %w", err)
	}
	errs := []error{os.Mkdir(filepath.Join(dir, "shm"), 0o1777)}
	for _, name := range []string{"null", "zero", "full", "random", "urandom"} {
		at := filepath.Join(dir, name)
		errs = append(errs, os.WriteFile(at, nil, 0o600), unix.Mount("/dev/"+name, at, "", unix.MS_BIND, ""))
	}
	return errors.Join(append(errs, unix.Mount(dir, "/dev", "", unix.MS_MOVE, ""))...)
}

// capability returns the number of a capability that tests drop.
func capability(name string) uintptr {
	numbers := map[string]uintptr{
		"CAP_CHOWN": unix.CAP_CHOWN, "CAP_DAC_OVERRIDE": unix.CAP_DAC_OVERRIDE, "CAP_DAC_READ_SEARCH": unix.CAP_DAC_READ_SEARCH,
		"CAP_FOWNER": unix.CAP_FOWNER, "CAP_FSETID": unix.CAP_FSETID, "CAP_KILL": unix.CAP_KILL, "CAP_SETGID": unix.CAP_SETGID,
		"CAP_SETUID": unix.CAP_SETUID, "CAP_SETPCAP": unix.CAP_SETPCAP, "CAP_LINUX_IMMUTABLE": unix.CAP_LINUX_IMMUTABLE,
		"CAP_NET_BIND_SERVICE": unix.CAP_NET_BIND_SERVICE, "CAP_NET_BROADCAST": unix.CAP_NET_BROADCAST, "CAP_NET_ADMIN": unix.CAP_NET_ADMIN,
		"CAP_NET_RAW": unix.CAP_NET_RAW, "CAP_IPC_LOCK": unix.CAP_IPC_LOCK, "CAP_IPC_OWNER": unix.CAP_IPC_OWNER, "CAP_SYS_MODULE": unix.CAP_SYS_MODULE,
		"CAP_SYS_RAWIO": unix.CAP_SYS_RAWIO, "CAP_SYS_CHROOT": unix.CAP_SYS_CHROOT, "CAP_SYS_PTRACE": unix.CAP_SYS_PTRACE, "CAP_SYS_PACCT": unix.CAP_SYS_PACCT,
		"CAP_SYS_ADMIN": unix.CAP_SYS_ADMIN, "CAP_SYS_BOOT": unix.CAP_SYS_BOOT, "CAP_SYS_NICE": unix.CAP_SYS_NICE, "CAP_SYS_RESOURCE": unix.CAP_SYS_RESOURCE,
		"CAP_SYS_TIME": unix.CAP_SYS_TIME, "CAP_SYS_TTY_CONFIG": unix.CAP_SYS_TTY_CONFIG, "CAP_MKNOD": unix.CAP_MKNOD, "CAP_LEASE": unix.CAP_LEASE,
		"CAP_AUDIT_WRITE": unix.CAP_AUDIT_WRITE, "CAP_AUDIT_CONTROL": unix.CAP_AUDIT_CONTROL, "CAP_SETFCAP": unix.CAP_SETFCAP,
		"CAP_MAC_OVERRIDE": unix.CAP_MAC_OVERRIDE, "CAP_MAC_ADMIN": unix.CAP_MAC_ADMIN, "CAP_SYSLOG": unix.CAP_SYSLOG, "CAP_WAKE_ALARM": unix.CAP_WAKE_ALARM,
		"CAP_BLOCK_SUSPEND": unix.CAP_BLOCK_SUSPEND, "CAP_AUDIT_READ": unix.CAP_AUDIT_READ, "CAP_PERFMON": unix.CAP_PERFMON, "CAP_BPF": unix.CAP_BPF,
		"CAP_CHECKPOINT_RESTORE": unix.CAP_CHECKPOINT_RESTORE,
	}
	n, ok := numbers[name]
	if !ok {
		panic("no capability " + name)
	}
	return n
}
