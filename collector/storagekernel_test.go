package collector

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/kernosis/kernosis/bpf"
	"github.com/kernosis/kernosis/cmd/kernosis/inject"
	"github.com/kernosis/kernosis/collector/event"
	"github.com/kernosis/kernosis/vmtest/testenv"
)

// storageAgent runs one stem and the mounts like the agent, on the real kernel, and stores the
// events of each device.
type storageAgent struct {
	t *testing.T

	env *environment

	mu     sync.Mutex
	events map[string][]*event.Event // by the device's kernel name
	more   chan struct{}
}

func newStorageAgent(t *testing.T, name string) *storageAgent {
	t.Helper()
	k := openKernel(t)
	env := newEnvironment(Config{HostRoot: "/"}, slog.New(slog.DiscardHandler))
	t.Cleanup(func() { env.close() })
	env.kernel = k
	a := &storageAgent{t: t, env: env, events: map[string][]*event.Event{}, more: make(chan struct{}, 1)}
	mounts := newMountSource(env)
	env.fsError, env.fsWatched = mounts.Notify, mounts.Watched

	s := &stem{name: name, env: env, log: env.log, source: "bpf/" + name}
	for _, b := range bpf.Stems() {
		if b.Name == name {
			s.loaded, s.err = bpf.Open(b, k, nil)
		}
	}
	t.Cleanup(func() { s.loaded.Close() })
	if s.err != nil {
		t.Fatal(s.err)
	}
	if s.decoder, s.err = newDecoder(env, s.loaded); s.err != nil {
		t.Fatal(s.err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	var g sync.WaitGroup
	for _, run := range []func(context.Context, Emit) error{mounts.Run, s.run} {
		g.Go(func() {
			if err := run(ctx, a.emit); err != nil {
				t.Error(err)
			}
		})
	}
	t.Cleanup(func() {
		cancel()
		g.Wait()
	})
	return a
}

func (a *storageAgent) emit(ev *event.Event) {
	if ev.Lost != nil {
		a.t.Errorf("lost: %+v", *ev.Lost)
	}
	if ev.Device == nil {
		return
	}
	a.mu.Lock()
	a.events[ev.Device.Name] = append(a.events[ev.Device.Name], ev.Clone())
	a.mu.Unlock()
	select {
	case a.more <- struct{}{}:
	default:
	}
}

// sees waits until the agent knows where a device is mounted: it is notified of mounts up to 200 ms
// late.
func (a *storageAgent) sees(path, dir string) {
	a.t.Helper()
	var st unix.Stat_t
	if err := unix.Stat(path, &st); err != nil {
		a.t.Fatal(err)
	}
	testenv.UntilShown(a.t, "the agent finds "+path+" at "+dir, 15*time.Second, func() (bool, string) {
		d := a.env.devices.Device(unix.Major(st.Rdev), unix.Minor(st.Rdev))
		return len(d.Mounts) > 0 && d.Mounts[0].Path == dir, fmt.Sprint(d.Mounts)
	})
}

// wait returns the device's events of a kind once there are n.
func (a *storageAgent) wait(device string, kind event.Kind, n int) []*event.Event {
	a.t.Helper()
	late := time.After(testenv.Within(15 * time.Second))
	for {
		if got := a.of(device, kind); len(got) >= n {
			return got
		}
		select {
		case <-a.more:
		case <-late:
			a.t.Fatalf("%d events %s of %s, want %d", len(a.of(device, kind)), kind, device, n)
		}
	}
}

func (a *storageAgent) of(device string, kind event.Kind) []*event.Event {
	a.mu.Lock()
	defer a.mu.Unlock()
	var got []*event.Event
	for _, ev := range a.events[device] {
		if ev.Kind == kind {
			got = append(got, ev)
		}
	}
	return got
}

// refused skips the test if this machine can't provoke the fault.
func refused(t *testing.T, err error) {
	t.Helper()
	if r, ok := errors.AsType[*inject.Refused](err); ok {
		t.Skip(r)
	}
	if err != nil {
		t.Fatal(err)
	}
}

func TestDiskErrorsOfTheKernel(t *testing.T) {
	for kind, want := range map[inject.DiskKind]event.DiskIOData{
		inject.DiskWrite: {Op: "write"},
		inject.DiskRead:  {Op: "read"},
	} {
		t.Run(string(kind), func(t *testing.T) {
			a := newStorageAgent(t, bpf.StemDiskIO)
			d := &inject.DiskError{Kind: kind, StateDir: t.TempDir(), Limit: time.Minute}
			refused(t, d.Start(t.Context()))
			defer func() {
				if err := d.Close(); err != nil {
					t.Error(err)
				}
			}()
			device, dir := d.Device()
			a.sees("/dev/"+device, dir)
			const faults = 23
			sectors := make([]uint64, faults)
			for i := range sectors {
				sector, ioErr, err := d.Fail()
				if ioErr == nil && kind == inject.DiskRead {
					t.Skip("a loop device over a truncated file reads zeros before 6.12")
				}
				if err != nil || ioErr == nil {
					t.Fatal(ioErr, err)
				}
				sectors[i] = sector
			}
			for i, ev := range a.wait(device, event.DiskIO, faults) {
				got := *ev.DiskIO
				if got.Op != want.Op || got.Sector != sectors[i] || got.Error == "" || got.Status == "" || got.ReadAhead || got.Bio {
					t.Errorf("event %d: %+v, want sector %d", i, got, sectors[i])
				}
				if m := ev.Device.Mounts; len(m) != 1 || m[0].Path != dir || m[0].FSType != "ext4" {
					t.Errorf("event %d: mounts %v, want %s", i, m, dir)
				}
				if i == 0 {
					t.Logf("%+v of %+v", got, *ev.Device)
				}
			}
			if n := len(a.of(device, event.DiskIO)); n != faults {
				t.Errorf("%d errors gave %d events", faults, n)
			}
		})
	}
}

func TestReadOnlyFilesystemOfTheKernel(t *testing.T) {
	for name, end := range map[string]func(*inject.ReadonlyFS) error{
		"unmounted": (*inject.ReadonlyFS).Close,
		"repaired": func(f *inject.ReadonlyFS) error {
			_, err := f.Heal(context.Background())
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			a := newStorageAgent(t, bpf.StemFSError)
			f := &inject.ReadonlyFS{StateDir: t.TempDir(), Limit: time.Minute}
			refused(t, f.Start(t.Context()))
			defer f.Close()
			path, dir := f.Mount()
			device := filepath.Base(path)

			fault := a.wait(device, event.FSError, 1)[0]
			if *fault.FSError != (event.FSErrorData{FSType: "ext4", Function: "trigger_test_error", Line: fault.FSError.Line}) ||
				fault.FSError.Line == 0 || int(fault.Task.TGID) != os.Getpid() {
				t.Errorf("%+v by %+v", *fault.FSError, *fault.Task)
			}
			ro := a.wait(device, event.MountReadOnly, 1)[0]
			t.Logf("%s %s after the error", ro.Mount.Reason, ro.Time.Sub(fault.Time))
			if ro.Mount.Path != dir || ro.Mount.FSType != "ext4" || !strings.Contains("superblock-ro emergency-ro error-policy", ro.Mount.Reason) {
				t.Errorf("%+v, want %s", *ro.Mount, dir)
			}
			if ro.Time.Sub(fault.Time) > testenv.Within(2*time.Second) {
				t.Errorf("reported %s late", ro.Time.Sub(fault.Time))
			}
			if err := end(f); err != nil {
				t.Fatal(err)
			}
			over := a.wait(device, event.MountWritable, 1)[0]
			t.Logf("%s", over.Mount.Reason)
			if over.Device.Name != device || over.Mount.Path != dir {
				t.Errorf("%+v of %+v", *over.Mount, *over.Device)
			}
			if n := len(a.of(device, event.MountReadOnly)); n != 1 {
				t.Errorf("read-only was reported %d times", n)
			}
			if name == "unmounted" && over.Mount.Reason != reasonUnmounted {
				t.Errorf("reason %s", over.Mount.Reason)
			}
		})
	}
}
