package collector

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/kernosis/kernosis/collector/event"
	"github.com/kernosis/kernosis/collector/hostfs"
)

// diskStallSource reports when a block device has I/O in flight but completes none, and when that
// ends. It reads the same counters as iostat, so it also works where no BPF program can be loaded.
//
// A stalled disk stalls the volumes above it (dm, md, loop), and each one is reported. A device
// that keeps no counters (queue/iostats is 0) is not checked.
type diskStallSource struct {
	env   *environment
	every time.Duration
	after time.Duration
	asked requests

	// Used by Run's goroutine only.
	disks     map[string]*disk // by name
	reported  bool             // the state of the source was reported,
	down      bool             // and it was down
	bounded   bool             // the warning about too many devices was logged
	buf       [512]byte        // for one stat file: 17 numbers
	path      []byte
	pathStart int
}

const (
	// diskStallEvery is how often devices are checked. A check costs about 10 µs per device.
	diskStallEvery = 2 * time.Second
	// diskStallAfter is how long a device may complete nothing. A disk that spins up, or collects
	// garbage after a flush, takes some seconds; the kernel's command timeout (SCSI, NVMe) is 30 s.
	diskStallAfter = 10 * time.Second
	// maxDisks bounds the devices checked: a thousand volumes on several paths each are as many.
	maxDisks = 4096
	// maxDiskMounts bounds the mounts reported for a disk, as for any other device.
	maxDiskMounts = 8
)

func newDiskStallSource(env *environment) *diskStallSource {
	return &diskStallSource{env: env, every: diskStallEvery, after: diskStallAfter, disks: map[string]*disk{}}
}

// disk is a device that was checked before.
type disk struct {
	diskState
	device event.Device // as reported
	round  time.Time    // the latest check that found it
}

// diskSample holds a device's counters at one moment.
type diskSample struct {
	inFlight uint32
	done     uint64 // sum of I/Os and sectors completed: it changes when anything completes
}

// diskState is the state of a device between checks.
type diskState struct {
	diskSample
	since    time.Time // since when I/O is in flight and nothing completes; zero: not stalled
	reported bool      // DiskStalled was reported
	again    bool      // report it again: the source was down
}

// step processes the next sample, and returns the kind of event to report: [event.DiskStalled],
// [event.DiskResumed] or none. Before the first sample the state is zero.
func (s diskState) step(now diskSample, at time.Time, after time.Duration) (diskState, event.Kind) {
	next := diskState{diskSample: now}
	if now.inFlight > 0 && !s.since.IsZero() && now.done == s.done {
		// The I/O in flight is the same as before: a completed one would have changed the sum. This
		// holds however far apart the checks are.
		next.since, next.reported = s.since, s.reported
		if s.again || !s.reported && at.Sub(s.since) >= after {
			next.reported = true
			return next, event.DiskStalled
		}
		return next, ""
	}
	if now.inFlight > 0 {
		next.since = at
	}
	if s.reported {
		return next, event.DiskResumed
	}
	return next, ""
}

// Run checks devices until ctx is done, then returns nil.
func (d *diskStallSource) Run(ctx context.Context, emit Emit) error {
	return onBeats(ctx, d.every, func() { d.look(time.Now(), emit) })
}

// namedSample is a sample of one device.
type namedSample struct {
	name string
	diskSample
}

func (d *diskStallSource) look(at time.Time, emit Emit) {
	samples, err := d.sample(at)
	d.reportSource(err, emit)
	if err != nil {
		return
	}
	for _, s := range samples {
		known := d.disks[s.name]
		if known == nil {
			known = &disk{}
			d.disks[s.name] = known
		}
		known.round = at
		d.step(s.name, known, s.diskSample, at, emit)
	}
	if len(d.disks) > len(samples) {
		for _, name := range slices.Sorted(maps.Keys(d.disks)) {
			if known := d.disks[name]; !known.round.Equal(at) {
				d.step(name, known, diskSample{}, at, emit) // it is gone
				delete(d.disks, name)
			}
		}
	}
	for _, emit := range d.asked.take() {
		for _, known := range d.disks {
			if known.reported {
				d.report(event.DiskStalled, known, known.diskState, at, emit)
			}
		}
	}
}

func (d *diskStallSource) step(name string, known *disk, s diskSample, at time.Time, emit Emit) {
	before := known.diskState
	next, kind := before.step(s, at, d.after)
	known.diskState = next
	switch kind {
	case "":
		return
	case event.DiskStalled:
		known.device = d.device(name)
	}
	d.report(kind, known, diskState{diskSample: s, since: before.since}, at, emit)
}

