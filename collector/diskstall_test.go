package collector

import (
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/kernosis/kernosis/collector/event"
	"github.com/kernosis/kernosis/collector/hostfs"
)

func TestDiskStallStep(t *testing.T) {
	const after = 10 * time.Second
	type sample struct {
		second   int
		inFlight uint32
		done     uint64
	}
	const stalled, resumed = event.DiskStalled, event.DiskResumed
	tests := []struct {
		name    string
		samples []sample
		want    map[int]event.Kind // by second
	}{
		{"idle", []sample{{0, 0, 5}, {60, 0, 5}}, nil},
		{"busy", []sample{{0, 9, 5}, {8, 9, 6}, {16, 9, 7}, {24, 9, 8}}, nil},
		{"idle for long, then one I/O", []sample{{0, 0, 5}, {60, 1, 5}, {68, 1, 5}, {70, 0, 6}}, nil},
		{"stalled, reported once", []sample{{0, 1, 5}, {8, 2, 5}, {10, 3, 5}, {12, 3, 5}, {90, 3, 5}}, map[int]event.Kind{10: stalled}},
		{"one a look is slow", []sample{{0, 4, 5}, {9, 4, 6}, {18, 4, 7}, {27, 4, 8}}, nil},
		{"looks far apart", []sample{{0, 1, 5}, {60, 1, 5}}, map[int]event.Kind{60: stalled}},
		{"completes again", []sample{{0, 1, 5}, {10, 1, 5}, {12, 1, 6}, {14, 1, 7}}, map[int]event.Kind{10: stalled, 12: resumed}},
		{"stalls anew", []sample{{0, 1, 5}, {10, 1, 5}, {12, 1, 6}, {20, 1, 6}, {22, 1, 6}, {24, 0, 7}},
			map[int]event.Kind{10: stalled, 12: resumed, 22: stalled, 24: resumed}},
		{"in flight no more, and nothing completed", []sample{{0, 1, 5}, {10, 1, 5}, {12, 0, 5}}, map[int]event.Kind{10: stalled, 12: resumed}},
		{"another device of that name", []sample{{0, 1, 5}, {10, 1, 5}, {12, 0, 0}}, map[int]event.Kind{10: stalled, 12: resumed}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			start := time.Now()
			var s diskState
			for _, at := range tt.samples {
				var got event.Kind
				s, got = s.step(diskSample{at.inFlight, at.done}, start.Add(time.Duration(at.second)*time.Second), after)
				if got != tt.want[at.second] {
					t.Errorf("at %d s: %q, want %q", at.second, got, tt.want[at.second])
				}
			}
		})
	}
}

func TestParseDiskStat(t *testing.T) {
	tests := []struct {
		stat string
		want diskSample
		ok   bool
	}{
		{"     465     1209    12488      146      596       37    18112      472        7     1596      910        1        0      300        0        2      291\n",
			diskSample{7, 465 + 12488 + 596 + 18112 + 1 + 300 + 2}, true},
		{"1 2 3 4 5 6 7 8 9 10 11\n", diskSample{9, 1 + 3 + 5 + 7}, true}, // before discards were counted
		{"1 2 3 4 5 6 7 8 99999999999 10 11", diskSample{1<<32 - 1, 1 + 3 + 5 + 7}, true},
		{"1 2 3 4 5 6 7 8 9 10\n", diskSample{}, false},
		{"1 2 3 4 5 6 7 8 -9 10 11\n", diskSample{}, false},
		{"", diskSample{}, false},
	}
	for _, tt := range tests {
		s, ok := hostfs.ParseDiskStat([]byte(tt.stat))
		got := diskSample{s.InFlight, s.Done()}
		if ok != tt.ok || ok && got != tt.want {
			t.Errorf("%q: %+v %v, want %+v %v", tt.stat, got, ok, tt.want, tt.ok)
		}
	}
}

// stallNode is a node whose block devices the test writes.
type stallNode struct {
	t      *testing.T
	fs     hostfs.FS
	source *diskStallSource
	at     time.Time
}

func newStallNode(t *testing.T) *stallNode {
	t.Helper()
	fs := hostfs.New(t.TempDir())
	env := &environment{log: slog.New(slog.DiscardHandler), fs: fs, clock: hostfs.NewClock(), devices: hostfs.NewDevices(fs)}
	n := &stallNode{t: t, fs: fs, source: newDiskStallSource(env), at: time.Now()}
	n.write("/sys/block/.keep/stat", n.stat(0, 0)) // a directory, and a device that never stalls
	return n
}

