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

// filesystem is a mounted filesystem and what is known of its state.
type filesystem struct {
	hostfs.Mount
	device   string // kernel name; empty: no block device
	refusing string // why it refuses writes: see refusesWrites; empty: it does not
	ext4     *hostfs.Ext4Errors
	btrfs    *hostfs.BtrfsErrors
}

// filesystemParameters are how a filesystem is named.
func filesystemParameters(doc string) []operation.Parameter {
	return []operation.Parameter{
		{Name: "device", Doc: "kernel name of a block device: the filesystems on it, and on its partitions and volumes", Kind: operation.String},
		{Name: "deviceNumber", Doc: "its MAJ:MIN", Kind: operation.String},
		{Name: "mountPoint", Doc: "without a device: mount point, or a path on the filesystem; none: " + doc, Kind: operation.String},
	}
}

// filesystems returns the mounted filesystems that the parameters name; without a name all
// that hold data.
func filesystems(h operation.Host, v operation.Values, all bool) ([]*filesystem, error) {
	table, err := h.FS.MountTable()
	if err != nil {
		return nil, fmt.Errorf("read the mount table: %w", err)
	}
	wanted, err := wantedMounts(h, v, table, all)
	if err != nil {
		return nil, err
	}
	list := selectFilesystems(h, table, wanted)
	if len(list) == 0 {
		return nil, fmt.Errorf("%w on %s", errNotMounted, namedFilesystem(v))
	}
	return list, nil
}

// errNotMounted is returned where the parameters name something that has no filesystem.
var errNotMounted = errors.New("no filesystem is mounted")

// selectFilesystems returns the filesystems of the wanted mounts, each once, by its first
// mount that is a whole one, and not hidden by another at the same place.
func selectFilesystems(h operation.Host, table *hostfs.MountTable, wanted func(*hostfs.Mount) bool) []*filesystem {
	var list []*filesystem
	known := map[[2]uint32]*filesystem{}
	last := map[string]int{} // by path: the mount that is seen there
	for i, m := range table.Mounts() {
		last[m.Path] = i
	}
	for _, whole := range []bool{true, false} {
		for i, m := range table.Mounts() {
			key := [2]uint32{m.DeviceMajor, m.DeviceMinor}
			if (m.Root == "/") == whole && last[m.Path] == i && known[key] == nil && wanted(&m) {
				known[key] = readFilesystem(h, m)
				list = append(list, known[key])
			}
		}
	}
	return list
}

// namedFilesystem says how the parameters name a filesystem.
func namedFilesystem(v operation.Values) string {
	for _, name := range []string{"device", "deviceNumber", "mountPoint"} {
		if v[name] != "" {
			return name + " " + v[name]
		}
	}
	return "a disk or from a server"
}

// wantedMounts returns a function that selects the mounts of the filesystems that the
// parameters name. The mount point is the last resort: an event of a disk gives one of many,
// and what was unmounted since would be on the root.
func wantedMounts(h operation.Host, v operation.Values, table *hostfs.MountTable, all bool) (func(*hostfs.Mount) bool, error) {
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
			// What is on a device that is gone is still mounted; a subvolume's number is no device's.
			numbered = func(m *hostfs.Mount) bool { return m.Major == major && m.Minor == minor }
		}
		above, err := h.FS.Above(device)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, fmt.Errorf("look for device %q: %w", device, err)
		}
		on := mountedOn(h, above)
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

// mountedOn returns a function that selects the mounts of the filesystems on these devices.
func mountedOn(h operation.Host, devices []string) func(*hostfs.Mount) bool {
	all := slices.Clone(devices)
	for _, name := range devices {
		members, _ := h.FS.BtrfsDevices(name) // a btrfs is mounted from one of them
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

// MountOfPath is the mount that a path is on; of several at one place the last, which
// hides the others.
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

// holdsData distinguishes filesystems on disks and servers from those the kernel makes up.
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

// readFilesystem reads the state of one without asking it anything.
func readFilesystem(h operation.Host, m hostfs.Mount) *filesystem {
	f := &filesystem{Mount: m}
	if m.DeviceMajor != 0 {
		f.device = h.FS.Device(m.DeviceMajor, m.DeviceMinor).Name
	}
	switch m.FSType {
	case "ext2", "ext3", "ext4":
		if e, err := h.FS.Ext4Errors(f.device); err == nil {
			f.ext4 = &e
		}
	case "btrfs":
		if e, err := h.FS.BtrfsErrors(f.device); err == nil {
			f.btrfs = &e
		}
	}
	f.refusing = refusesWrites(h, f)
	return f
}

// readOnly reports whether a filesystem is read-only, for whatever reason.
func (f *filesystem) readOnly() bool { return f.SuperReadOnly || f.refusing != "" }

// refusesWrites says why a filesystem that is to be written takes none; empty: it
// takes them, or it is mounted read-only for no reason that shows.
func refusesWrites(h operation.Host, f *filesystem) string {
	stopped, _ := h.FS.Ext4Stopped(&f.Mount, f.device) // not readable: then it is not known to
	switch {
	case f.EmergencyRO:
		return "emergency-ro"
	case f.Shutdown:
		return "shutdown"
	case stopped:
		return "it met an error since it was mounted, and errors end writing"
	case !f.SuperReadOnly:
		return ""
	case f.errors() > 0:
		return "read-only after errors"
	case f.device != "" && h.FS.DiskValue(f.device, "ro") == "1" && f.FSType != "squashfs" && f.FSType != "iso9660" && f.FSType != "erofs":
		return "its device is read-only"
	}
	return ""
}

// seeShutdown finds out whether an XFS has shut down after an error, which mountinfo does
// not show. A filesystem of another kind is not asked.
func seeShutdown(h operation.Host, ctx context.Context, patient operation.Patience, f *filesystem) error {
	if f.FSType != "xfs" {
		return nil
	}
	down, err := operation.Look(ctx, patient, operation.LookLimit, func() (bool, error) {
		return h.FS.XFSShutDown(f.Major, f.Minor, f.Path)
	})
	if err != nil {
		return fmt.Errorf("ask %s whether it has shut down: %w", f, err)
	}
	if down {
		f.Shutdown, f.refusing = true, "shutdown"
	}
	return nil
}

// errors is how many errors the filesystem remembers.
func (f *filesystem) errors() uint64 {
	switch {
	case f.ext4 != nil:
		return f.ext4.Count
	case f.btrfs != nil:
		return f.btrfs.Sum()
	}
	return 0
}

// errorText is "3 errors, the last at 2026-… in ext4_lookup:1855 (EFSCORRUPTED)".
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

// String is "ext4 on sda1 at /data".
func (f *filesystem) String() string {
	on := f.device
	if on == "" {
		on = display.Safe(f.Source, operation.MaxShown)
	}
	return fmt.Sprintf("%s on %s at %s", display.Safe(f.FSType, 64), on, f.shownPath())
}

func (f *filesystem) shownPath() string { return display.Safe(f.Path, operation.MaxShown) }

// fsUsage is the result of statfs(2).
type fsUsage struct {
	size, free, available uint64 // bytes; available: to others than root
	inodes, inodesFree    uint64 // 0: it has no fixed number
}

// usedPercent is as df has it: of what others than root may use.
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

// usage asks a filesystem how full it is. A dead server's is left behind.
func usage(h operation.Host, ctx context.Context, patient operation.Patience, limit time.Duration, f *filesystem) (fsUsage, error) {
	return operation.Look(ctx, patient, limit, func() (fsUsage, error) {
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
