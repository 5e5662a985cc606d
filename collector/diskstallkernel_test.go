package collector

import (
	"context"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/kernosis/kernosis/collector/event"
	"github.com/kernosis/kernosis/collector/hostfs"
	"github.com/kernosis/kernosis/vmtest/disklab"
	"github.com/kernosis/kernosis/vmtest/testenv"
)

// frozenDisk is a loop device over a file on a filesystem that can be frozen: writes to the device
// then stay in flight until the thaw.
type frozenDisk struct {
	*disklab.Disk // the filesystem
	t             *testing.T
	name          string // loop7
	path          string
	buf           []byte // aligned as O_DIRECT requires
	direct        *os.File
}

func newFrozenDisk(t *testing.T) *frozenDisk {
	t.Helper()
	d := &frozenDisk{t: t, Disk: disklab.NewExt4(t, 32<<20)}
	d.path = d.Upper()
	d.name = filepath.Base(d.path)
	var err error
	d.direct, err = os.OpenFile(d.path, os.O_RDWR|unix.O_DIRECT, 0)
	d.must(err)
	t.Cleanup(func() { d.direct.Close() })
	d.buf, err = unix.Mmap(-1, 0, 4096, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS)
	d.must(err)
	t.Cleanup(func() { d.must(unix.Munmap(d.buf)) })
	return d
}

func (d *frozenDisk) must(err error) {
	d.t.Helper()
	if err != nil {
		d.t.Fatal(err)
	}
}

// write starts a direct write to the device in another process; ended is closed when it ends.
func (d *frozenDisk) write() (ended chan struct{}) {
	d.t.Helper()
	dd := exec.Command("dd", "if=/dev/zero", "of="+d.path, "bs=4096", "count=1", "oflag=direct", "conv=notrunc", "status=none")
	dd.Stderr = os.Stderr
	d.must(dd.Start())
	ended = make(chan struct{})
	go func() {
		defer close(ended)
		if err := dd.Wait(); err != nil {
			d.t.Error(err)
		}
	}()
	return ended
}

// stallEvents receives the events of one device.
type stallEvents chan *event.Event

func (s stallEvents) next(t *testing.T) *event.Event {
	t.Helper()
	select {
	case ev := <-s:
		return ev
	case <-time.After(testenv.Within(15 * time.Second)):
		t.Fatal("no event in time")
		return nil
	}
}

func TestDiskStallOfTheKernel(t *testing.T) {
	d := newFrozenDisk(t)
	if _, err := exec.LookPath("dd"); err != nil {
		t.Skip("dd is missing")
	}
	root := hostfs.New("/")
	env := &environment{log: slog.New(slog.DiscardHandler), fs: root, clock: hostfs.NewClock(), devices: hostfs.NewDevices(root)}
	source := newDiskStallSource(env)
	// Short, but not so short that pauses of a loaded machine count as stalls.
	source.every, source.after = 50*time.Millisecond, time.Second
	reported, up := make(stallEvents, 64), make(chan bool, 8)
	ctx, cancel := context.WithCancel(context.Background())
	var g sync.WaitGroup
	g.Go(func() {
		if err := source.Run(ctx, func(ev *event.Event) {
			switch {
			case ev.SourceUp != nil:
				up <- ev.SourceUp.Up
			case ev.Device.Name == d.name:
				reported <- ev.Clone()
			}
		}); err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(func() {
		cancel()
		g.Wait()
	})
	if !<-up {
		t.Fatal("the source can't see")
	}

	// Busy and healthy: nearly every check finds I/O in flight.
	writes := 0
	for end := time.Now().Add(2 * source.after); time.Now().Before(end); writes++ {
		if _, err := d.direct.WriteAt(d.buf, int64(writes%1024)*4096); err != nil {
			t.Fatal(err)
		}
	}
	t.Logf("%d writes", writes)
	if len(reported) > 0 {
		t.Errorf("a busy device: %+v", *(<-reported).DiskStall)
	}

	for range 2 {
		thaw := d.Freeze()
		began := time.Now()
		ended := d.write()
		t.Cleanup(func() { // before all other cleanup, or the writer stays
			thaw()
			<-ended
		})

		stalled := reported.next(t)
		lag := stalled.Time.Sub(began)
		t.Logf("reported %s after the write began: %+v", lag, *stalled.DiskStall)
		if stalled.Kind != event.DiskStalled || stalled.DiskStall.InFlight == 0 || time.Duration(stalled.DiskStall.StalledFor) < source.after {
			t.Errorf("%s %+v", stalled.Kind, *stalled.DiskStall)
		}
		// The next check finds the write, and the first check after the threshold reports it; the
		// rest is for starting dd on a loaded machine.
		if most := source.after + 2*source.every + testenv.Within(3*time.Second); lag < source.after || lag > most {
			t.Errorf("reported after %s, want %s to %s", lag, source.after, most)
		}
		select {
		case <-ended:
			t.Error("the write was not held up")
		default:
		}

		thaw()
		<-ended
		resumed := reported.next(t)
		if resumed.Kind != event.DiskResumed || resumed.Device.Minor != stalled.Device.Minor || resumed.DiskStall.StalledFor < stalled.DiskStall.StalledFor {
			t.Errorf("%s %+v of %+v", resumed.Kind, *resumed.DiskStall, *resumed.Device)
		}
		if len(reported) > 0 {
			t.Errorf("and %s", (<-reported).Kind)
		}
	}
}
