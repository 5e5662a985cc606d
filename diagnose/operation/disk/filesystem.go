package disk

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/kernosis/kernosis/collector/display"
	"github.com/kernosis/kernosis/collector/hostfs"
	"github.com/kernosis/kernosis/diagnose/operation"
)

// filesystem is a mounted filesystem and its state.
type filesystem struct {
	hostfs.Mount
	device   string // kernel name; empty: not on a block device
	refusing string // why it refuses writes, from refusesWrites; empty: it does not
	ext4     *hostfs.Ext4Errors
	btrfs    *hostfs.BtrfsErrors
}

// filesystemParameters returns the parameters that select filesystems.
func filesystemParameters(doc string) []operation.Parameter {
	return []operation.Parameter{
		{Name: "device", Doc: "kernel name of a block device: the filesystems on it, and on its partitions and volumes", Kind: operation.String},
		{Name: "deviceNumber", Doc: "its MAJ:MIN", Kind: operation.String},
		{Name: "mountPoint", Doc: "without a device: mount point, or a path on the filesystem; none: " + doc, Kind: operation.String},
	}
}

// filesystems returns the mounted filesystems that the parameters select; without any, all that
// hold data.
func (h host) filesystems(v operation.Values, all bool) ([]*filesystem, error) {
	table, err := h.FS.MountTable()
	if err != nil {
		return nil, fmt.Errorf("read the mount table: %w", err)
	}
	wanted, err := h.wantedMounts(v, table, all)
	if err != nil {
		return nil, err
	}
	list := h.selectFilesystems(table, wanted)
	if len(list) == 0 {
		return nil, fmt.Errorf("%w on %s", errNotMounted, namedFilesystem(v))
	}
	return list, nil
}

// errNotMounted is returned if nothing is mounted from what the parameters name.
var errNotMounted = errors.New("no filesystem is mounted")

// selectFilesystems returns the filesystems of the wanted mounts, each once. It prefers the first
// mount of the whole filesystem, and skips mounts that another one at the same path hides.
func (h host) selectFilesystems(table *hostfs.MountTable, wanted func(*hostfs.Mount) bool) []*filesystem {
	var list []*filesystem
	known := map[[2]uint32]*filesystem{}
	last := map[string]int{} // by path: the mount that is visible there
	for i, m := range table.Mounts() {
		last[m.Path] = i
	}
	for _, whole := range []bool{true, false} {
		for i, m := range table.Mounts() {
			key := [2]uint32{m.DeviceMajor, m.DeviceMinor}
			if (m.Root == "/") == whole && last[m.Path] == i && known[key] == nil && wanted(&m) {
				known[key] = h.readFilesystem(m)
				list = append(list, known[key])
			}
		}
	}
	return list
}

// namedFilesystem describes how the parameters name a filesystem.
func namedFilesystem(v operation.Values) string {
	for _, name := range []string{"device", "deviceNumber", "mountPoint"} {
		if v[name] != "" {
			return name + " " + v[name]
		}
	}
	return "a disk or from a server"
}

// wantedMounts returns a function that selects the mounts of the filesystems that the parameters
// name. It uses the mount point only if there is no device: an event about a disk has just one of
// many mount points, and if that one was unmounted since, its path is on the root filesystem.
func (h host) wantedMounts(v operation.Values, table *hostfs.MountTable, all bool) (func(*hostfs.Mount) bool, error) {
	switch {
	case v["device"] != "" || v["deviceNumber"] != "":
		device := v["device"]
		numbered := func(*hostfs.Mount) bool { return false }
		if v["deviceNumber"] != "" {
			major, minor, err := hostfs.ParseDeviceNumber(v["deviceNumber"])
			if err != nil {
				return nil, fmt.Errorf("parameter deviceNumber: %w", err)
			}
			device = cmp.Or(device, h.FS.Device(major, minor).Name)
			// A filesystem may still be mounted when its device is gone. A subvolume's number is
			// not that of a device.
			numbered = func(m *hostfs.Mount) bool { return m.Major == major && m.Minor == minor }
		}
		above, err := h.FS.Above(device)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, fmt.Errorf("find device %q: %w", device, err)
		}
		on := h.mountedOn(above)
		return func(m *hostfs.Mount) bool { return on(m) || numbered(m) }, nil
	case v["mountPoint"] != "":
		at := MountOfPath(table.Mounts(), v["mountPoint"])
		if at == nil {
			return nil, fmt.Errorf("nothing is mounted at %s", v["mountPoint"])
		}
		return func(m *hostfs.Mount) bool { return m.Major == at.Major && m.Minor == at.Minor }, nil
	}
	return func(m *hostfs.Mount) bool { return all || holdsData(m) }, nil
}

