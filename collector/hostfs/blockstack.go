package hostfs

import (
	"slices"
	"strings"

	"github.com/kernosis/kernosis/collector/display"
)

// maxStack bounds the devices of one stack of dm, md and partitions. A RAID may have many disks on
// one level.
const maxStack = 256

// Below returns the devices that a disk or partition consists of, down to the hardware: the disk of
// a partition, the slaves of dm and md. The device itself is first; others follow level by level.
// As in the kernel's log, the device may also be a number ("254:0"), an NVMe controller (which
// means its disks), or a path of one.
func (f FS) Below(device string) ([]string, error) {
	return f.stack(device, func(name string) []string {
		below := f.links(name, "slaves")
		if parent := f.diskOf(name); parent != "" {
			below = append(below, parent)
		}
		return below
	})
}

// Above returns the devices that are built on a disk or partition: its partitions, and dm and md
// volumes on them. The device itself is first; it may be named as in [FS.Below].
func (f FS) Above(device string) ([]string, error) {
	return f.stack(device, func(name string) []string {
		parts, _ := f.Partitions(name) // a partition has none
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

// links returns the names in a device's directory of links.
func (f FS) links(device, dir string) []string {
	name, err := sysBlockName(device)
	if err != nil {
		return nil
	}
	names, _ := f.devices("/sys/class/block/" + name + "/" + dir) // a partition has no slaves
	return names
}

// diskOf returns the whole disk of a partition, or "" for any other device.
func (f FS) diskOf(device string) string {
	major, minor, err := f.DeviceNumber(device)
	if err != nil {
		return ""
	}
	return f.Device(major, minor).Parent
}

// Disk returns the whole disk of a disk or partition.
func (f FS) Disk(device string) (string, error) {
	if _, _, err := f.DeviceNumber(device); err != nil {
		return "", err
	}
	if disk := f.diskOf(device); disk != "" {
		return disk, nil
	}
	return device, nil
}

// DiskValue returns the content of a file in the sysfs directory of a disk or partition
// ("queue/scheduler"), without surrounding white space, escaped, or "" if there is none.
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
