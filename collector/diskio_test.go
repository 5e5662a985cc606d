package collector

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
	"unsafe"

	"github.com/kernosis/kernosis/bpf"
	"github.com/kernosis/kernosis/collector/display"
	"github.com/kernosis/kernosis/collector/event"
	"github.com/kernosis/kernosis/collector/hostfs"
)

// diskEnvironment returns a node with a mounted, partitioned disk, an NVMe disk with two paths, and
// an LVM volume.
func diskEnvironment(t testing.TB) *environment {
	t.Helper()
	root := t.TempDir()
	write := func(path, content string) {
		t.Helper()
		path = filepath.Join(root, path)
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte(content), 0o644)); err != nil {
			t.Fatal(err)
		}
	}
	disk := func(number, target string) {
		t.Helper()
		write("sys/"+target+"/dev", number+"\n")
		write("sys/class/block/"+filepath.Base(target)+"/dev", number+"\n")
		dir := filepath.Join(root, "sys/dev/block")
		if err := errors.Join(os.MkdirAll(dir, 0o755), os.Symlink("../../"+target, filepath.Join(dir, number))); err != nil {
			t.Fatal(err)
		}
	}
	disk("8:0", "devices/pci0/block/sda")
	disk("8:2", "devices/pci0/block/sda/sda2")
	write("sys/devices/pci0/block/sda/sda2/partition", "2\n")
	write("sys/devices/pci0/block/sda/diskseq", "9\n")
	disk("253:0", "devices/virtual/block/dm-0")
	write("sys/devices/virtual/block/dm-0/slaves/sda2/dev", "8:2\n")
	disk("253:1", "devices/virtual/block/dm-1")
	write("sys/devices/virtual/block/dm-1/slaves/dm-0/dev", "253:0\n")
	write("sys/devices/virtual/block/dm-1/slaves/gone/other", "")
	disk("253:2", "devices/virtual/block/dm-2")
	write("sys/devices/virtual/block/dm-2/slaves/nvme0n1/dev", "259:7\n")
	disk("259:7", "devices/virtual/nvme-subsystem/nvme-subsys0/nvme0n1")
	write("sys/devices/virtual/nvme-subsystem/nvme-subsys0/nvme0n1/diskseq", "10\n")
	for name, target := range map[string]string{
		"sda": "devices/pci0/block/sda", "nvme0n1": "devices/virtual/nvme-subsystem/nvme-subsys0/nvme0n1",
	} {
		dir := filepath.Join(root, "sys/block")
		if err := errors.Join(os.MkdirAll(dir, 0o755), os.Symlink("../"+target, filepath.Join(dir, name))); err != nil {
			t.Fatal(err)
		}
	}
	write("proc/1/mountinfo", "30 1 8:2 / / rw,relatime - ext4 /dev/sda2 rw\n31 30 259:7 / /data rw - xfs /dev/nvme0n1 rw\n")
	fs := hostfs.New(root)
	env := &environment{
		log: slog.New(slog.DiscardHandler), fs: fs, clock: hostfs.NewClock(),
		attributor: hostfs.NewAttributor(16, nil, nil), devices: hostfs.NewDevices(fs), fsError: func(uint32, time.Duration, bool) {}, fsWatched: func([]string) {},
	}
	table, err := fs.MountTable()
	if err != nil {
		t.Fatal(err)
	}
	env.devices.SetMounts(table)
	return env
}

func testDiskIO(t testing.TB) *diskIO {
	d := newDiskIO(diskEnvironment(t), nil)
	d.storm = &fakeStorms{}
	return d
}

func setChain(c *bpf.Chain, names ...string) {
	c.Depth = uint32(len(names))
	for i, n := range names {
		c.ID[i] = uint64(100 + i)
		copy(c.Name[i][:], n)
	}
}

