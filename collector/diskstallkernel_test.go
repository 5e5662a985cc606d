package collector

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/kernosis/kernosis/collector/event"
	"github.com/kernosis/kernosis/collector/hostfs"
)

// frozenDisk is a loop device over a file on a filesystem that can be frozen:
// what is written to the device is then in flight until the thaw.
type frozenDisk struct {
	t      *testing.T
	dir    string // where the filesystem is mounted
	name   string // loop7
	path   string
	buf    []byte // aligned, as O_DIRECT wants
	direct *os.File
}

// From include/uapi/linux/fs.h, generic ioctl encoding.
const (
	fiFreeze = 0xc0045877
	fiThaw   = 0xc0045878
)

func newFrozenDisk(t *testing.T) *frozenDisk {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root to mount, and to freeze a filesystem")
	}
	for _, tool := range []string{"mkfs.ext4", "fsfreeze", "sh", "umount"} {
		if _, err := exec.LookPath(tool); err != nil {
			t.Skipf("%s is missing", tool)
		}
	}
	if _, err := os.Stat("/dev/loop-control"); err != nil {
		t.Skipf("no loop devices here: %v", err)
	}
	d := &frozenDisk{t: t, dir: t.TempDir()}
	// In memory, so that this machine's disks have no part in it.
	fd, err := unix.MemfdCreate("kernosis-diskstall", unix.MFD_CLOEXEC)
	d.must(err)
	lower := os.NewFile(uintptr(fd), "/proc/"+strconv.Itoa(os.Getpid())+"/fd/"+strconv.Itoa(fd))
	defer lower.Close()
	d.must(lower.Truncate(32 << 20))
	if out, err := exec.Command("mkfs.ext4", "-q", "-F", lower.Name()).CombinedOutput(); err != nil {
		t.Fatalf("mkfs.ext4: %v: %s", err, out)
	}
	device, keep := d.loop(lower)
	d.guard()
	d.must(unix.Mount(device, d.dir, "ext4", unix.MS_NODEV|unix.MS_NOSUID|unix.MS_NOEXEC, ""))
	keep.Close() // the mount keeps it from here
	t.Cleanup(d.unmount)
	upper, err := os.Create(filepath.Join(d.dir, "image"))
	d.must(err)
	defer upper.Close()
	d.must(unix.Fallocate(int(upper.Fd()), 0, 0, 8<<20))
	d.must(upper.Sync())
	d.path, keep = d.loop(upper)
	d.name = filepath.Base(d.path)
	d.direct, err = os.OpenFile(d.path, os.O_RDWR|unix.O_DIRECT, 0)
	keep.Close()
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

// loop makes a device over a file; the kernel detaches it at its last close.
func (d *frozenDisk) loop(image *os.File) (path string, keep *os.File) {
	d.t.Helper()
	control, err := os.OpenFile("/dev/loop-control", os.O_RDWR, 0)
	d.must(err)
	defer control.Close()
	config := unix.LoopConfig{Fd: uint32(image.Fd())}
	config.Info.Flags = unix.LO_FLAGS_AUTOCLEAR
	for range 10 { // another process may take the free one first
		n, err := unix.IoctlRetInt(int(control.Fd()), unix.LOOP_CTL_GET_FREE)
		d.must(err)
		path = "/dev/loop" + strconv.Itoa(n)
		keep, err = os.OpenFile(path, os.O_RDWR, 0)
		d.must(err)
		err = unix.IoctlLoopConfigure(int(keep.Fd()), &config)
		if err == nil {
			return path, keep
		}
		keep.Close()
		if !errors.Is(err, unix.EBUSY) {
			d.t.Fatal(err)
		}
	}
	d.t.Fatal("every free loop device was taken by others")
	return "", nil
}

// unmount waits for the upper device, which the kernel detaches on its own.
func (d *frozenDisk) unmount() {
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for late := time.Now().Add(5 * time.Second); ; <-tick.C {
		err := unix.Unmount(d.dir, 0)
		if err == nil {
			return
		}
		if !errors.Is(err, unix.EBUSY) || time.Now().After(late) {
			d.t.Error(err, unix.Unmount(d.dir, unix.MNT_DETACH))
			return
		}
	}
}

