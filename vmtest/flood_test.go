package vmtest

import (
	"bufio"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/kernosis/kernosis/collector/event"
	"github.com/kernosis/kernosis/detector/problem"
	"github.com/kernosis/kernosis/reporter/journal"
	"github.com/kernosis/kernosis/vmtest/agenttest"
)

// TestFlood provokes more faults at once than can be reported individually: each must be reported,
// individually or with others, or counted as lost.
func TestFlood(t *testing.T) {
	a := startAgent(t)
	for _, row := range []struct {
		name, disk string
		n          int
		paused     bool // the agent, while the requests fail
	}{
		{name: "block-errors-10000", disk: "flood", n: 10_000},
		{name: "block-errors-10000-agent-paused", disk: "paused", n: 10_000, paused: true},
		// Takes long enough to tell how many errors a second are counted.
		{name: "block-errors-300000", disk: "storm", n: 300_000},
	} {
		t.Run(row.name, func(t *testing.T) {
			d := floodDisk(t, row.disk)
			n := len(a.Entries())
			if row.paused {
				a.Signal(syscall.SIGSTOP)
			}
			took := d.flood(t, row.n)
			if row.paused {
				a.Signal(syscall.SIGCONT)
			}
			reported, lost := awaitSum(t, a, n, "diskio", uint64(row.n), d.isError)
			t.Logf("%d errors, %.0f a second: %d reported, %d lost", row.n, float64(row.n)/took.Seconds(), reported, lost)
			checkStorm(t, a, n, d, took)
		})
	}
	t.Run("hung-tasks-700-agent-paused", func(t *testing.T) { floodHungTasks(t, a) })
	t.Run("oom-kills-burst", func(t *testing.T) {
		// A kill of a whole cgroup kills all its processes at once: more than a reader can follow
		// and, with two groups, more than the ring holds.
		groups := []*crowd{newCrowd(t, "/kn-burst-0", 300), newCrowd(t, "/kn-burst-1", 400), newCrowd(t, "/kn-burst-2", 400)}
		n := len(a.Entries())
		start := time.Now()
		groups[0].kill(t)
		a.Signal(syscall.SIGSTOP)
		var wg sync.WaitGroup
		for _, g := range groups[1:] {
			wg.Go(func() { g.kill(t) })
		}
		wg.Wait()
		took := time.Since(start).Round(time.Millisecond)
		a.Signal(syscall.SIGCONT)
		var kills uint64
		for _, g := range groups {
			kills += g.kills(t)
		}
		reported, lost := awaitSum(t, a, n, "oomkill", kills, func(ev *event.Event) bool { return ev.Kind == event.OOMKill })
		t.Logf("%d kills in %s: %d reported, %d lost", kills, took, reported, lost)
		if reported < 300 || lost == 0 {
			t.Error("the first group's kills are not all reported, or the ring did not overflow")
		}
	})
}

// crowd is a cgroup of many waiting processes, which are all killed at once.
type crowd struct {
	controlGroup
	shell *exec.Cmd
	size  int // including its shell and the process that exceeds the limit
}

func newCrowd(t *testing.T, path string, n int) *crowd {
	t.Helper()
	c := &crowd{controlGroup: newControlGroup(t, path, "memory.max=160M", "memory.oom.group=1"), size: n + 2}
	const script = `i=0; while [ $i -lt "$1" ]; do read nothing <&3 & i=$((i+1)); done; echo there; read nothing <&3`
	c.shell = exec.Command("sh", "-c", script, "sh", strconv.Itoa(n))
	read, write, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer read.Close()
	t.Cleanup(func() { write.Close() })
	c.shell.ExtraFiles = []*os.File{read}
	out, err := c.shell.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	c.start(t, c.shell)
	if line, err := bufio.NewReader(out).ReadString('\n'); err != nil {
		t.Fatalf("%s did not gather: %v: %q", path, err, line)
	}
	return c
}

// kill makes the cgroup exceed its memory limit, and returns when its shell is dead.
func (c *crowd) kill(t *testing.T) {
	hog := exec.Command("dd", "if=/dev/zero", "of=/dev/null", "count=1", "bs=200M")
	c.start(t, hog)
	if err := hog.Wait(); err == nil {
		t.Errorf("%s: dd was not killed", c.path)
	}
	if err := c.shell.Wait(); err == nil {
		t.Errorf("%s: the shell was not killed", c.path)
	}
}

