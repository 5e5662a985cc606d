package hostfs

import (
	"slices"
	"strings"

	"github.com/kernosis/kernosis/collector/display"
)

// maxStack bounds the devices of one stack of dm, md and partitions: a RAID of many
// disks is one level.
const maxStack = 256

// Below returns the devices that a disk or partition is made of, down to the
// hardware: the disk of a partition, the slaves of dm and md. The device itself is
// the first; further ones come level by level. As in the kernel's log, the device may also
// be a number ("254:0"), an NVMe controller, which stands for its disks, or a path of one.
func (f FS) Below(device string) ([]string, error) {
	return f.stack(device, func(name string) []string {
		below := f.links(name, "slaves")
		if parent := f.diskOf(name); parent != "" {
			below = append(below, parent)
		}
		return below
	})
}

// Above returns the devices that are made of a disk or partition: its partitions, and
// dm and md volumes on them. The device itself is the first; it may be called as for
// [FS.Below].
func (f FS) Above(device string) ([]string, error) {
	return f.stack(device, func(name string) []string {
		parts, _ := f.Partitions(name) // none of a partition
		return append(parts, f.links(name, "holders")...)
	})
}

func (f FS) stack(device string, next func(name string) []string) ([]string, error) {
	out := []string{device}
	if head, ok := NVMeHead(device); ok {
		out[0] = head
	} else if major, minor, err := ParseDeviceNumber(device); err == nil {
		out[0] = f.Device(major, minor).Name
	}
	if _, _, err := f.DeviceNumber(out[0]); err != nil {
		disks, nvmeErr := f.nvmeDisks(device)
		if nvmeErr != nil || len(disks) == 0 {
			return nil, err
		}
		out = disks
	}
	for i := 0; i < len(out) && len(out) < maxStack; i++ {
		for _, name := range next(out[i]) {
			if !slices.Contains(out, name) && len(out) < maxStack {
				out = append(out, name)
			}
		}
	}
	return out, nil
}

// links returns the names in a directory of links of a device.
func (f FS) links(device, dir string) []string {
	name, err := sysBlockName(device)
	if err != nil {
		return nil
	}
	names, _ := f.devices("/sys/class/block/" + name + "/" + dir) // a partition has no slaves
	return names
}

// diskOf returns the whole disk of a partition, empty for any other device.
func (f FS) diskOf(device string) string {
	major, minor, err := f.DeviceNumber(device)
	if err != nil {
		return ""
	}
	return f.Device(major, minor).Parent
}

// Disk returns the whole disk that a disk or partition is of.
func (f FS) Disk(device string) (string, error) {
	if _, _, err := f.DeviceNumber(device); err != nil {
		return "", err
	}
	if disk := f.diskOf(device); disk != "" {
		return disk, nil
	}
	return device, nil
}

// DiskValue returns a file of a disk's or partition's directory in sysfs
// ("queue/scheduler"), without white space around it, escaped; empty: there is none.
func (f FS) DiskValue(device, file string) string {
	name, err := sysBlockName(device)
	if err != nil {
		return ""
	}
	rel, err := below(file)
	if err != nil {
		return ""
	}
	s, err := f.readValue("/sys/class/block/" + name + rel)
	if err != nil {
		return ""
	}
	return display.Safe(strings.Join(strings.Fields(s), " "), maxShownPath)
}
