package disk

import (
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"

	"github.com/kernosis/kernosis/collector/hostfs"
	"github.com/kernosis/kernosis/diagnose/operation"
)

// diskParameters returns the parameters that name a disk.
func diskParameters(doc string) []operation.Parameter {
	return []operation.Parameter{
		{Name: "device", Doc: "kernel name of a disk, partition, volume or NVMe controller; none, and none of the following: " + doc, Kind: operation.String},
		{Name: "deviceNumber", Doc: "its MAJ:MIN", Kind: operation.String},
		{Name: "mountPoint", Doc: "path on a filesystem on it", Kind: operation.String},
	}
}

// diskOf returns the device that the parameters name, which may be gone; empty if they name none.
func diskOf(h operation.Host, v operation.Values) (string, error) {
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
		list, err := filesystems(h, v, true)
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
func hardware(h operation.Host, device string) ([]string, error) {
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
func namedHardware(h operation.Host, v operation.Values) (device string, disks []string, err error) {
	device, err = diskOf(h, v)
	switch {
	case err != nil:
		return "", nil, err
	case device == "":
		return "", nil, errors.New("parameter device, deviceNumber or mountPoint is required")
	}
	disks, err = hardware(h, device)
	return device, disks, err
}

// allHardware returns all disks except volumes on others, loop and RAM disks, and disks without a
// size.
func allHardware(h operation.Host) ([]string, error) {
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