// kills returns the kernel's own count, in which the first victim counts twice: as the chosen one
// and as a member of the group.
func (c *crowd) kills(t *testing.T) uint64 {
	t.Helper()
	for line := range strings.Lines(attribute(filepath.Join(c.dir, "memory.events"))) {
		if n, ok := strings.CutPrefix(strings.TrimSpace(line), "oom_kill "); ok {
			count, err := strconv.ParseUint(n, 10, 64)
			if err != nil {
				t.Fatal(err)
			}
			if count != uint64(c.size)+1 {
				t.Errorf("%s: the kernel counts %d kills of %d processes", c.path, count, c.size)
			}
			return count - 1
		}
	}
	t.Fatalf("%s has no oom_kill in memory.events", c.path)
	return 0
}

// floodedDisk is a disk on which every request beyond a sector fails.
type floodedDisk struct {
	blockDevice
	first uint64
}

// floodSectors is the maximum size of one bad range: for larger ones, 5.10 creates a table that it
// can't search.
const floodSectors = 512

func floodDisk(t *testing.T, name string) floodedDisk {
	t.Helper()
	d := newNullDisk(t, name, 4)
	// Prevent merging: two merged requests would be one error.
	writeAttribute(t, "/sys/block/"+d.name+"/queue/nomerges", "2")
	const first = 1 << 20 / sectorSize
	d.spoil(t, first, floodSectors)
	return floodedDisk{blockDevice: d.blockDevice, first: first}
}

// flood sends n requests to the disk as fast as several threads can, and returns how long that took.
// All of them fail.
func (d floodedDisk) flood(t *testing.T, n int) time.Duration {
	t.Helper()
	start := time.Now()
	var made, failed atomic.Int64
	var wg sync.WaitGroup
	for range 4 * runtime.NumCPU() {
		r := d.open(unix.O_DIRECT)
		wg.Go(func() {
			for {
				i := made.Add(1)
				if i > int64(n) {
					return
				}
				sector := d.first + uint64(i)*blockSize/sectorSize%floodSectors
				if err := r.request("write", sector, blockSize); errors.Is(err, unix.EIO) {
					failed.Add(1)
				} else {
					t.Errorf("write at sector %d: %v", sector, err)
				}
			}
		})
	}
	wg.Wait()
	took := time.Since(start)
	if failed.Load() != int64(n) {
		t.Fatalf("%d of %d writes failed", failed.Load(), n)
	}
	return took
}

func (d floodedDisk) isError(ev *event.Event) bool {
	return ev.Kind == event.DiskIO && ev.Device.Name == d.name
}

// checkStorm fails the test unless the BPF program has recorded about 100 of the disk's errors in each
// minute, in the entries from the n-th on, and counted the others. Kernels since 6.1 skip a program
// that interrupts itself: those runs are lost, but none may be lost for lack of space.
func checkStorm(t *testing.T, a *agenttest.Agent, n int, d floodedDisk, took time.Duration) {
	t.Helper()
	events := 0
	for _, e := range a.Entries()[n:] {
		switch ev := e.Event; {
		case ev == nil:
		case d.isError(ev):
			events++
		case ev.Lost != nil && ev.Lost.Stem == "diskio" && ev.Lost.Reason != "recursion":
			t.Errorf("lost: %+v", *ev.Lost)
		}
	}
	// And one for the others each time that the agent reads the counts.
	if most := (100 + 10) * (1 + int(took/time.Minute)); events > most {
		t.Errorf("%d events, want at most %d", events, most)
	}
}

// awaitSum waits until the events for which is returns true and the losses of the stem, in the
// entries from the n-th on, add up to sum. It fails the test if they don't, or if they exceed it.
func awaitSum(t *testing.T, a *agenttest.Agent, n int, stem string, sum uint64, is func(*event.Event) bool) (reported, lost uint64) {
	t.Helper()
	count := func() {
		reported, lost = 0, 0
		for _, e := range a.Entries()[n:] {
			switch ev := e.Event; {
			case ev == nil:
			case is(ev):
				reported += ev.Occurrences()
			case ev.Lost != nil && ev.Lost.Stem == stem:
				lost += ev.Lost.Count
			}
		}
	}
	eventually(t, "as many reported and lost as provoked", 90*time.Second, func() bool {
		count()
		return reported+lost >= sum
	})
	checkLosses(t, a.Entries()[n:])
	if reported+lost != sum {
		t.Errorf("%d reported and %d lost of %d", reported, lost, sum)
	}
	return reported, lost
}

// checkLosses requires that each loss is reported as a problem.
func checkLosses(t *testing.T, entries []journal.Entry) {
	t.Helper()
	for _, ev := range agenttest.Events(entries, event.Lost) {
		t.Logf("lost: %+v", *ev.Lost)
		reported := problems(entries, "records-lost", func(p *problem.Problem) bool {
			return p.Group == ev.Lost.Stem+", "+ev.Lost.Reason
		})
		if len(reported) == 0 {
			t.Errorf("no problem reports %+v", *ev.Lost)
		}
	}
}