func (n *stallNode) write(path, content string) {
	n.t.Helper()
	path = n.fs.Path(path)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		n.t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
		n.t.Fatal(err)
	}
}

// disk creates a device (or partition) as sysfs shows it.
func (n *stallNode) disk(path string, minor int) {
	n.t.Helper()
	number := fmt.Sprintf("8:%d", minor)
	n.write("/sys/block/"+path+"/dev", number+"\n")
	n.write("/sys/class/block/"+filepath.Base(path)+"/dev", number+"\n")
	if strings.Contains(path, "/") {
		n.write("/sys/block/"+path+"/partition", "1\n")
	}
	n.write("/sys/dev/block/.keep", "")
	if err := os.Symlink("../../block/"+path, n.fs.Path("/sys/dev/block/"+number)); err != nil {
		n.t.Fatal(err)
	}
}

func (n *stallNode) stat(inFlight, done int) string {
	return fmt.Sprintf("%8d 0 0 0 0 0 0 0 %8d 0 0 0 0 0 0 0 0\n", done, inFlight)
}

func (n *stallNode) set(name string, inFlight, done int) {
	n.t.Helper()
	n.write("/sys/block/"+name+"/stat", n.stat(inFlight, done))
}

// look returns the events of a check that is made later by this time than the previous one.
func (n *stallNode) look(later time.Duration) []string {
	n.t.Helper()
	n.at = n.at.Add(later)
	var got []string
	n.source.look(n.at, func(ev *event.Event) { got = append(got, n.text(ev)) })
	return got
}

func (n *stallNode) text(ev *event.Event) string {
	n.t.Helper()
	switch {
	case ev.SourceUp != nil:
		return fmt.Sprintf("%s up %v", ev.SourceUp.Stem, ev.SourceUp.Up)
	case ev.Device != nil && ev.DiskStall != nil && ev.CPU == event.NoCPU && !ev.Time.IsZero():
		return fmt.Sprintf("%s %s %d %s", ev.Kind, ev.Subject(), ev.DiskStall.InFlight, ev.DiskStall.StalledFor)
	}
	n.t.Errorf("incomplete event %+v", ev)
	return ""
}

func (n *stallNode) expect(later time.Duration, want ...string) {
	n.t.Helper()
	if got := n.look(later); !slices.Equal(got, want) {
		n.t.Errorf("got %q, want %q", got, want)
	}
}

func TestDiskStallIsReportedWithItsMounts(t *testing.T) {
	n := newStallNode(t)
	n.disk("sda", 0)
	n.disk("sda/sda1", 1)
	n.disk("sda/sda2", 2)
	n.write("/sys/block/sda/queue/iostats", "1\n")
	n.write("/proc/1/mountinfo", "30 1 8:1 / /boot/efi rw - vfat /dev/sda1 rw\n31 1 8:2 / / rw - ext4 /dev/sda2 rw\n")
	table, err := n.fs.MountTable()
	if err != nil {
		t.Fatal(err)
	}
	n.source.env.devices.SetMounts(table)
	n.set("sda", 3, 100)
	n.set("nvme0c0n1", 2, 7) // a hidden path, without a number
	n.set("ram0", 1, 1)      // not checked
	n.expect(0, "diskstall up true")
	n.expect(9 * time.Second)
	n.set("sda", 5, 100)
	n.expect(time.Second, "diskstall nvme0c0n1 2 10s", "diskstall sda at / 5 10s")
	n.expect(time.Minute)
	n.set("sda", 5, 101)
	n.expect(2*time.Second, "diskstall.resumed sda at / 5 1m12s")
	// The other one is removed.
	if err := os.RemoveAll(n.fs.Path("/sys/block/nvme0c0n1")); err != nil {
		t.Fatal(err)
	}
	n.expect(2*time.Second, "diskstall.resumed nvme0c0n1 0 1m14s")
	n.expect(2 * time.Second)
	if len(n.source.disks) != 2 {
		t.Errorf("%d devices are remembered, want 2", len(n.source.disks))
	}
}

