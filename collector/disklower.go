package collector

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"time"

	"github.com/kernosis/kernosis/collector/hostfs"
)

// lowerErrors finds the lower device that caused an error of a volume (dm, md). The kernel reports
// both errors, the lower one first: completing the lower request is what completes the volume's. It
// must be used by one goroutine.
type lowerErrors struct {
	fs     hostfs.FS
	failed map[uint32]failedDevice // by the kernel's own dev_t, partition and disk
	lower  map[uint32]lowerDevices // by the dev_t of the volume
}

// failedDevice is the latest error of a device.
type failedDevice struct {
	boot uint64 // ns
	name string
}

// lowerDevices are the devices that a volume consists of.
type lowerDevices struct {
	devs []uint32  // of all levels, the lowest first
	at   time.Time // when they were read
}

const (
	// lowerWithin is the maximum time from a lower error to the volume's error. An error passes up
	// within microseconds, but a RAID may first try another device, which fails as well.
	lowerWithin = time.Second
	// lowerFresh is how long a volume's devices are cached: its table may change, but a flood of
	// errors must not read sysfs each time.
	lowerFresh = time.Second
	// maxFailed bounds the devices cached. Fewer fail within a second.
	maxFailed = 256
)

func newLowerErrors(fs hostfs.FS) *lowerErrors {
	return &lowerErrors{fs: fs, failed: map[uint32]failedDevice{}, lower: map[uint32]lowerDevices{}}
}

// of returns the name of the lowest device that caused an error of a volume at a boot time (ns). It
// returns "" if the error is the volume's own.
func (l *lowerErrors) of(volume uint32, boot uint64) string {
	for _, dev := range l.devices(volume) {
		f, ok := l.failed[dev]
		// Not in the future: errors of one chain are in order.
		if ok && f.boot <= boot && boot-f.boot <= uint64(lowerWithin) {
			return f.name
		}
	}
	return ""
}

// note records an error of a device. An error of a partition is also recorded for its disk.
func (l *lowerErrors) note(dev, disk uint32, boot uint64, name string) {
	f := failedDevice{boot: boot, name: name}
	put(l.failed, maxFailed, dev, f)
	l.failed[disk] = f
}

func (l *lowerErrors) devices(volume uint32) []uint32 {
	known, ok := l.lower[volume]
	if now := time.Now(); !ok || now.Sub(known.at) >= lowerFresh {
		known = lowerDevices{devs: l.read(volume), at: now}
		put(l.lower, maxFailed, volume, known)
	}
	return known.devs
}

// read reads a volume's devices from sysfs. It returns none for a volume that is gone.
func (l *lowerErrors) read(volume uint32) []uint32 {
	major, minor := hostfs.SplitKernelDev(volume)
	device := l.fs.Path(fmt.Sprintf("/sys/dev/block/%d:%d", major, minor))
	dir := device + "/slaves"
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		dir = device + "/../slaves" // of a partition of a volume
		entries, err = os.ReadDir(dir)
	}
	if err != nil {
		return nil
	}
	var devs []uint32
	for _, e := range entries {
		if major, minor, err := l.fs.DeviceNumber(e.Name()); err == nil {
			dev := major<<20 | minor
			devs = append(append(devs, l.read(dev)...), dev)
		}
	}
	return devs
}
