package hostfs

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	lru "github.com/hashicorp/golang-lru/v2"

	"github.com/kernosis/kernosis/collector/display"
	"github.com/kernosis/kernosis/collector/event"
)

// SplitKernelDev splits the kernel's own dev_t (12 bits major, 20 bits minor),
// which programs read from struct fields. It is not the dev_t of stat(2).
func SplitKernelDev(dev uint32) (major, minor uint32) { return dev >> 20, dev & (1<<20 - 1) }

// Device names a block device, without its mounts. A device that is gone has
// its number as name.
func (f FS) Device(major, minor uint32) event.Device {
	d, _ := f.readDevice(major, minor)
	return d
}

// readDevice also returns the sysfs directory of the whole disk; empty: gone.
func (f FS) readDevice(major, minor uint32) (d event.Device, disk string) {
	number := devNumber(major, minor)
	d = event.Device{Major: major, Minor: minor, Name: number}
	target, err := os.Readlink(f.Path("/sys/dev/block/" + number))
	if err != nil {
		return d, ""
	}
	// "../../devices/pci…/block/sda/sda1", relative to /sys/dev/block
	dir := filepath.Join("/sys/dev/block", target)
	d.Name, disk = deviceName(filepath.Base(dir)), dir
	if f.exists(dir + "/partition") {
		disk = filepath.Dir(dir)
		d.Parent = deviceName(filepath.Base(disk))
	}
	return d, disk
}

// deviceName undoes sysfs's way to write a slash ("cciss!c0d0").
func deviceName(s string) string {
	return display.Safe(strings.ReplaceAll(s, "!", "/"), 64)
}

// devices returns the names of devices in a directory, sorted as sysfs writes them.
func (f FS) devices(dir string) ([]string, error) {
	entries, err := os.ReadDir(f.Path(dir))
	names := make([]string, len(entries))
	for i, e := range entries {
		names[i] = deviceName(e.Name())
	}
	return names, err
}

func devNumber(major, minor uint32) string {
	return strconv.FormatUint(uint64(major), 10) + ":" + strconv.FormatUint(uint64(minor), 10)
}

// BioBased returns the block devices that take bios without making requests of
// them (device mapper, md, NVMe with several paths, DRBD, bcache, zvols, zram):
// request tracepoints never see their errors. sysfs has a folder "mq" of the
// queues of every other device. Devices without a medium are left out: nobody can
// do I/O to a zram or md device that is not set up.
func (f FS) BioBased() ([]string, error) {
	entries, err := os.ReadDir(f.Path("/sys/block"))
	if err != nil {
		return nil, err
	}
	var names []string
	for _, e := range entries {
		name := e.Name()
		if f.exists("/sys/block/" + name + "/mq") {
			continue
		}
		size, err := f.readUint("/sys/block/" + name + "/size")
		if errors.Is(err, os.ErrNotExist) || err == nil && size == 0 {
			continue // gone meanwhile, or no medium
		}
		names = append(names, deviceName(name))
	}
	return names, nil
}

const (
	// deviceCacheSize is more than the disks, partitions and loop devices of a node.
	deviceCacheSize = 512
	// deviceFresh is how long an answer is given without a look at sysfs, so that
	// a flood of errors of one disk costs nothing. A loop device is reused for
	// another file within milliseconds at the earliest; within a second an error
	// may be attributed to the next user.
	deviceFresh = time.Second
)

// Devices names block devices with their mounts, and remembers them. Numbers
// are reused (loop, dm), so an answer is checked against the disk's sequence
// number (diskseq, Linux 5.15), or without one read anew. It is safe for
// concurrent use.
type Devices struct {
	fs     FS
	mounts atomic.Pointer[MountTable]
	mu     sync.Mutex // guards the entries' fields, and gone
	cache  *lru.Cache[uint64, *deviceEntry]
	gone   map[uint64]goneMounts
}

