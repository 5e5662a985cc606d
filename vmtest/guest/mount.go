package guest

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// mountAll mounts what every Linux system has. What a kernel is built without is
// missing here as it is there.
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
	// Not a mount: what is packed may lie below it.
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
	if err != nil && !errors.Is(err, unix.EBUSY) { // the kernel may have mounted devtmpfs
		return fmt.Errorf("mount %s at %s: %w", fsType, dir, err)
	}
	return nil
}

// mountCgroup lays out the control groups: "v2" one hierarchy with every
// controller on; "v1" as systemd's hybrid layout, the memory controller and
// some others in hierarchies of their own. A controller that the kernel does not
// give to v1 leaves its folder empty.
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
