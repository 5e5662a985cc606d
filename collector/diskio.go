package collector

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/kernosis/kernosis/bpf"
	"github.com/kernosis/kernosis/collector/display"
	"github.com/kernosis/kernosis/collector/event"
	"github.com/kernosis/kernosis/collector/hostfs"
)

// diskIO decodes failed block requests, and keeps the costly hook for bio-based
// devices attached only while there are some.
type diskIO struct {
	env *environment
	attribution
	ops   [256]string // by enum req_op of this kernel
	hooks onDemandHooks
	storm diskStorms
	last  map[bpf.DiskErrorKind]*lastDiskError // at most maxLast
	head  diskHead
	lower *lowerErrors
	// bioErr is the failure to attach that was reported already.
	bioErr string

	// What the event points to, used again for the next one.
	device event.Device
	data   event.DiskIOData
}

// diskStorms is the part of [bpf.Loaded] that counts errors without a record.
type diskStorms interface {
	UnrecordedDiskErrors(now time.Duration) ([]bpf.DiskErrors, error)
	ReportedDiskErrors(bpf.DiskErrors) error
}

// lastDiskError is the latest error of a kind that has a record.
type lastDiskError struct {
	record bpf.DiskIO
	lower  string // whose error it was
}

// maxLast bounds the records that are kept, of 750 bytes each: as many as there are kinds of
// errors that the kernel side counts.
const maxLast = 256

// onDemandHooks is the part of [bpf.Loaded] that attaches and detaches.
type onDemandHooks interface {
	Attach(hook string) error
	Detach(hook string) error
}

func newDiskIO(env *environment, l *bpf.Loaded) *diskIO {
	return &diskIO{env: env, attribution: attribution{attributor: env.attributor}, hooks: l, storm: l, last: make(map[bpf.DiskErrorKind]*lastDiskError), ops: diskOps(env.kernel), lower: newLowerErrors(env.fs)}
}

// diskOps names this kernel's operations. The common ones have kept their
// numbers since 4.10, those of zoned devices have moved.
func diskOps(k *bpf.Kernel) (ops [256]string) {
	for i := range ops {
		ops[i] = "other"
	}
	ops[bpf.DiskOpRead], ops[bpf.DiskOpWrite], ops[bpf.DiskOpFlush] = "read", "write", "flush"
	ops[bpf.DiskOpDiscard], ops[bpf.DiskOpWriteZeroes] = "discard", "write-zeroes"
	if k == nil {
		return ops
	}
	names, err := k.EnumNames("req_op")
	if err != nil {
		names, _ = k.EnumNames("req_opf") // until v5.19; without either, zone appends are "other"
	}
	for n, name := range names {
		if name == "REQ_OP_ZONE_APPEND" && n < uint64(len(ops)) {
			ops[n] = "zone-append"
		}
	}
	return ops
}

func (d *diskIO) decode(_ *bpf.Header, raw []byte, ev *event.Event) (bool, error) {
	r, err := bpf.View[bpf.DiskIO](raw)
	if err != nil {
		return false, err
	}
	if r.Flags&bpf.DiskIOBio != 0 && d.lower.of(r.Disk, r.H.BootNS) == "" {
		// In a storm the errors below are only counted. That counts can't be read shows in end.
		storms, _ := d.storm.UnrecordedDiskErrors(hostfs.BootTime())
		d.noteStorms(storms, r.H.BootNS)
	}
	d.fill(r, ev)
	d.remember(r)
	return true, nil
}

// remember keeps the record, of which the latest event is, as the latest of its kind.
func (d *diskIO) remember(r *bpf.DiskIO) {
	kind := r.Kind()
	last := d.last[kind]
	if last == nil {
		if len(d.last) >= maxLast {
			clear(d.last)
		}
		last = new(lastDiskError)
		d.last[kind] = last
	}
	last.record, last.lower = *r, d.data.Lower
}

// fill makes an event of a record.
func (d *diskIO) fill(r *bpf.DiskIO, ev *event.Event) {
	ev.Kind = event.DiskIO
	d.device = d.name(r)
	ev.Device = &d.device
	d.set(ev, d.chain(&r.Issuer, 0))

	d.data = event.DiskIOData{
		Op:        d.ops[r.Op],
		Sector:    r.Sector,
		Bytes:     r.Bytes,
		ReadAhead: r.Flags&bpf.DiskIOReadAhead != 0,
		Bio:       r.Flags&bpf.DiskIOBio != 0,
	}
	if r.Op == bpf.DiskOpWrite && r.Bytes == 0 && r.Flags&bpf.DiskIOPreflush != 0 {
		d.data.Op = "flush" // what fsync sends when there is nothing to write
	}
	if r.Dev != r.Disk && r.Sector >= r.Start {
		d.data.Sector -= r.Start
	}
	if r.Flags&bpf.DiskIOStatus != 0 {
		d.data.Status, d.data.Error = hostfs.BlkStatus(uint8(r.Error))
	} else {
		d.data.Error = hostfs.ErrnoName(int32(r.Error))
		d.data.Status = hostfs.BlkStatusOfErrno(int32(r.Error))
	}
	d.data.Lower = d.trace(r)
	ev.DiskIO = &d.data
}

// trace remembers the error and returns the device below whose error it is.
func (d *diskIO) trace(r *bpf.DiskIO) (lower string) {
	if r.Flags&bpf.DiskIOBio != 0 {
		lower = d.lower.of(r.Disk, r.H.BootNS)
	}
	d.note(r, &d.device)
	return lower
}

