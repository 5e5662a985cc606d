package node

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// sysctls returns the machine-wide settings that kubelet sets, with the values it requires.
func sysctls() map[string]string {
	return map[string]string{
		"vm/overcommit_memory": "1", "vm/panic_on_oom": "0", "kernel/panic": "10", "kernel/panic_on_oops": "1",
		"kernel/keys/root_maxkeys": "1000000", "kernel/keys/root_maxbytes": "25000000",
	}
}

// mount sets up the node's own view of the filesystem, on the node's thread. The mounts vanish with
// the mount namespace.
func (n *Node) mount() error {
	// The programs use these fixed folders. Their writes go to the state folder, while the
	// machine's own files stay readable.
	for _, dir := range []string{"/run", "/var/lib", "/var/log"} {
		if err := n.cover(dir); err != nil {
			return err
		}
	}
	// kubelet determines the filesystem of these folders, which must be on a device.
	for _, dir := range []string{"/var/lib/kubelet", "/var/log/pods"} {
		from := n.path("fs", dir)
		if err := errors.Join(os.MkdirAll(dir, 0o755), os.MkdirAll(from, 0o755)); err != nil {
			return err
		}
		if err := unix.Mount(from, dir, "", unix.MS_BIND, ""); err != nil {
			return fmt.Errorf("mount %s: %w", dir, err)
		}
	}
	if err := n.shieldSysctls(); err != nil {
		return err
	}
	// Every node has these mounted; this machine may not.
	for _, m := range []struct{ dir, kind, probe string }{
		{"/sys/kernel/tracing", "tracefs", "events"},
		{"/sys/kernel/debug", "debugfs", "tracing"},
	} {
		if _, err := os.Stat(filepath.Join(m.dir, m.probe)); err != nil {
			_ = unix.Mount(m.kind, m.dir, m.kind, 0, "") // an error means that the kernel lacks it
		}
	}
	// What agents pin vanishes with the node. If mounting is forbidden, they use the machine's.
	if err := unix.Mount("bpf", "/sys/fs/bpf", "bpf", 0, "mode=700"); err != nil && !errors.Is(err, unix.EPERM) && !errors.Is(err, unix.ENOENT) {
		return fmt.Errorf("mount a BPF filesystem: %w", err)
	}
	// Volumes and containers may want to share their mounts.
	return unix.Mount("", "/", "", unix.MS_REC|unix.MS_SHARED, "")
}

// cover redirects writes to a folder to the state folder.
func (n *Node) cover(dir string) error {
	upper, work := n.path("over", dir, "upper"), n.path("over", dir, "work")
	if err := errors.Join(os.MkdirAll(upper, 0o755), os.MkdirAll(work, 0o755)); err != nil {
		return err
	}
	options := fmt.Sprintf("lowerdir=%s,upperdir=%s,workdir=%s", dir, upper, work)
	if err := unix.Mount("overlay", dir, "overlay", 0, options); err != nil {
		return fmt.Errorf("cover %s by %s (TMPDIR has to be on a disk or a tmpfs): %w", dir, n.dir, err)
	}
	return nil
}

// shieldSysctls mounts files with the values that kubelet requires over the machine's.
func (n *Node) shieldSysctls() error {
	for name, value := range sysctls() {
		at := filepath.Join("/proc/sys", name)
		if _, err := os.Stat(at); errors.Is(err, os.ErrNotExist) {
			continue
		}
		from := n.path("sysctl", name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(from), 0o755), os.WriteFile(from, []byte(value+"\n"), 0o644)); err != nil {
			return err
		}
		if err := unix.Mount(from, at, "", unix.MS_BIND, ""); err != nil {
			return fmt.Errorf("shield %s: %w", at, err)
		}
	}
	return nil
}