// mountedOn returns a function that selects the mounts of filesystems on these devices.
func (h host) mountedOn(devices []string) func(*hostfs.Mount) bool {
	all := slices.Clone(devices)
	for _, name := range devices {
		members, _ := h.FS.BtrfsDevices(name) // a btrfs is mounted from one of its members
		all = append(all, members...)
	}
	on := map[[2]uint32]bool{}
	for _, name := range all {
		if major, minor, err := h.FS.DeviceNumber(name); err == nil {
			on[[2]uint32{major, minor}] = true
		}
	}
	return func(m *hostfs.Mount) bool { return on[[2]uint32{m.DeviceMajor, m.DeviceMinor}] }
}

// MountOfPath returns the mount that contains a path. Of several at one path it returns the last,
// which hides the others.
func MountOfPath(mounts []hostfs.Mount, path string) (at *hostfs.Mount) {
	for i := range mounts {
		m := &mounts[i]
		on := path == m.Path || m.Path == "/" || strings.HasPrefix(path, m.Path+"/")
		if on && (at == nil || len(m.Path) >= len(at.Path)) {
			at = m
		}
	}
	return at
}

// holdsData reports whether a filesystem is on a disk or a server, not created by the kernel.
func holdsData(m *hostfs.Mount) bool {
	if m.Major != 0 {
		return true
	}
	switch m.FSType {
	case "btrfs", "bcachefs", "zfs", "nfs", "nfs4", "cifs", "smb3", "ceph", "9p", "afs", "lustre", "glusterfs", "virtiofs", "fuseblk":
		return true
	}
	return strings.HasPrefix(m.FSType, "fuse.") && m.FSType != "fuse.lxcfs"
}

// readFilesystem reads the state of a filesystem without accessing the filesystem or its device.
func (h host) readFilesystem(m hostfs.Mount) *filesystem {
	f := &filesystem{Mount: m}
	if m.DeviceMajor != 0 {
		f.device = h.FS.Device(m.DeviceMajor, m.DeviceMinor).Name
	}
	switch {
	case hostfs.IsExt4(m.FSType):
		if e, err := h.FS.Ext4Errors(f.device); err == nil {
			f.ext4 = &e
		}
	case m.FSType == "btrfs":
		if e, err := h.FS.BtrfsErrors(f.device); err == nil {
			f.btrfs = &e
		}
	}
	f.refusing = h.refusesWrites(f)
	return f
}

// readOnly reports whether a filesystem is read-only, for whatever reason.
func (f *filesystem) readOnly() bool { return f.SuperReadOnly || f.refusing != "" }

// refusesWrites returns why a filesystem that should be writable refuses writes; empty: it does
// not, it is mounted read-only without a visible reason, or only [seeStopped] finds out.
func (h host) refusesWrites(f *filesystem) string {
	switch {
	case f.EmergencyRO:
		return "emergency-ro"
	case f.Shutdown:
		return "shutdown"
	case !f.SuperReadOnly:
		return ""
	case f.errors() > 0:
		return "read-only after errors"
	case f.device != "" && h.FS.DiskValue(f.device, "ro") == "1" && f.FSType != "squashfs" && f.FSType != "iso9660" && f.FSType != "erofs":
		return "its device is read-only"
	}
	return ""
}