// goneMounts are where a device was mounted until it was seen not to be.
type goneMounts struct {
	mounts []event.Mount
	seen   time.Time
}

// goneFor is how late an event may be asked about with [Devices.DeviceAt].
const goneFor = time.Minute

type deviceEntry struct {
	device  event.Device
	disk    string // sysfs directory
	seq     uint64 // 0: the kernel has none
	table   *MountTable
	checked time.Time
}

// NewDevices returns Devices without a mount table.
func NewDevices(f FS) *Devices {
	cache, err := lru.New[uint64, *deviceEntry](deviceCacheSize)
	if err != nil {
		panic(err) // only for a size below 1
	}
	return &Devices{fs: f, cache: cache, gone: map[uint64]goneMounts{}}
}

// SetMounts takes a new mount table (see [MountWatcher]), which was read just now.
func (d *Devices) SetMounts(t *MountTable) {
	d.mu.Lock()
	defer d.mu.Unlock()
	now := time.Now()
	maps.DeleteFunc(d.gone, func(_ uint64, g goneMounts) bool { return now.Sub(g.seen) > goneFor })
	if old := d.mounts.Swap(t); old != nil {
		for key, mounts := range old.byDevice {
			if len(t.byDevice[key]) == 0 {
				d.gone[key] = goneMounts{mounts, now}
			}
		}
	}
}

// DeviceAt is [Devices.Device] for what happened on a mounted filesystem at a time, which
// may have been unmounted since.
func (d *Devices) DeviceAt(major, minor uint32, at time.Time) event.Device {
	device := d.Device(major, minor)
	d.mu.Lock()
	defer d.mu.Unlock()
	if g, ok := d.gone[devKey(major, minor)]; ok && at.Before(g.seen) {
		device.Mounts = g.mounts
	}
	return device
}

// Device names a block device and where it is mounted. Mounts is shared and
// must not be changed.
func (d *Devices) Device(major, minor uint32) event.Device {
	key, now, table := devKey(major, minor), time.Now(), d.mounts.Load()
	d.mu.Lock()
	defer d.mu.Unlock()
	e, ok := d.cache.Get(key)
	if ok && now.Sub(e.checked) >= deviceFresh {
		if seq := d.fs.diskSeq(e.disk); seq == 0 || seq != e.seq {
			ok = false
		} else {
			e.checked = now
		}
	}
	if !ok {
		e = &deviceEntry{checked: now}
		// The sequence number before the name: a device that changes in between
		// has an entry that the next check refuses.
		_, disk := d.fs.readDevice(major, minor)
		e.seq = d.fs.diskSeq(disk)
		e.device, e.disk = d.fs.readDevice(major, minor)
		e.device.Mounts = table.At(major, minor)
		e.table = table
		d.cache.Add(key, e)
	}
	if e.table != table {
		e.device.Mounts, e.table = table.At(major, minor), table
	}
	return e.device
}

// Forget has the next answer for a device read anew: the caller knows that the
// number is another disk's by now.
func (d *Devices) Forget(major, minor uint32) { d.cache.Remove(devKey(major, minor)) }

// diskSeq returns the disk's sequence number, which is unique since boot; 0: it has none.
func (f FS) diskSeq(disk string) uint64 {
	if disk == "" {
		return 0
	}
	seq, err := f.readUint(disk + "/diskseq")
	if err != nil {
		return 0
	}
	return seq
}

// LoopBackingFile returns the file behind a loop device ("loop0"), as the kernel
// shows it, escaped. It is an error for any other device.
func (f FS) LoopBackingFile(name string) (string, error) {
	if !strings.HasPrefix(name, "loop") || strings.ContainsAny(name, "/\x00") {
		return "", fmt.Errorf("loop device %q: %w", name, ErrPath)
	}
	s, err := f.readValue("/sys/block/" + name + "/loop/backing_file")
	return display.Safe(s, maxShownPath), err
}
