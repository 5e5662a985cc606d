package disk

import (
	"errors"
	"fmt"
	"io/fs"
	"regexp"
	"slices"
	"strings"

	"github.com/kernosis/kernosis/collector/display"
	"github.com/kernosis/kernosis/collector/hostfs"
	"github.com/kernosis/kernosis/diagnose/operation"
)

// host is the node. Looks that may hang in the kernel are made with patience.
type host struct {
	operation.Host
	patient operation.Patience
}

// diskParameters returns the parameters that name a disk.
func diskParameters(doc string) []operation.Parameter {
	return []operation.Parameter{
		{Name: "device", Doc: "kernel name of a disk, partition, volume or NVMe controller; none, and none of the following: " + doc, Kind: operation.String},
		{Name: "deviceNumber", Doc: "its MAJ:MIN", Kind: operation.String},
		{Name: "mountPoint", Doc: "path on a filesystem on it", Kind: operation.String},
	}
}

// diskOf returns the device that the parameters name, which may be gone; empty if they name none.
func (h host) diskOf(v operation.Values) (string, error) {
	switch {
	case v["device"] != "":
		return v["device"], nil
	case v["deviceNumber"] != "":
		major, minor, err := hostfs.ParseDeviceNumber(v["deviceNumber"])
		if err != nil {
			return "", fmt.Errorf("parameter deviceNumber: %w", err)
		}
		return h.FS.Device(major, minor).Name, nil
	case v["mountPoint"] != "":
		list, err := h.filesystems(v, true)
		if err != nil {
			return "", err
		}
		if _, _, err := h.FS.DeviceNumber(list[0].device); err != nil {
			return "", fmt.Errorf("%s is not on a block device", list[0])
		}
		return list[0].device, nil
	}
	return "", nil
}

// hardware returns the lowest devices that a device consists of: those with nothing below. There is
// at least one.
func (h host) hardware(device string) ([]string, error) {
	below, err := h.FS.Below(device)
	if err != nil {
		return nil, fmt.Errorf("find device %q: %w", device, err)
	}
	disks := slices.DeleteFunc(below, func(name string) bool {
		lower, err := h.FS.Below(name)
		return err != nil || len(lower) > 1
	})
	if len(disks) == 0 { // a device with nothing below is its own hardware
		return nil, fmt.Errorf("find device %q: it was removed meanwhile: %w", device, fs.ErrNotExist)
	}
	return disks, nil
}

// namedHardware returns the device that the parameters must name, and its hardware.
func (h host) namedHardware(v operation.Values) (device string, disks []string, err error) {
	device, err = h.diskOf(v)
	switch {
	case err != nil:
		return "", nil, err
	case device == "":
		return "", nil, errors.New("parameter device, deviceNumber or mountPoint is required")
	}
	disks, err = h.hardware(device)
	return device, disks, err
}

// allHardware returns all disks except volumes on others, loop and RAM disks, and disks without a
// size.
func (h host) allHardware() ([]string, error) {
	disks, err := h.FS.Disks()
	if err != nil {
		return nil, fmt.Errorf("list disks: %w", err)
	}
	return slices.DeleteFunc(disks, func(name string) bool {
		lower, err := h.FS.Below(name)
		return err != nil || len(lower) > 1 || strings.HasPrefix(name, "loop") || strings.HasPrefix(name, "zram") ||
			strings.HasPrefix(name, "dm-") || h.FS.DiskValue(name, "size") == "0"
	}), nil
}

// diskUsers are the mounts on a device and on devices stacked above.
type diskUsers struct {
	mounts  []string // paths, safe to print
	pods    []string // UIDs
	volumes []string // kubelet's names: the name of a PersistentVolume
}

// UsersOf finds the mounts of the devices and of volumes on them, with the pods that use them.
// Those of the first device come first.
func UsersOf(h operation.Host, table *hostfs.MountTable, devices ...string) (u diskUsers) {
	// Kubelet's mount paths of volumes, with the pod's UID and the volume:
	// <root>/pods/<uid>/volumes/<plugin>/<volume>[/mount], and volume-subpaths/<volume>/….
	volumes := regexp.MustCompile(
		`/pods/([0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}|[0-9a-f]{32})/(?:volumes/[^/]+|volume-subpaths)/([^/]+)(?:/|$)`)
	for _, device := range devices {
		above, _ := h.FS.Above(device) // nothing is mounted on a device that is gone
		on := host{Host: h}.mountedOn(above)
		var paths []string
		for _, m := range table.Mounts() {
			if on(&m) {
				paths = append(paths, display.Safe(m.Path, operation.MaxShown))
			}
		}
		slices.SortStableFunc(paths, func(a, b string) int { return len(a) - len(b) })
		for _, path := range paths {
			u.mounts = operation.AddOnce(u.mounts, path)
			if m := volumes.FindStringSubmatch(path); m != nil {
				u.pods = operation.AddOnce(u.pods, m[1])
				u.volumes = operation.AddOnce(u.volumes, display.Safe(m[2], 253))
			}
		}
	}
	return u
}

// UserResults returns the results that ReportUsers sets.
func UserResults() []operation.Result {
	return []operation.Result{
		{Name: "mountPoint", Doc: "mount point of the device or filesystem, the shortest path"},
		{Name: "mountPoints", Doc: "all mount points, as far as they fit"},
		{Name: "affectedPodUIDs", Doc: "pods with a volume on it, according to kubelet's mount paths, as far as they fit"},
		{Name: "affectedPods", Doc: "number of these pods"},
		{Name: "volumes", Doc: "their volumes; for CSI, the PersistentVolume's name"},
	}
}

func ReportUsers(f *operation.Finding, u *diskUsers) {
	if len(u.mounts) > 0 {
		f.Text("mountPoint", u.mounts[0])
		f.Text("mountPoints", strings.Join(u.mounts, " "))
	}
	f.Int("affectedPods", int64(len(u.pods)))
	f.Text("affectedPodUIDs", strings.Join(u.pods, " "))
	f.Text("volumes", strings.Join(u.volumes, " "))
}

// String returns "; at /data and 2 more; 3 pods", for messages; empty if nobody uses it.
func (u *diskUsers) String() string {
	s := ""
	if len(u.mounts) > 0 {
		s = "; at " + u.mounts[0]
		if n := len(u.mounts) - 1; n > 0 {
			s += " and " + display.Count(n, "more mount")
		}
	}
	switch {
	case len(u.pods) == 1:
		s += "; pod " + u.pods[0]
	case len(u.pods) > 1:
		s += "; " + display.Count(len(u.pods), "pod")
	}
	if len(u.volumes) == 1 {
		s += "; volume " + u.volumes[0]
	}
	return s
}