func (d *diskStallSource) report(kind event.Kind, known *disk, state diskState, at time.Time, emit Emit) {
	device := known.device
	emit(hostfs.Stamped(event.Event{Kind: kind, Source: "sysfs", Device: &device, DiskStall: &event.DiskStallData{
		InFlight:   state.inFlight,
		StalledFor: event.Duration(at.Sub(state.since)),
	}}))
}

// reportSource reports each change of whether devices can be checked. When checks work again,
// devices that stalled before are reported again if they still do.
func (d *diskStallSource) reportSource(err error, emit Emit) {
	if d.reported && d.down == (err != nil) {
		return
	}
	d.reported, d.down = true, err != nil
	if err != nil {
		d.env.log.Error("can't detect stalled block devices", "error", err)
		for _, known := range d.disks {
			known.again = known.reported
		}
	}
	emit(sourceEvent(event.DiskStalled.Stem(), err))
}

// sample reads every device's counters. It returns an error if none can be read. A known device
// that exists but can't be read counts as found by this check.
func (d *diskStallSource) sample(at time.Time) (samples []namedSample, err error) {
	names, err := d.names()
	if err != nil {
		return nil, fmt.Errorf("look for block devices: %w", err)
	}
	samples = make([]namedSample, 0, len(names))
	for _, name := range names {
		s, readErr := d.read(name)
		switch {
		case readErr == nil:
			samples = append(samples, namedSample{name, s})
		case errors.Is(readErr, fs.ErrNotExist), errors.Is(readErr, unix.ENODEV):
			// removed meanwhile
		default:
			err = readErr
			if known := d.disks[name]; known != nil {
				known.round = at
			}
		}
	}
	if len(samples) > 0 {
		err = nil
	}
	return samples, err
}

// names returns the whole disks: a partition's I/O is also counted for its disk. Disks of size 0 (a
// loop device without a file, an empty card reader) have no I/O in flight and need no exception.
func (d *diskStallSource) names() ([]string, error) {
	names, err := d.env.fs.Disks()
	if len(names) > maxDisks {
		if !d.bounded {
			d.bounded = true
			d.env.log.Warn("some block devices are not checked for stalls", "devices", len(names), "limit", maxDisks)
		}
		names = names[:maxDisks] // the same ones each time
	}
	return names, err
}

// read reads the counters only from "stat": counters from a second file, "inflight", would be of
// another moment. Also, since v6.16 "inflight" omits requests that the block layer holds back from
// a driver that doesn't answer.
func (d *diskStallSource) read(name string) (diskSample, error) {
	if d.pathStart == 0 {
		d.path = append(d.path, d.env.fs.Path("/sys/block")+"/"...)
		d.pathStart = len(d.path)
	}
	d.path = append(append(d.path[:d.pathStart], strings.ReplaceAll(name, "/", "!")...), "/stat"...)
	n, err := readSmall(string(d.path), d.buf[:])
	if err != nil {
		return diskSample{}, fmt.Errorf("read %s: %w", d.path, err)
	}
	s, ok := hostfs.ParseDiskStat(d.buf[:n])
	if !ok {
		return diskSample{}, fmt.Errorf("parse %s: %q", d.path, d.buf[:min(n, 200)])
	}
	return diskSample{inFlight: s.InFlight, done: s.Done()}, nil
}

// readSmall reads a sysfs file with one read call. [os.ReadFile] takes twice as long: it also calls
// fstat, and reads once more for EOF.
func readSmall(path string, buf []byte) (int, error) {
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return 0, err
	}
	n, err := unix.Read(fd, buf)
	return max(n, 0), errors.Join(err, unix.Close(fd))
}

// device returns a disk with the mounts of its partitions: they stall with it.
func (d *diskStallSource) device(name string) event.Device {
	device, ok := d.numbered(name)
	if head, isPath := hostfs.NVMeHead(name); !ok && isPath {
		// Nothing is mounted from a path of a multipath NVMe disk; it has no number in sysfs.
		return event.Device{Name: name, Parent: head, Mounts: d.device(head).Mounts}
	}
	if !ok {
		return event.Device{Name: name} // it was just removed
	}
	mounts := slices.Clone(device.Mounts)
	parts, err := d.env.fs.Partitions(name)
	if err != nil {
		return device
	}
	for _, p := range parts {
		if part, ok := d.numbered(p); ok {
			mounts = append(mounts, part.Mounts...)
		}
	}
	slices.SortStableFunc(mounts, func(a, b event.Mount) int {
		return cmp.Or(cmp.Compare(len(a.Path), len(b.Path)), cmp.Compare(a.Path, b.Path))
	})
	device.Mounts = mounts[:min(len(mounts), maxDiskMounts)]
	return device
}

func (d *diskStallSource) numbered(name string) (event.Device, bool) {
	major, minor, err := d.env.fs.DeviceNumber(name)
	if err != nil {
		return event.Device{}, false
	}
	return d.env.devices.Device(major, minor), true
}