// partitionError returns a medium error in the middle of sda2.
func partitionError() *bpf.DiskIO {
	r := &bpf.DiskIO{
		H:      bpf.Header{Version: bpf.WireVersion, Kind: bpf.KindDiskIO},
		Sector: 5000, Start: 2048, Dev: 8<<20 | 2, Disk: 8 << 20, Bytes: 4096, Error: 7,
		Op: bpf.DiskOpRead, Flags: bpf.DiskIOStatus | bpf.DiskIOIssuer,
	}
	copy(r.DiskName[:], "sda")
	setChain(&r.Issuer, "postgresql.service", "system.slice")
	return r
}

// pathError returns an error of a path of nvme0n1, with the number that the kernel gives it.
func pathError(number uint32) *bpf.DiskIO {
	r := partitionError()
	r.Dev, r.Disk, r.Start = number, number, 0
	copy(r.DiskName[:], "nvme0c1n1")
	return r
}

func TestDecodeDiskIO(t *testing.T) {
	tests := []struct {
		name   string
		record func(*bpf.DiskIO)
		want   event.DiskIOData
		device event.Device
		unit   string
	}{
		{
			name:   "partition",
			record: func(*bpf.DiskIO) {},
			want:   event.DiskIOData{Op: "read", Sector: 2952, Bytes: 4096, Error: "ENODATA", Status: "MEDIUM"},
			device: event.Device{Major: 8, Minor: 2, Name: "sda2", Parent: "sda", Mounts: []event.Mount{{Path: "/", FSType: "ext4"}}},
			unit:   "postgresql.service",
		},
		{
			name: "errno of 5.10, write-back that nobody accounted",
			record: func(r *bpf.DiskIO) {
				r.Op, r.Flags, r.Error = bpf.DiskOpWrite, bpf.DiskIOReadAhead|bpf.DiskIOBio, 28
				r.Issuer.Depth = 0
			},
			want:   event.DiskIOData{Op: "write", Sector: 2952, Bytes: 4096, Error: "ENOSPC", Status: "NOSPC", ReadAhead: true, Bio: true},
			device: event.Device{Major: 8, Minor: 2, Name: "sda2", Parent: "sda", Mounts: []event.Mount{{Path: "/", FSType: "ext4"}}},
		},
		{
			name: "flush of a disk that is gone",
			record: func(r *bpf.DiskIO) {
				r.Op, r.Flags, r.Bytes = bpf.DiskOpWrite, bpf.DiskIOStatus|bpf.DiskIOPreflush, 0
				r.Dev, r.Disk, r.Start = 65<<20|16, 65<<20|16, 0
				copy(r.DiskName[:], "sd\x1b")
			},
			want:   event.DiskIOData{Op: "flush", Sector: 5000, Error: "ENODATA", Status: "MEDIUM"},
			device: event.Device{Major: 65, Minor: 16, Name: `sd\x1b`},
			unit:   "postgresql.service",
		},
		{
			name: "partition of a disk that is gone",
			record: func(r *bpf.DiskIO) {
				r.Dev, r.Disk = 65<<20|17, 65<<20|16
				copy(r.DiskName[:], "sdx")
			},
			want:   event.DiskIOData{Op: "read", Sector: 2952, Bytes: 4096, Error: "ENODATA", Status: "MEDIUM"},
			device: event.Device{Major: 65, Minor: 17, Name: "65:17", Parent: "sdx"},
			unit:   "postgresql.service",
		},
		{
			name:   "path of a multipath NVMe disk",
			record: func(r *bpf.DiskIO) { *r = *pathError(0) },
			want:   event.DiskIOData{Op: "read", Sector: 5000, Bytes: 4096, Error: "ENODATA", Status: "MEDIUM"},
			device: event.Device{Major: 259, Minor: 7, Name: "nvme0n1", Mounts: []event.Mount{{Path: "/data", FSType: "xfs"}}},
			unit:   "postgresql.service",
		},
		{
			name:   "path with a number of its own",
			record: func(r *bpf.DiskIO) { *r = *pathError(259<<20 | 2) },
			want:   event.DiskIOData{Op: "read", Sector: 5000, Bytes: 4096, Error: "ENODATA", Status: "MEDIUM"},
			device: event.Device{Major: 259, Minor: 7, Name: "nvme0n1", Mounts: []event.Mount{{Path: "/data", FSType: "xfs"}}},
			unit:   "postgresql.service",
		},
		{
			name: "path of a disk that is gone",
			record: func(r *bpf.DiskIO) {
				r.Dev, r.Disk, r.Start, r.Op = 0, 0, 0, 77
				copy(r.DiskName[:], "nvme3c0n2")
			},
			want:   event.DiskIOData{Op: "other", Sector: 5000, Bytes: 4096, Error: "ENODATA", Status: "MEDIUM"},
			device: event.Device{Name: "nvme3n2"},
			unit:   "postgresql.service",
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			d := testDiskIO(t)
			r := partitionError()
			tt.record(r)
			var ev event.Event
			if ok, err := d.decode(&r.H, rawOf(r), &ev); !ok || err != nil {
				t.Fatal(ok, err)
			}
			if ev.Kind != event.DiskIO || *ev.DiskIO != tt.want {
				t.Errorf("%s %+v, want %+v", ev.Kind, *ev.DiskIO, tt.want)
			}
			got := *ev.Device
			mounts := got.Mounts
			want := tt.device.Mounts
			got.Mounts, tt.device.Mounts = nil, nil
			if !slices.Equal(mounts, want) || got.Name != tt.device.Name || got.Parent != tt.device.Parent ||
				got.Major != tt.device.Major || got.Minor != tt.device.Minor {
				t.Errorf("device %+v at %v, want %+v at %v", got, mounts, tt.device, want)
			}
			if ev.Unit != tt.unit || ev.Task != nil || (ev.Cgroup == nil) != (tt.unit == "") {
				t.Errorf("unit %q, cgroup %v, task %v", ev.Unit, ev.Cgroup, ev.Task)
			}
		})
	}
}

