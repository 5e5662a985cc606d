package collector

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"time"

	"github.com/kernosis/kernosis/collector/hostfs"
)

// lowerErrors finds the device below a volume (dm, md) that an error of the volume comes
// from. The kernel reports both errors, the lower one first: it completes the request
// there, and that ends the volume's. It is used by one goroutine.
type lowerErrors struct {
	fs     hostfs.FS
	failed map[uint32]failedDevice // by the kernel's own dev_t, partition and disk
	lower  map[uint32]lowerDevices // by that of the volume
}

// failedDevice is the latest error of a device.
type failedDevice struct {
	boot uint64 // ns
	name string
}

// lowerDevices is what a volume is made of.
type lowerDevices struct {
	devs []uint32  // of all levels, the lowest first
	at   time.Time // of the look
}

const (
	// lowerWithin is how long before a volume's error that below may be. It
	// passes on within microseconds, but may try elsewhere first (RAID), which
	// fails in its turn.
	lowerWithin = time.Second
	// lowerFresh: a volume's table may change, and a flood of errors must not
	// look at sysfs each time.
	lowerFresh = time.Second
	// maxFailed bounds the devices remembered, more than fail within a second.
	maxFailed = 256
)

func newLowerErrors(fs hostfs.FS) *lowerErrors {
	return &lowerErrors{fs: fs, failed: map[uint32]failedDevice{}, lower: map[uint32]lowerDevices{}}
}

// of returns the name of the lowest device whose error an error of a volume at a
// boot time (ns) is; empty: it is the volume's own.
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

// note remembers an error of a device, of a partition also as its disk's.
func (l *lowerErrors) note(dev, disk uint32, boot uint64, name string) {
	if len(l.failed) >= maxFailed {
		clear(l.failed)
	}
	f := failedDevice{boot: boot, name: name}
	l.failed[dev], l.failed[disk] = f, f
}

func (l *lowerErrors) devices(volume uint32) []uint32 {
	known, ok := l.lower[volume]
	if now := time.Now(); !ok || now.Sub(known.at) >= lowerFresh {
		if len(l.lower) >= maxFailed {
			clear(l.lower)
		}
		known = lowerDevices{devs: l.read(volume), at: now}
		l.lower[volume] = known
	}
	return known.devs
}

// read looks a volume up in sysfs. One that is gone is made of nothing.
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
