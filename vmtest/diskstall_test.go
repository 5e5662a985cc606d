package vmtest

import (
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/kernosis/kernosis/collector/event"
	"github.com/kernosis/kernosis/detector/problem"
	"github.com/kernosis/kernosis/reporter/journal"
	"github.com/kernosis/kernosis/vmtest/agenttest"
)

// TestDiskStall makes disks complete no requests. Each row has 23 disks, and all wait for the same
// ten seconds in parallel.
func TestDiskStall(t *testing.T) {
	a := startAgent(t, "--rules-dir", quickRules(t, "diskio", "for", "1s"))
	t.Cleanup(func() {
		noLoss(t, a.Entries())
		a.WaitIn(t, "disks that respond", 30*time.Second, func(entries []journal.Entry) bool {
			return agenttest.Condition(entries, "DiskStalled").Status == problem.False
		})
	})
	rows := []struct {
		name  string
		stall func(*testing.T) *stalledDisks
	}{
		{"dm-suspended", suspendedBelow},
		{"fs-frozen", frozenBelow},
		{"scsi-slow", slowDisks},
	}
	for _, row := range rows {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			row.stall(t).run(t, a)
		})
	}
}

// stalledDisks are disks whose I/O does not complete until they are released.
type stalledDisks struct {
	disks   []blockDevice
	op      string
	release func()
	mount   string // mount point of the first one; empty if not mounted
}

func (s *stalledDisks) run(t *testing.T, a *agenttest.Agent) {
	t.Helper()
	var wg sync.WaitGroup
	for _, d := range s.disks {
		r := d.open(unix.O_DIRECT)
		wg.Go(func() {
			if err := r.request(s.op, 0, blockSize); err != nil {
				t.Errorf("%s of %s, once it is released: %v", s.op, d.name, err)
			}
		})
	}
	release := sync.OnceFunc(func() {
		s.release()
		wg.Wait()
	})
	defer release()

	for _, d := range s.disks {
		a.WaitIn(t, "stall of "+d.name, 60*time.Second, func(entries []journal.Entry) bool {
			return slices.Contains(s.states(entries, d), problem.Firing) && agenttest.Condition(entries, "DiskStalled").Status == problem.True
		})
	}
	release()
	var entries []journal.Entry
	for _, d := range s.disks {
		entries = a.WaitIn(t, "end of the stall of "+d.name, 60*time.Second, func(entries []journal.Entry) bool {
			return slices.Contains(s.states(entries, d), problem.Resolved)
		})
	}
	for i, d := range s.disks {
		s.check(t, entries, i, d)
	}
}

func (s *stalledDisks) states(entries []journal.Entry, d blockDevice) []problem.State {
	return agenttest.States(entries, "disk-stalled", func(p *problem.Problem) bool { return p.Group == d.name })
}

// check requires that a stall is reported once, with the requests in flight, and its end once.
func (s *stalledDisks) check(t *testing.T, entries []journal.Entry, i int, d blockDevice) {
	t.Helper()
	var reported []event.Kind
	for _, ev := range append(agenttest.Events(entries, event.DiskStalled), agenttest.Events(entries, event.DiskResumed)...) {
		if ev.Device.Name != d.name {
			continue
		}
		reported = append(reported, ev.Kind)
		stalled := time.Duration(ev.DiskStall.StalledFor)
		if ev.Kind == event.DiskStalled && (ev.DiskStall.InFlight == 0 || stalled < 10*time.Second || stalled > time.Minute) {
			t.Errorf("%s: %+v", d.name, *ev.DiskStall)
		}
		at := ""
		if len(ev.Device.Mounts) > 0 {
			at = ev.Device.Mounts[0].Path
		}
		if i == 0 && at != s.mount || i > 0 && at != "" {
			t.Errorf("%s: at %q", d.name, at)
		}
	}
	if want := []event.Kind{event.DiskStalled, event.DiskResumed}; !slices.Equal(reported, want) {
		t.Errorf("%s: reported %v, want %v", d.name, reported, want)
	}
	if got, want := s.states(entries, d), []problem.State{problem.Firing, problem.Resolved}; !slices.Equal(got, want) {
		t.Errorf("%s: problem %v, want %v", d.name, got, want)
	}
}

// suspendedBelow returns loop devices over one suspended volume. (The volume's own I/O is not in
// flight: the device mapper holds it back before it is counted.)
func suspendedBelow(t *testing.T) *stalledDisks {
	t.Helper()
	const size = 4 << 20
	volume := mapLinear(t, "suspended", loopOver(t, sparseFile(t, faults*size), 0, 0), 1, faults*size)
	s := &stalledDisks{op: "read", release: volume.resume}
	for i := range int64(faults) {
		s.disks = append(s.disks, loopOver(t, volume.devices[0].path(), i*size, size))
	}
	makeFS(t, "ext4", s.disks[0].path())
	s.mount = mountFS(t, "ext4", s.disks[0].path(), "").dir
	// Drop the cache, so that what mkfs wrote must be read from the volume again.
	if err := unix.IoctlSetInt(int(volume.devices[0].open(0).f.Fd()), unix.BLKFLSBUF, 0); err != nil {
		t.Fatal(err)
	}
	volume.suspend()
	return s
}

// frozenBelow returns loop devices over files of a frozen filesystem.
func frozenBelow(t *testing.T) *stalledDisks {
	t.Helper()
	lower := loopOver(t, sparseFile(t, 8<<20), 0, 0)
	makeFS(t, "ext4", lower.path())
	fs := mountFS(t, "ext4", lower.path(), "")
	s := &stalledDisks{op: "write", release: func() { command(t, "fsfreeze", "-u", fs.dir) }}
	for i := range faults {
		s.disks = append(s.disks, loopOver(t, newFile(t, filepath.Join(fs.dir, strconv.Itoa(i)), 1<<20), 0, 0))
	}
	command(t, "fsfreeze", "-f", fs.dir)
	return s
}

// slowDisks returns disks that take 20 s per request, less than the kernel's timeout (30 s).
func slowDisks(t *testing.T) *stalledDisks {
	t.Helper()
	const delay = "/sys/bus/pseudo/drivers/scsi_debug/delay"
	s := &stalledDisks{op: "write", release: func() {}}
	for i := range faults {
		s.disks = append(s.disks, fakeDisk(t, i))
	}
	before := attribute(delay)
	writeAttribute(t, delay, strconv.Itoa(20*kernelHZ(t)))
	t.Cleanup(func() { writeAttribute(t, delay, before) })
	return s
}

// kernelHZ returns the number of jiffies per second.
func kernelHZ(t *testing.T) int {
	t.Helper()
	config := attribute("/boot/config-" + attribute("/proc/sys/kernel/osrelease"))
	_, value, _ := strings.Cut(config, "\nCONFIG_HZ=")
	value, _, _ = strings.Cut(value, "\n")
	hz, err := strconv.Atoi(value)
	if err != nil {
		t.Fatalf("CONFIG_HZ: %v", err)
	}
	return hz
}
