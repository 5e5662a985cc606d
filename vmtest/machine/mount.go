package machine

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// mountAll mounts the usual filesystems of a Linux system, except those that the kernel does not
// support.
func mountAll() error {
	for _, m := range []struct{ fsType, dir, options string }{
		{"proc", "/proc", ""},
		{"sysfs", "/sys", ""},
		{"devtmpfs", "/dev", ""},
		{"devpts", "/dev/pts", ""},
		{"tmpfs", "/dev/shm", ""},
		{"tmpfs", "/run", "mode=755"},
		{"tracefs", "/sys/kernel/tracing", ""},
		{"debugfs", "/sys/kernel/debug", ""},
		{"bpf", "/sys/fs/bpf", ""},
	} {
		if err := mount(m.fsType, m.dir, m.options); err != nil {
			return err
		}
	}
	// Not a mount, which would hide files packed below it.
	if err := os.MkdirAll("/tmp", 0o755); err != nil {
		return err
	}
	return os.Chmod("/tmp", 0o777|os.ModeSticky)
}

func mount(fsType, dir, options string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return fmt.Errorf("mount %s: %w", fsType, err)
	}
	err := unix.Mount(fsType, dir, fsType, 0, options)
	if err != nil && !errors.Is(err, unix.EBUSY) { // EBUSY: the kernel may have mounted devtmpfs itself
		return fmt.Errorf("mount %s at %s: %w", fsType, dir, err)
	}
	return nil
}

// mountCgroup mounts the cgroup hierarchies: for "v2" one hierarchy with all controllers enabled;
// for "v1" systemd's hybrid layout, with the memory controller and some others in separate
// hierarchies. The folder of a controller that the kernel does not offer for v1 stays empty.
func mountCgroup(version string) error {
	const root = "/sys/fs/cgroup"
	switch version {
	case CgroupV1:
		if err := mount("tmpfs", root, "mode=755"); err != nil {
			return err
		}
		for _, c := range []string{"memory", "cpu,cpuacct", "pids", "freezer", "blkio"} {
			dir := filepath.Join(root, c)
			if err := os.MkdirAll(dir, 0o755); err != nil {
				return err
			}
			if err := unix.Mount("cgroup", dir, "cgroup", 0, c); err != nil {
				fmt.Fprintf(os.Stderr, "vmrun: no cgroup v1 with %s: %v\n", c, err)
			}
		}
		return mount("cgroup2", filepath.Join(root, "unified"), "")
	case CgroupV2:
		if err := mount("cgroup2", root, ""); err != nil {
			return err
		}
		all, err := os.ReadFile(filepath.Join(root, "cgroup.controllers"))
		if err != nil {
			return err
		}
		for c := range strings.FieldsSeq(string(all)) {
			if err := os.WriteFile(filepath.Join(root, "cgroup.subtree_control"), []byte("+"+c), 0); err != nil {
				fmt.Fprintf(os.Stderr, "vmrun: cgroup controller %s: %v\n", c, err)
			}
		}
		return nil
	default:
		return fmt.Errorf("cgroup %q, want %s or %s", version, CgroupV1, CgroupV2)
	}
}

func loopbackUp() error {
	lo, err := netlink.LinkByName("lo")
	if err == nil {
		err = netlink.LinkSetUp(lo)
	}
	if err != nil {
		return fmt.Errorf("loopback: %w", err)
	}
	return nil
}
