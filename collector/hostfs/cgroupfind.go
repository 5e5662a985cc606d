package hostfs

import (
	"encoding/binary"
	"fmt"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// CgroupFinder finds the path of a cgroup by its id, while the cgroup exists,
// on the default (v2) hierarchy.
type CgroupFinder struct{ mount *os.File }

// OpenCgroupFinder opens the v2 hierarchy; the caller must Close it. Finding
// needs CAP_DAC_READ_SEARCH.
func (f FS) OpenCgroupFinder() (*CgroupFinder, error) {
	layout, err := f.CgroupLayout()
	if err != nil {
		return nil, err
	}
	if layout.Unified == "" {
		return nil, fmt.Errorf("open cgroup finder: no cgroup2 mount: %w", os.ErrNotExist)
	}
	mount, err := os.Open(f.Path(layout.Unified))
	if err != nil {
		return nil, err
	}
	return &CgroupFinder{mount: mount}, nil
}

// fileIDKernfs is FILEID_KERNFS: the type of handles that contain a 64-bit kernfs id (Linux 5.5,
// commit 33c5ac917554).
const fileIDKernfs = 0xfe

// Find returns the path from the hierarchy's root, or ESTALE for a removed cgroup.
func (c *CgroupFinder) Find(id uint64) (string, error) {
	handle := unix.NewFileHandle(fileIDKernfs, binary.NativeEndian.AppendUint64(nil, id))
	fd, err := unix.OpenByHandleAt(int(c.mount.Fd()), handle, unix.O_PATH|unix.O_CLOEXEC)
	if err != nil {
		return "", os.NewSyscallError("open_by_handle_at", err)
	}
	defer func() { _ = unix.Close(fd) }() // O_PATH: closing loses no data
	// The descriptor is ours, so read our /proc, not the node's.
	path, err := os.Readlink("/proc/self/fd/" + strconv.Itoa(fd))
	if err != nil {
		return "", err
	}
	rel, ok := strings.CutPrefix(path, c.mount.Name())
	if !ok || strings.HasSuffix(rel, " (deleted)") {
		return "", unix.ESTALE
	}
	return "/" + strings.TrimPrefix(rel, "/"), nil
}

// Close closes the mount. It is idempotent.
func (c *CgroupFinder) Close() error {
	if c == nil || c.mount == nil {
		return nil
	}
	err := c.mount.Close()
	c.mount = nil
	return err
}