// A path of a multipath NVMe disk has the mounts of the disk, whose partitions may be all that is
// mounted. Paths resolve separately.
func TestDiskStallOfAnNVMePath(t *testing.T) {
	n := newStallNode(t)
	n.disk("nvme0n1", 0)
	n.disk("nvme0n1/nvme0n1p1", 1)
	n.write("/proc/1/mountinfo", "31 1 8:1 / /data rw - ext4 /dev/nvme0n1p1 rw\n")
	table, err := n.fs.MountTable()
	if err != nil {
		t.Fatal(err)
	}
	n.source.env.devices.SetMounts(table)
	n.set("nvme0n1", 0, 0) // keeps no counters
	n.set("nvme0c0n1", 2, 7)
	n.set("nvme0c1n1", 3, 7)
	n.expect(0, "diskstall up true")
	n.expect(10*time.Second, "diskstall nvme0c0n1 at /data 2 10s", "diskstall nvme0c1n1 at /data 3 10s")
	if parent := n.source.disks["nvme0c0n1"].device.Parent; parent != "nvme0n1" {
		t.Errorf("parent %q", parent)
	}
	n.set("nvme0c0n1", 0, 9)
	n.expect(2*time.Second, "diskstall.resumed nvme0c0n1 at /data 0 12s")
}

// A stall that lasts is reported again after the source was down.
func TestDiskStallSourceAway(t *testing.T) {
	n := newStallNode(t)
	away := n.fs.Path("/sys/block.away")
	move := func(from, to string) {
		t.Helper()
		if err := os.Rename(from, to); err != nil {
			t.Fatal(err)
		}
	}
	block := n.fs.Path("/sys/block")
	move(block, away)
	n.expect(0, "diskstall up false")
	n.expect(2 * time.Second)
	move(away, block)
	n.set("sda", 1, 1)
	n.set("sdb", 1, 1)
	n.expect(2*time.Second, "diskstall up true")
	n.expect(10*time.Second, "diskstall sda 1 10s", "diskstall sdb 1 10s")
	move(block, away)
	n.expect(2*time.Second, "diskstall up false")
	move(away, block)
	n.set("sdb", 0, 2)
	n.expect(2*time.Second, "diskstall up true", "diskstall sda 1 14s", "diskstall.resumed sdb 0 14s")
	n.expect(2 * time.Second)

	// A device whose file can't be read is not gone.
	n.write("/sys/block/sda/stat", "garbage")
	n.expect(2 * time.Second)
	n.set("sda", 0, 2)
	n.expect(2*time.Second, "diskstall.resumed sda 0 20s")
	n.write("/sys/block/sda/stat", "garbage")
	n.write("/sys/block/sdb/stat", "garbage")
	n.write("/sys/block/.keep/stat", "garbage")
	n.expect(2*time.Second, "diskstall up false")
}

// A request gets the stalls that last, once.
func TestDiskStallReportLasting(t *testing.T) {
	n := newStallNode(t)
	n.set("sda", 1, 1)
	n.set("sdb", 0, 1)
	n.expect(0, "diskstall up true")
	n.expect(10*time.Second, "diskstall sda 1 10s")
	var got []string
	n.source.asked.add(func(ev *event.Event) { got = append(got, n.text(ev)) })
	n.set("sda", 2, 1)
	n.expect(2 * time.Second)
	n.expect(2 * time.Second)
	if want := []string{"diskstall sda 2 12s"}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
	n.set("sda", 0, 2)
	n.expect(2*time.Second, "diskstall.resumed sda 0 16s")
	n.source.asked.add(func(ev *event.Event) { t.Errorf("%s lasts", n.text(ev)) })
	n.expect(2 * time.Second)
}

func TestDiskStallIsBounded(t *testing.T) {
	n := newStallNode(t)
	for i := range maxDisks + 10 {
		if err := os.Symlink(".keep", n.fs.Path(fmt.Sprintf("/sys/block/d%d", i))); err != nil {
			t.Fatal(err)
		}
	}
	n.look(0)
	if len(n.source.disks) != maxDisks || !n.source.bounded {
		t.Errorf("%d devices are looked at, want %d", len(n.source.disks), maxDisks)
	}
}

// BenchmarkDiskStallLook checks this machine's devices.
func BenchmarkDiskStallLook(b *testing.B) {
	fs := hostfs.New("/")
	env := &environment{log: slog.New(slog.DiscardHandler), fs: fs, clock: hostfs.NewClock(), devices: hostfs.NewDevices(fs)}
	d := newDiskStallSource(env)
	emit := func(*event.Event) {}
	b.ReportAllocs()
	for b.Loop() {
		d.look(time.Now(), emit)
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(max(len(d.disks), 1)), "ns/device")
}