// Within the second for which a device is cached, its number may be reused by another disk; the
// record has the right name. If the failed disk is gone and its number is reused, only the record
// identifies it.
func TestDecodeDiskIOOfReusedNumber(t *testing.T) {
	d := testDiskIO(t)
	decode := func(name string) event.Device {
		t.Helper()
		r := partitionError()
		r.Dev, r.Start = r.Disk, 0
		r.DiskName = [32]byte{}
		copy(r.DiskName[:], name)
		var ev event.Event
		if ok, err := d.decode(&r.H, rawOf(r), &ev); !ok || err != nil {
			t.Fatal(ok, err)
		}
		return *ev.Device
	}
	if got := decode("sda"); got.Name != "sda" {
		t.Fatalf("%+v", got)
	}
	link := d.env.fs.Path("/sys/dev/block/8:0")
	if err := errors.Join(os.Remove(link), os.Symlink("../../devices/virtual/block/dm-0", link)); err != nil {
		t.Fatal(err)
	}
	if got := decode("sda"); got.Name != "sda" {
		t.Errorf("remembered within the second: %+v", got)
	}
	if got := decode("dm-0"); got.Name != "dm-0" {
		t.Errorf("the number's new owner: %+v", got)
	}
	if got := decode("sda"); got.Name != "sda" || len(got.Mounts) != 0 || got.Major != 8 {
		t.Errorf("its former owner: %+v", got)
	}
	if got := decode("c!d0"); got.Name != "c/d0" {
		t.Errorf("a slash: %+v", got)
	}
}

func TestDecodeDiskIOAllocatesNothing(t *testing.T) {
	d := testDiskIO(t)
	path := pathError(0)
	for _, r := range []*bpf.DiskIO{partitionError(), path, pathError(259<<20 | 2), volumeError(253<<20, time.Minute)} {
		var ev event.Event
		decode := func() {
			ev = event.Event{}
			if _, err := d.decode(&r.H, rawOf(r), &ev); err != nil {
				t.Fatal(err)
			}
		}
		decode()
		if n := testing.AllocsPerRun(100, decode); n != 0 {
			t.Errorf("%s: %v allocations an event", bpf.CString(r.DiskName[:]), n)
		}
	}
}

func BenchmarkDecodeDiskIO(b *testing.B) {
	d := testDiskIO(b)
	r := partitionError()
	var ev event.Event
	b.ReportAllocs()
	for b.Loop() {
		if _, err := d.decode(&r.H, rawOf(r), &ev); err != nil {
			b.Fatal(err)
		}
	}
}