// seeStopped checks whether an XFS or ext4 has stopped writing after an error, which mountinfo does
// not show. It does nothing for other filesystems. The check of a disk that does not answer is
// abandoned.
func (h host) seeStopped(ctx context.Context, f *filesystem) error {
	var reason string
	var check func() (bool, error)
	switch {
	case f.FSType == "xfs":
		reason = "shutdown"
		check = func() (bool, error) { return h.FS.XFSShutDown(f.Major, f.Minor, f.Path) }
	case hostfs.IsExt4(f.FSType):
		reason = "it had an error since it was mounted, and errors stop writes"
		check = func() (bool, error) {
			stopped, _ := h.FS.Ext4Stopped(&f.Mount, f.device) // if unreadable, it counts as not stopped
			return stopped, nil
		}
	default:
		return nil
	}
	stopped, err := operation.Look(ctx, h.patient, operation.LookLimit, check)
	if err != nil {
		return fmt.Errorf("check whether %s has stopped writing: %w", f, err)
	}
	if stopped {
		f.refusing = reason
	}
	return nil
}

// errors returns the number of errors that the filesystem has recorded.
func (f *filesystem) errors() uint64 {
	switch {
	case f.ext4 != nil:
		return f.ext4.Count
	case f.btrfs != nil:
		return f.btrfs.Sum()
	}
	return 0
}

// errorText describes recorded errors: "3 errors, the last at 2026-… in ext4_lookup:1855
// (EFSCORRUPTED)".
func (f *filesystem) errorText() string {
	switch {
	case f.btrfs != nil && f.btrfs.Sum() > 0:
		return "errors: " + f.btrfs.String()
	case f.ext4 == nil || f.ext4.Count == 0:
		return ""
	}
	return display.Count(int(min(f.ext4.Count, 1<<31)), "error") + ", the last" + ext4ErrorText(&f.ext4.Last)
}

func ext4ErrorText(e *hostfs.Ext4Error) (s string) {
	if !e.Time.IsZero() {
		s = " at " + e.Time.Format(time.RFC3339)
	}
	if e.Function != "" {
		s += fmt.Sprintf(" in %s:%d", e.Function, e.Line)
	}
	if e.Code != "" {
		s += " (" + e.Code + ")"
	}
	return s
}

// String returns "ext4 on sda1 at /data".
func (f *filesystem) String() string {
	on := cmp.Or(f.device, display.Safe(f.Source, operation.MaxShown))
	return fmt.Sprintf("%s on %s at %s", display.Safe(f.FSType, 64), on, f.shownPath())
}

func (f *filesystem) shownPath() string { return display.Safe(f.Path, operation.MaxShown) }

// fsUsage is the result of statfs(2).
type fsUsage struct {
	size, free, available uint64 // bytes; available: to non-root users
	inodes, inodesFree    uint64 // 0: the number is not fixed
}

// usedPercent returns the usage like df: of the space that non-root users may use.
func (u *fsUsage) usedPercent() uint64 {
	used := u.size - min(u.size, u.free)
	if used+u.available == 0 {
		return 0
	}
	return (used*100 + used + u.available - 1) / (used + u.available)
}

func (u *fsUsage) inodesUsedPercent() uint64 {
	if u.inodes == 0 {
		return 0
	}
	return ((u.inodes-min(u.inodes, u.inodesFree))*100 + u.inodes - 1) / u.inodes
}

// usage returns how full a filesystem is. A call that a dead server blocks is abandoned.
func (h host) usage(ctx context.Context, limit time.Duration, f *filesystem) (fsUsage, error) {
	return operation.Look(ctx, h.patient, limit, func() (fsUsage, error) {
		var st unix.Statfs_t
		err := unix.Statfs(h.FS.Path(f.Path), &st)
		for errors.Is(err, unix.EINTR) {
			err = unix.Statfs(h.FS.Path(f.Path), &st)
		}
		if err != nil {
			return fsUsage{}, &fs.PathError{Op: "statfs", Path: f.Path, Err: err}
		}
		unit := uint64(st.Frsize)
		return fsUsage{
			size: st.Blocks * unit, free: st.Bfree * unit, available: st.Bavail * unit,
			inodes: st.Files, inodesFree: st.Ffree,
		}, nil
	})
}
