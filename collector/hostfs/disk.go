package hostfs

import (
	"cmp"
	"fmt"
	"math"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/kernosis/kernosis/collector/display"
)

// DiskStat is the content of a block device's "stat", counted since boot or since the device was
// added. Sectors have 512 bytes.
type DiskStat struct {
	Reads, Writes, Discards, Flushes          uint64 // I/Os completed
	ReadSectors, WriteSectors, DiscardSectors uint64 // increase with each completed part of a request
	ReadTime, WriteTime                       time.Duration
	InFlight                                  uint32        // started and not completed
	Busy                                      time.Duration // with I/O in flight
}

// Done returns a sum that changes whenever the device completes anything.
func (s *DiskStat) Done() uint64 {
	return s.Reads + s.Writes + s.Discards + s.Flushes + s.ReadSectors + s.WriteSectors + s.DiscardSectors
}

// ParseDiskStat parses the format of Documentation/block/stat.rst without allocating. Discards
// exist since v4.18, flushes since v5.5.
func ParseDiskStat(b []byte) (s DiskStat, ok bool) {
	const least, most = 11, 16
	var n [most]uint64
	field := 0
	for len(b) > 0 {
		if b[0] == ' ' || b[0] == '\n' {
			b = b[1:]
			continue
		}
		var v uint64
		for len(b) > 0 && b[0] != ' ' && b[0] != '\n' {
			if b[0] < '0' || b[0] > '9' {
				return DiskStat{}, false
			}
			v = v*10 + uint64(b[0]-'0')
			b = b[1:]
		}
		if field < most {
			n[field] = v
		}
		field++
	}
	if field < least {
		return DiskStat{}, false
	}
	ms := func(v uint64) time.Duration {
		return time.Duration(min(v, math.MaxInt64/uint64(time.Millisecond))) * time.Millisecond
	}
	return DiskStat{
		Reads: n[0], ReadSectors: n[2], ReadTime: ms(n[3]),
		Writes: n[4], WriteSectors: n[6], WriteTime: ms(n[7]),
		InFlight: uint32(min(n[8], math.MaxUint32)), Busy: ms(n[9]),
		Discards: n[11], DiscardSectors: n[13], Flushes: n[15],
	}, true
}

// DiskStat reads the counters of a whole disk by its name in /sys/block.
func (f FS) DiskStat(disk string) (DiskStat, error) {
	name, err := sysBlockName(disk)
	if err != nil {
		return DiskStat{}, err
	}
	p := "/sys/block/" + name + "/stat"
	b, err := f.readCut(p, smallFile)
	if err != nil {
		return DiskStat{}, err
	}
	s, ok := ParseDiskStat(b)
	if !ok {
		return DiskStat{}, fmt.Errorf("parse %s: %w", f.Path(p), errSyntax)
	}
	return s, nil
}

// Disks returns the names of the whole disks, sorted, except RAM disks, which complete I/O at once.
func (f FS) Disks() ([]string, error) {
	names, err := f.devices("/sys/block")
	if err != nil {
		return nil, err
	}
	names = slices.DeleteFunc(names, func(name string) bool {
		n, ok := strings.CutPrefix(name, "ram")
		return ok && isDecimal(n)
	})
	slices.Sort(names)
	return names, nil
}

// sysBlockName checks a device's name and returns it as sysfs writes it ("cciss!c0d0").
func sysBlockName(device string) (string, error) {
	name := strings.ReplaceAll(device, "/", "!")
	if name == "" || name == "." || name == ".." || strings.IndexByte(name, 0) >= 0 {
		return "", fmt.Errorf("block device %q: %w", device, ErrPath)
	}
	return name, nil
}

// DeviceNumber returns the number of a disk or partition by its kernel name.
func (f FS) DeviceNumber(device string) (major, minor uint32, err error) {
	name, err := sysBlockName(device)
	if err != nil {
		return 0, 0, err
	}
	s, err := f.readValue("/sys/class/block/" + name + "/dev")
	if err != nil {
		return 0, 0, err
	}
	return ParseDeviceNumber(s)
}

// ParseDeviceNumber parses "259:2".
func ParseDeviceNumber(s string) (major, minor uint32, err error) {
	a, b, ok := strings.Cut(s, ":")
	maj, err1 := strconv.ParseUint(a, 10, 32)
	mnr, err2 := strconv.ParseUint(b, 10, 32)
	if !ok || err1 != nil || err2 != nil {
		return 0, 0, fmt.Errorf("device number %q: %w", s, errSyntax)
	}
	return uint32(maj), uint32(mnr), nil
}

// Partitions returns the partitions of a disk by name.
func (f FS) Partitions(disk string) ([]string, error) {
	name, err := sysBlockName(disk)
	if err != nil {
		return nil, err
	}
	entries, err := os.ReadDir(f.Path("/sys/block/" + name))
	if err != nil {
		return nil, err
	}
	var parts []string
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), name) && f.exists("/sys/block/"+name+"/"+e.Name()+"/partition") {
			parts = append(parts, deviceName(e.Name()))
		}
	}
	return parts, nil
}

// maxStack bounds the devices of one stack of dm, md (which may have many disks) and partitions.
const maxStack = 256

// Below returns the devices that a disk or partition consists of, down to the hardware: the disk of
// a partition, the slaves of dm and md. The device itself is first; others follow level by level.
// As in the kernel's log, the device may also be a number ("254:0"), an NVMe controller (which
// means its disks), or a path of a multipath NVMe disk.
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
	major, minor, err := f.DeviceNumber(device)
	if err != nil {
		return "", err
	}
	return cmp.Or(f.Device(major, minor).Parent, device), nil
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
