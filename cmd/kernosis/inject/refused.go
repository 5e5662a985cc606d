package inject

import (
	"errors"
	"fmt"
	"os"
	"os/exec"

	"golang.org/x/sys/unix"
)

// Refused is the error if this machine can't do a fault. Nothing was done.
type Refused struct {
	Fault  string // "" if a part doesn't know it
	Reason string
}

func (r *Refused) Error() string {
	if r.Fault == "" {
		return "refused: " + r.Reason
	}
	return "refused " + r.Fault + ": " + r.Reason
}

// requireRoot is part of every check: all faults make cgroups, mounts or
// namespaces.
func requireRoot() error {
	if os.Geteuid() != 0 {
		return &Refused{Reason: "needs root"}
	}
	return nil
}

func requireMemoryCgroup() error {
	_, err := memoryHierarchy()
	return err
}

func requireUserfaultfd() error {
	fd, err := openUserfaultfd()
	switch {
	case err == nil:
		return unix.Close(fd)
	case errors.Is(err, unix.ENOSYS):
		return &Refused{Reason: "this kernel has no userfaultfd"}
	case errors.Is(err, unix.EPERM):
		return &Refused{Reason: "userfaultfd is not permitted (needs CAP_SYS_PTRACE, and no seccomp filter against it)"}
	}
	return err
}

func requireExt4Image() error {
	if _, err := exec.LookPath("mkfs.ext4"); err != nil {
		return &Refused{Reason: "mkfs.ext4 is missing (package e2fsprogs)"}
	}
	f, err := os.OpenFile("/dev/loop-control", os.O_RDWR, 0)
	if err != nil {
		return &Refused{Reason: fmt.Sprintf("no loop devices here: %v", err)}
	}
	return f.Close()
}

func requireNetns() error {
	if _, err := os.Stat("/proc/self/ns/net"); err != nil {
		return &Refused{Reason: "this kernel has no network namespaces"}
	}
	return nil
}
