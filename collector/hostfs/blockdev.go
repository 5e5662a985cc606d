package hostfs

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
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

// Device returns a block device without its mounts. If it is gone, its name is its number.
func (f FS) Device(major, minor uint32) event.Device {
	d, _ := f.readDevice(major, minor)
	return d
}

// readDevice also returns the sysfs directory of the whole disk; empty: the device is gone.
func (f FS) readDevice(major, minor uint32) (d event.Device, disk string) {
	number := fmt.Sprintf("%d:%d", major, minor)
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

// deviceName replaces the "!" that sysfs writes for a slash ("cciss!c0d0").
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

// BioBased returns the block devices that handle bios without turning them into requests (device
// mapper, md, NVMe with several paths, DRBD, bcache, zvols, zram): request tracepoints never see
// their errors. (bcache and some md levels pass bios on unchanged; then errors belong to the device
// below.) For every other device sysfs has a folder "mq" with its queues. Devices without a medium are
// omitted: no I/O is possible on a zram or md device that is not set up.
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
	// deviceCacheSize exceeds the number of disks, partitions and loop devices of a node.
	deviceCacheSize = 512
	// deviceFresh is how long a cached device is used without reading sysfs, so that a flood of
	// errors of one disk costs nothing. A loop device can be reused for another file within
	// milliseconds; so an error within that second may be attributed to the next user.
	deviceFresh = time.Second
)

// Devices returns block devices with their mounts, and caches them. Numbers are reused (loop, dm),
// so a cached device is checked against the disk's sequence number (diskseq, Linux 5.15), or read
// again if there is none. It is safe for concurrent use.
type Devices struct {
	fs     FS
	made   time.Time
	mounts atomic.Pointer[MountTable]
	mu     sync.Mutex // guards the entries' fields, and gone
	cache  *lru.Cache[uint64, *deviceEntry]
	gone   map[uint64]goneMounts
}

// goneMounts are the former mounts of a device that is no longer mounted.
type goneMounts struct {
	mounts []event.Mount
	seen   time.Duration // since boot: somebody may set the wall clock back
}

// goneFor is how old an event may be when [Devices.DeviceAt] is called for it.
const goneFor = time.Minute

type deviceEntry struct {
	device  event.Device
	disk    string // sysfs directory
	seq     uint64 // 0: the kernel has none
	table   *MountTable
	checked time.Duration // since Devices was made
}

// NewDevices returns Devices without a mount table.
func NewDevices(f FS) *Devices {
	cache, err := lru.New[uint64, *deviceEntry](deviceCacheSize)
	if err != nil {
		panic(err) // only for a size below 1
	}
	return &Devices{fs: f, made: time.Now(), cache: cache, gone: map[uint64]goneMounts{}}
}

// SetMounts sets a new mount table (see [MountWatcher]), which was just read.
func (d *Devices) SetMounts(t *MountTable) {
	d.mu.Lock()
	defer d.mu.Unlock()
	now := BootTime()
	maps.DeleteFunc(d.gone, func(_ uint64, g goneMounts) bool { return now-g.seen > goneFor })
	if old := d.mounts.Swap(t); old != nil {
		for key, mounts := range old.byDevice {
			if len(t.byDevice[key]) == 0 {
				d.gone[key] = goneMounts{mounts, now}
			}
		}
	}
}

// DeviceAt is [Devices.Device] at a time since boot, for a filesystem that may be unmounted by now.
func (d *Devices) DeviceAt(major, minor uint32, at time.Duration) event.Device {
	device := d.Device(major, minor)
	d.mu.Lock()
	defer d.mu.Unlock()
	if g, ok := d.gone[devKey(major, minor)]; ok && at < g.seen {
		device.Mounts = g.mounts
	}
	return device
}

// Device returns a block device and where it is mounted. A device that is gone keeps its last known
// name: a disk can be unplugged while it is mounted, and keeps its number until it is unmounted.
// Mounts is shared and must not be changed.
func (d *Devices) Device(major, minor uint32) event.Device {
	key, now, table := devKey(major, minor), time.Since(d.made), d.mounts.Load()
	d.mu.Lock()
	defer d.mu.Unlock()
	e, ok := d.cache.Get(key)
	if ok && now-e.checked >= deviceFresh {
		if seq := d.fs.diskSeq(e.disk); seq == 0 || seq != e.seq {
			ok = false
		} else {
			e.checked = now
		}
	}
	if !ok {
		was := e
		e = &deviceEntry{checked: now}
		// The sequence number before the name: if it changes, the next check rejects the entry.
		_, disk := d.fs.readDevice(major, minor)
		e.seq = d.fs.diskSeq(disk)
		e.device, e.disk = d.fs.readDevice(major, minor)
		if e.disk == "" && was != nil {
			e.device.Name, e.device.Parent = was.device.Name, was.device.Parent
		}
		e.device.Mounts = table.At(major, minor)
		e.table = table
		d.cache.Add(key, e)
	}
	if e.table != table {
		e.device.Mounts, e.table = table.At(major, minor), table
	}
	return e.device
}

// Forget removes a device from the cache: the caller knows that another disk has the number by now.
func (d *Devices) Forget(major, minor uint32) { d.cache.Remove(devKey(major, minor)) }

// diskSeq returns the disk's sequence number, which is unique since boot, or 0 if it has none.
func (f FS) diskSeq(disk string) uint64 {
	if disk == "" {
		return 0
	}
	seq, _ := f.readUint(disk + "/diskseq")
	return seq
}

// LoopBackingFile returns the file behind a loop device ("loop0"), escaped. It fails for other
// devices.
func (f FS) LoopBackingFile(name string) (string, error) {
	if !strings.HasPrefix(name, "loop") || strings.ContainsAny(name, "/\x00") {
		return "", fmt.Errorf("loop device %q: %w", name, ErrPath)
	}
	s, err := f.readValue("/sys/block/" + name + "/loop/backing_file")
	return display.Safe(s, maxShownPath), err
}