func FuzzDecodeDiskIO(f *testing.F) {
	f.Add(rawOf(partitionError()))
	f.Add([]byte{})
	d := testDiskIO(f)
	f.Fuzz(func(t *testing.T, raw []byte) {
		var ev event.Event
		r := alignedCopy(raw)
		ok, err := d.decode(&bpf.Header{}, r, &ev)
		if err != nil {
			if !errors.Is(err, bpf.ErrMalformed) || ok {
				t.Fatal(ok, err)
			}
			return
		}
		checkShown(t, ev.Device.Name, ev.Device.Parent, ev.DiskIO.Op, ev.DiskIO.Error, ev.DiskIO.Status, ev.Unit)
	})
}

// alignedCopy returns raw aligned to 8 bytes, as in the ring.
func alignedCopy(raw []byte) []byte {
	words := make([]uint64, len(raw)/8+1)
	b := unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(words))), len(words)*8)
	return b[:copy(b, raw)]
}

// checkShown fails for text that is not safe for a terminal.
func checkShown(t *testing.T, texts ...string) {
	t.Helper()
	for _, s := range texts {
		if display.Safe(s, len(s)) != s {
			t.Errorf("unsafe text %q", s)
		}
	}
}

// hookLog records what a decoder attaches and detaches.
type hookLog struct {
	log []string
	err error
}

func (h *hookLog) Attach(hook string) error { h.log = append(h.log, "+"+hook); return h.err }
func (h *hookLog) Detach(hook string) error { h.log = append(h.log, "-"+hook); return nil }

func TestDiskIOAttachesBioHookForBioDevices(t *testing.T) {
	d := testDiskIO(t)
	hooks := &hookLog{}
	d.hooks, d.storm = hooks, &fakeStorms{}
	look := func() error {
		t.Helper()
		every, err := d.poll(context.Background(), time.Now(), nil)
		if every != bioEvery {
			t.Errorf("next look in %s", every)
		}
		return err
	}
	volume := d.env.fs.Path("/sys/block/dm-0")
	size := func(sectors string) error { return os.WriteFile(volume+"/size", []byte(sectors+"\n"), 0o644) }
	err := errors.Join(look(), os.MkdirAll(volume, 0o755), size("2048"), look(), size("0"), look(), size("2048"), look(), os.MkdirAll(volume+"/mq", 0o755), look(), os.RemoveAll(volume+"/mq"))
	if err != nil {
		t.Fatal(err)
	}
	hooks.err = errors.New("no such tracepoint")
	if err := look(); err == nil || !strings.Contains(err.Error(), "dm-0") {
		t.Errorf("error %v does not name the device", err)
	}
	if err := look(); err != nil {
		t.Errorf("reported again: %v", err)
	}
	if want := []string{"-bio", "+bio", "-bio", "+bio", "-bio", "+bio", "+bio"}; !slices.Equal(hooks.log, want) {
		t.Errorf("got %v, want %v", hooks.log, want)
	}
}

// fakeStorms returns errors that the BPF side has only counted.
type fakeStorms struct {
	errors   []bpf.DiskErrors
	reported []bpf.DiskErrors
	settled  []int // how many were reported at each Settled
	err      error
}

func (f *fakeStorms) Settled() { f.settled = append(f.settled, len(f.reported)) }

func (f *fakeStorms) UnrecordedDiskErrors(time.Duration) ([]bpf.DiskErrors, error) {
	return f.errors, f.err
}

func (f *fakeStorms) ReportedDiskErrors(e bpf.DiskErrors) error {
	f.reported = append(f.reported, e)
	return nil
}

