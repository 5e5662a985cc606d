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

// diskIO decodes failed block requests. It keeps the costly hook for bio-based devices attached
// only while there are such devices.
type diskIO struct {
	env *environment
	attribution
	ops   [256]string // by enum req_op of this kernel
	hooks onDemandHooks
	storm diskStorms
	last  map[bpf.DiskErrorKind]*lastDiskError // at most maxLast kinds
	head  diskHead
	lower *lowerErrors
	// bioErr is the last attach error that was reported.
	bioErr string

	// The event points to these; they are reused for the next event.
	device event.Device
	data   event.DiskIOData
}

// diskStorms is the part of [bpf.Loaded] that counts errors without a record.
type diskStorms interface {
	UnrecordedDiskErrors(now time.Duration) ([]bpf.DiskErrors, error)
	Settled()
	ReportedDiskErrors(bpf.DiskErrors) error
}

// lastDiskError is the latest error of a kind that has a record.
type lastDiskError struct {
	record bpf.DiskIO
	lower  string // name of the lower device that failed
}

// maxLast bounds the records kept, of 750 bytes each, to as many kinds as the BPF side counts.
const maxLast = 256

// onDemandHooks is the part of [bpf.Loaded] that attaches and detaches.
type onDemandHooks interface {
	Attach(hook string) error
	Detach(hook string) error
}

func newDiskIO(env *environment, l *bpf.Loaded) *diskIO {
	return &diskIO{
		env: env, attribution: attribution{attributor: env.attributor}, hooks: l, storm: l,
		last: map[bpf.DiskErrorKind]*lastDiskError{}, ops: diskOps(env.kernel), lower: newLowerErrors(env.fs),
	}
}

// diskOps returns the names of this kernel's operations. The numbers of common operations have not
// changed since 4.10; those of zoned devices have.
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
		// In a storm, errors of lower devices are only counted. If the counts can't be read, end
		// reports that.
		storms, _ := d.storm.UnrecordedDiskErrors(hostfs.BootTime())
		d.noteStorms(storms, r.H.BootNS)
	}
	d.fill(r, ev)
	d.remember(r)
	return true, nil
}

// remember stores the record of the latest event as the latest of its kind.
func (d *diskIO) remember(r *bpf.DiskIO) {
	kind := r.Kind()
	last := d.last[kind]
	if last == nil {
		last = &lastDiskError{}
		put(d.last, maxLast, kind, last)
	}
	last.record, last.lower = *r, d.data.Lower
}

// fill fills the event from a record.
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
	if d.data.Bio {
		d.data.Lower = d.lower.of(r.Disk, r.H.BootNS)
	}
	d.note(r, &d.device)
	ev.DiskIO = &d.data
}

// note records the error of a device for the volumes above it.
func (d *diskIO) note(r *bpf.DiskIO, device *event.Device) {
	dev, disk := r.Dev, r.Disk
	if isPath(r) {
		dev = device.Major<<20 | device.Minor // of the visible disk
		disk = dev
	}
	d.lower.note(dev, disk, r.H.BootNS, device.Name)
}

// noteStorms records errors that are only counted, as of boot: they are at most some seconds old.
func (d *diskIO) noteStorms(storms []bpf.DiskErrors, boot uint64) {
	for i := range storms {
		r := storms[i].Kind.Record()
		r.H.BootNS = boot
		device := d.name(&r)
		d.note(&r, &device)
	}
}

// name returns the device, with the kernel's name of the disk if it is gone, as failed disks are.
func (d *diskIO) name(r *bpf.DiskIO) event.Device {
	if isPath(r) {
		return d.hidden(r)
	}
	major, minor := hostfs.SplitKernelDev(r.Dev)
	dev := d.env.devices.Device(major, minor)
	if r.DiskName[0] == 0 || isDisk(r, &dev) {
		return dev
	}
	if !isNumber(dev.Name) {
		// The cache may hold a former disk with this number.
		d.env.devices.Forget(major, minor)
		if dev = d.env.devices.Device(major, minor); isDisk(r, &dev) {
			return dev
		}
	}
	// The disk is gone, and its number may already belong to another.
	name := diskName(r)
	if r.Dev == r.Disk {
		return event.Device{Major: major, Minor: minor, Name: name}
	}
	return event.Device{Major: major, Minor: minor, Name: fmt.Sprintf("%d:%d", major, minor), Parent: name}
}

// isDisk reports whether the device is the disk that the record names, or a partition of it.
func isDisk(r *bpf.DiskIO, dev *event.Device) bool {
	known := dev.Name
	if r.Dev != r.Disk {
		known = dev.Parent
	}
	return string(bpf.CString(r.DiskName[:])) == known || diskName(r) == known
}

// diskName returns the name of a record's disk in the form that [hostfs.Devices] uses: sysfs
// replaces slashes.
func diskName(r *bpf.DiskIO) string {
	return display.Safe(strings.ReplaceAll(string(bpf.CString(r.DiskName[:])), "!", "/"), 64)
}

// isNumber reports whether a name is a number such as "259:3", not the kernel's name of a disk.
func isNumber(name string) bool { return strings.IndexByte(name, ':') >= 0 }

// isPath reports whether the record's disk is hidden: a path of a multipath NVMe disk. Since v6.1
// (a0a6314ae774) it has a number, which is not in sysfs.
func isPath(r *bpf.DiskIO) bool {
	return r.Dev == 0 || hostfs.IsNVMePath(string(bpf.CString(r.DiskName[:])))
}

// hidden returns the visible disk of a path: nothing is mounted from the path itself.
func (d *diskIO) hidden(r *bpf.DiskIO) event.Device {
	if now := time.Now(); d.head.of != r.DiskName || now.Sub(d.head.at) >= headFresh {
		name := display.Safe(string(bpf.CString(r.DiskName[:])), 64)
		d.head = diskHead{of: r.DiskName, at: now, visible: d.findHead(name)}
	}
	return d.head.visible
}

// diskHead is the visible disk of a hidden one.
type diskHead struct {
	of      [32]byte // name of the hidden disk
	at      time.Time
	visible event.Device
}

// headFresh limits the lookups of a disk with many failing paths to one a second.
const headFresh = time.Second

func (d *diskIO) findHead(hidden string) event.Device {
	head, ok := hostfs.NVMeHead(hidden)
	if !ok {
		return event.Device{Name: hidden}
	}
	major, minor, err := d.env.fs.DeviceNumber(head)
	if err != nil {
		return event.Device{Name: head}
	}
	return d.env.devices.Device(major, minor)
}

// end emits an event for all errors of a kind that the BPF side has only counted, with the data of
// the latest recorded one.
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
			d.data.Lower = last.lower // lower errors may be reported already
		}
		emit(ev)
	}
	if len(storms) > 0 {
		d.storm.Settled()
	}
	for i := range storms {
		err = errors.Join(err, d.storm.ReportedDiskErrors(storms[i]))
	}
	return err
}

// bioEvery is how often to look for bio-based devices: a check is one readdir, and new volumes
// seldom fail.
const bioEvery = 10 * time.Second

func (d *diskIO) poll(_ context.Context, _ time.Time, emit func(*event.Event)) (time.Duration, error) {
	return bioEvery, errors.Join(d.end(emit), d.lookForBios())
}

// lookForBios attaches the hook for bio-based devices if there are any; otherwise it detaches it.
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
		return fmt.Errorf("can't detect errors of %s: %w", strings.Join(devices[:min(len(devices), 4)], ", "), err)
	}
	return nil
}