// note remembers the error of a device for the volumes above it.
func (d *diskIO) note(r *bpf.DiskIO, device *event.Device) {
	dev, disk := r.Dev, r.Disk
	if dev == 0 {
		dev = device.Major<<20 | device.Minor // of the disk that users see
		disk = dev
	}
	d.lower.note(dev, disk, r.H.BootNS, device.Name)
}

// noteStorms does it for errors that are only counted. They are some seconds old at most, and
// taken for as old as those that are asked about.
func (d *diskIO) noteStorms(storms []bpf.DiskErrors, boot uint64) {
	for i := range storms {
		r := storms[i].Kind.Record()
		r.H.BootNS = boot
		device := d.name(&r)
		d.note(&r, &device)
	}
}

// name finds the device. What the kernel called the disk stands in for one that
// is gone, which is when disks fail.
func (d *diskIO) name(r *bpf.DiskIO) event.Device {
	if r.Dev == 0 {
		return d.hidden(r)
	}
	major, minor := hostfs.SplitKernelDev(r.Dev)
	dev := d.env.devices.Device(major, minor)
	if r.DiskName[0] == 0 || isDisk(r, &dev) {
		return dev
	}
	if !isNumber(dev.Name) {
		// What is remembered may be the number's former disk.
		d.env.devices.Forget(major, minor)
		if dev = d.env.devices.Device(major, minor); isDisk(r, &dev) {
			return dev
		}
	}
	// The disk is gone, and perhaps its number another's already.
	name := diskName(r)
	if r.Dev == r.Disk {
		return event.Device{Major: major, Minor: minor, Name: name}
	}
	return event.Device{Major: major, Minor: minor, Name: fmt.Sprintf("%d:%d", major, minor), Parent: name}
}

// isDisk reports whether the device is, or is a partition of, the disk by whose
// name the kernel called it in the record.
func isDisk(r *bpf.DiskIO, dev *event.Device) bool {
	known := dev.Name
	if r.Dev != r.Disk {
		known = dev.Parent
	}
	return string(bpf.CString(r.DiskName[:])) == known || diskName(r) == known
}

// diskName is the kernel's name of a record's disk, as [hostfs.Devices] writes
// it: sysfs can't have a slash.
func diskName(r *bpf.DiskIO) string {
	return display.Safe(strings.ReplaceAll(string(bpf.CString(r.DiskName[:])), "!", "/"), 64)
}

// isNumber: "259:3" is no kernel's name of a disk.
func isNumber(name string) bool { return strings.IndexByte(name, ':') >= 0 }

// hidden names a path of a multipath NVMe disk by the disk that users see: the
// path has no device number, and nothing is mounted from it.
func (d *diskIO) hidden(r *bpf.DiskIO) event.Device {
	if now := time.Now(); d.head.of != r.DiskName || now.Sub(d.head.at) >= headFresh {
		d.head = d.findHead(r.DiskName)
		d.head.at = now
	}
	if d.head.known {
		return d.env.devices.Device(d.head.major, d.head.minor)
	}
	return event.Device{Name: d.head.name}
}

// diskHead is the disk that users see in place of a hidden one.
type diskHead struct {
	of           [32]byte // name of the hidden disk
	at           time.Time
	name         string
	major, minor uint32
	known        bool // the number
}

// headFresh: a disk with many failing paths is looked up once a second.
const headFresh = time.Second

func (d *diskIO) findHead(hidden [32]byte) diskHead {
	h := diskHead{of: hidden, name: display.Safe(string(bpf.CString(hidden[:])), 64)}
	head, ok := hostfs.NVMeHead(h.name)
	if !ok {
		return h
	}
	var err error
	h.name = head
	h.major, h.minor, err = d.env.fs.DeviceNumber(head)
	h.known = err == nil
	return h
}

// end emits an event for all errors of a kind that the kernel side has only counted, with the
// facts of the latest that has a record.
func (d *diskIO) end(emit func(*event.Event)) error {
	now := hostfs.BootTime()
	storms, err := d.storm.UnrecordedDiskErrors(now)
	d.noteStorms(storms, uint64(now)) // they come in any order
	for i := range storms {
		kind := storms[i].Kind
		record, last := kind.Record(), d.last[kind]
		if last != nil {
			record = last.record
		}
		ev := hostfs.Stamped(event.Event{Source: "bpf/" + bpf.StemDiskIO, Times: storms[i].N})
		record.H.BootNS = uint64(ev.BootTime)
		d.fill(&record, ev)
		if last != nil && d.data.Lower == "" {
			d.data.Lower = last.lower // those below may be reported already
		}
		emit(ev)
		err = errors.Join(err, d.storm.ReportedDiskErrors(storms[i]))
	}
	return err
}

// bioEvery is how often bio-based devices are looked for: a volume that was set
// up just now is not yet old enough to fail, and a look is one readdir.
const bioEvery = 10 * time.Second

func (d *diskIO) poll(_ context.Context, _ time.Time, emit func(*event.Event)) (time.Duration, error) {
	return bioEvery, errors.Join(d.end(emit), d.lookForBios())
}

// lookForBios attaches the hook for bio-based devices while there are some.
func (d *diskIO) lookForBios() error {
	devices, err := d.env.fs.BioBased()
	if err != nil {
		return fmt.Errorf("look for bio-based devices: %w", err)
	}
	if len(devices) == 0 {
		d.bioErr = ""
		return d.hooks.Detach(bpf.HookDiskIOBio)
	}
	if err := d.hooks.Attach(bpf.HookDiskIOBio); err != nil && err.Error() != d.bioErr {
		d.bioErr = err.Error()
		return fmt.Errorf("errors of %s can't be seen: %w", strings.Join(devices[:min(len(devices), 4)], ", "), err)
	}
	return nil
}