// Errors that were only counted make one event per kind, with the facts of the kind's latest
// record, or else of the kind alone.
func TestDiskIOStormIsOneEvent(t *testing.T) {
	d := testDiskIO(t)
	seen := partitionError()
	if _, err := d.decode(&seen.H, rawOf(seen), &event.Event{}); err != nil {
		t.Fatal(err)
	}
	other := seen.Kind()
	other.Op, other.Issuer = bpf.DiskOpWrite, 4711
	storm := &fakeStorms{errors: []bpf.DiskErrors{{Kind: seen.Kind(), N: 900}, {Kind: other, N: 50}}}
	d.storm, d.hooks = storm, &hookLog{}
	var events []*event.Event
	if _, err := d.poll(t.Context(), time.Now(), func(ev *event.Event) { events = append(events, ev.Clone()) }); err != nil {
		t.Fatal(err)
	}
	if len(events) != 2 || len(storm.reported) != 2 {
		t.Fatalf("%d events, %d reported; want 2", len(events), len(storm.reported))
	}
	// A kill before the events are settled must not lose the counts.
	if !slices.Equal(storm.settled, []int{0}) {
		t.Errorf("reported when settled: %v, want once, before all", storm.settled)
	}
	if ev := events[0]; ev.Times != 900 || ev.Device.Name != "sda2" || ev.DiskIO.Sector != 5000-2048 || ev.BootTime == 0 {
		t.Errorf("%+v of %+v", ev, ev.Device)
	}
	if ev := events[1]; ev.Times != 50 || ev.Device.Name != "sda2" || ev.DiskIO.Op != "write" || ev.DiskIO.Error == "" {
		t.Errorf("%+v of %+v", ev, ev.DiskIO)
	}
}

// Counted errors of a volume come from the same lower device as the recorded ones, even if that
// device no longer has a recent record. If a count can't be read, the check for bio-based devices
// still runs.
func TestDiskIOStormOfAVolume(t *testing.T) {
	d := testDiskIO(t)
	below, volume := partitionError(), volumeError(253<<20, time.Minute)
	below.H.BootNS = volume.H.BootNS
	for _, r := range []*bpf.DiskIO{below, volume} {
		if _, err := d.decode(&r.H, rawOf(r), &event.Event{}); err != nil {
			t.Fatal(err)
		}
	}
	hooks := &hookLog{}
	d.storm, d.hooks = &fakeStorms{errors: []bpf.DiskErrors{{Kind: volume.Kind(), N: 7}}, err: errors.New("aborted")}, hooks
	var lower []string
	_, err := d.poll(t.Context(), time.Now(), func(ev *event.Event) { lower = append(lower, ev.DiskIO.Lower) })
	if err == nil || !slices.Equal(lower, []string{"sda2"}) || !slices.Equal(hooks.log, []string{"-bio"}) {
		t.Errorf("lower %q, hooks %q, %v", lower, hooks.log, err)
	}
}

// While the disk below is in a storm, its errors are only counted. Errors of a volume that then
// fails for the first time are still attributed to the disk.
func TestDiskIOOfAVolumeInAStormBelow(t *testing.T) {
	d := testDiskIO(t)
	below, volume := partitionError(), volumeError(253<<20, 63*time.Second)
	below.H.BootNS = uint64(60 * time.Second)
	d.storm = &fakeStorms{errors: []bpf.DiskErrors{{Kind: below.Kind(), N: 500}}}
	var ev event.Event
	for _, r := range []*bpf.DiskIO{below, volume} {
		if _, err := d.decode(&r.H, rawOf(r), &ev); err != nil {
			t.Fatal(err)
		}
	}
	if ev.DiskIO.Lower != "sda2" {
		t.Errorf("from %q, want sda2", ev.DiskIO.Lower)
	}
}

// An agent that starts during a storm has no records, and the counts come in any order.
func TestDiskIOStartsInAStorm(t *testing.T) {
	d := testDiskIO(t)
	below, volume := partitionError(), volumeError(253<<20, time.Minute)
	d.storm, d.hooks = &fakeStorms{errors: []bpf.DiskErrors{{Kind: volume.Kind(), N: 500}, {Kind: below.Kind(), N: 500}}}, &hookLog{}
	var lower []string
	if _, err := d.poll(t.Context(), time.Now(), func(ev *event.Event) { lower = append(lower, ev.DiskIO.Lower) }); err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(lower, []string{"sda2", ""}) {
		t.Errorf("from %q, want sda2 and nothing", lower)
	}
}