// guard thaws and unmounts if this process dies: it sees its pipe end then.
// That works because no thread of this process waits for the device (it would
// survive a kill and keep the pipe): writer is a process of its own.
func (d *frozenDisk) guard() {
	d.t.Helper()
	guard := exec.Command("sh", "-c", `read _; fsfreeze -u "$1"; umount -l "$1"`, "sh", d.dir)
	pipe, err := guard.StdinPipe()
	d.must(err)
	d.must(guard.Start())
	d.t.Cleanup(func() { // last: all is thawed and unmounted
		d.must(guard.Process.Kill())
		guard.Wait()
		pipe.Close()
	})
}

func (d *frozenDisk) ioctl(op uint) error {
	dir, err := os.Open(d.dir)
	if err != nil {
		return err
	}
	defer dir.Close()
	return unix.IoctlSetInt(int(dir.Fd()), op, 0)
}

// freeze holds up the device's writes until thaw, and at the latest until the
// test's end.
func (d *frozenDisk) freeze() (thaw func()) {
	d.t.Helper()
	thaw = sync.OnceFunc(func() { d.must(d.ioctl(fiThaw)) })
	d.must(d.ioctl(fiFreeze))
	d.t.Cleanup(thaw)
	return thaw
}

// write begins a direct write to the device in another process; ended is closed
// at its end.
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

// stallEvents keeps what is told of one device.
type stallEvents chan *event.Event

func (s stallEvents) next(t *testing.T) *event.Event {
	t.Helper()
	select {
	case ev := <-s:
		return ev
	case <-time.After(15 * time.Second):
		t.Fatal("no event within 15 s")
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
	// Short, but not so short that a loaded machine's own pauses are stalls.
	source.every, source.after = 50*time.Millisecond, time.Second
	told, up := make(stallEvents, 64), make(chan bool, 8)
	ctx, cancel := context.WithCancel(context.Background())
	var g sync.WaitGroup
	g.Go(func() {
		if err := source.Run(ctx, func(ev *event.Event) {
			switch {
			case ev.SourceUp != nil:
				up <- ev.SourceUp.Up
			case ev.Device.Name == d.name:
				told <- ev.Clone()
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

	// Busy and healthy: hardly a look finds it without I/O in flight.
	writes := 0
	for end := time.Now().Add(2 * source.after); time.Now().Before(end); writes++ {
		if _, err := d.direct.WriteAt(d.buf, int64(writes%1024)*4096); err != nil {
			t.Fatal(err)
		}
	}
	t.Logf("%d writes", writes)
	if len(told) > 0 {
		t.Errorf("a busy device: %+v", *(<-told).DiskStall)
	}

	for range 2 {
		thaw := d.freeze()
		began := time.Now()
		ended := d.write()
		t.Cleanup(func() { // before all other clean-up, or the writer stays
			thaw()
			<-ended
		})

		stalled := told.next(t)
		lag := stalled.Time.Sub(began)
		t.Logf("told %s after the write began: %+v", lag, *stalled.DiskStall)
		if stalled.Kind != event.DiskStalled || stalled.DiskStall.InFlight == 0 || time.Duration(stalled.DiskStall.StalledFor) < source.after {
			t.Errorf("%s %+v", stalled.Kind, *stalled.DiskStall)
		}
		// A write is seen by the next look, and told by the first after the
		// threshold; the rest is for starting dd on a loaded machine.
		if most := source.after + 2*source.every + 3*time.Second; lag < source.after || lag > most {
			t.Errorf("told after %s, want %s to %s", lag, source.after, most)
		}
		select {
		case <-ended:
			t.Error("the write was not held up")
		default:
		}

		thaw()
		<-ended
		resumed := told.next(t)
		if resumed.Kind != event.DiskResumed || resumed.Device.Minor != stalled.Device.Minor || resumed.DiskStall.StalledFor < stalled.DiskStall.StalledFor {
			t.Errorf("%s %+v of %+v", resumed.Kind, *resumed.DiskStall, *resumed.Device)
		}
		if len(told) > 0 {
			t.Errorf("and %s", (<-told).Kind)
		}
	}
}
