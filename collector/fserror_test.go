package collector

import (
	"errors"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/kernosis/kernosis/bpf"
	"github.com/kernosis/kernosis/collector/event"
)

func testFSError(t testing.TB) *fsError { return newFSError(diskEnvironment(t), nil) }

func ext4Error() *bpf.FSError {
	r := &bpf.FSError{
		H:    bpf.Header{Version: bpf.WireVersion, Kind: bpf.KindFSError},
		Task: wireTask(42, 41, "postgres"), Dev: 8<<20 | 2, Line: 1234, What: bpf.FSErrorFound,
	}
	copy(r.FSType[:], "ext4")
	copy(r.ID[:], "sda2")
	copy(r.Function[:], "ext4_lookup")
	setChain(&r.Default, "postgresql.service", "system.slice")
	return r
}

func TestDecodeFSError(t *testing.T) {
	f := testFSError(t)
	var reported []uint32
	var ends []bool
	f.env.fsError = func(dev uint32, _ time.Duration, end bool) { reported, ends = append(reported, dev), append(ends, end) }
	decode := func(r *bpf.FSError) (ev event.Event) {
		t.Helper()
		if ok, err := f.decode(&r.H, rawOf(r), &ev); !ok || err != nil {
			t.Fatal(ok, err)
		}
		return ev
	}
	ev := decode(ext4Error())
	if ev.Kind != event.FSError || *ev.FSError != (event.FSErrorData{FSType: "ext4", Function: "ext4_lookup", Line: 1234}) {
		t.Errorf("%s %+v", ev.Kind, *ev.FSError)
	}
	if ev.Device.Name != "sda2" || len(ev.Device.Mounts) != 1 || ev.Device.Mounts[0].Path != "/" {
		t.Errorf("device %+v", *ev.Device)
	}
	if ev.Unit != "postgresql.service" || ev.Task.PID != 42 || ev.Task.TGID != 41 || ev.Task.Comm != "postgres" {
		t.Errorf("unit %q, task %+v", ev.Unit, *ev.Task)
	}

	r := ext4Error()
	r.Dev, r.What, r.Line, r.Function = 65<<20|1, bpf.FSErrorShutdown, 0, [64]byte{}
	copy(r.ID[:], "sd\x1b1")
	ev = decode(r)
	if *ev.FSError != (event.FSErrorData{FSType: "ext4", Function: "shutdown"}) || ev.Device.Name != `sd\x1b1` {
		t.Errorf("%+v on %+v", *ev.FSError, *ev.Device)
	}
	for _, fsType := range []string{"ext4", "ext3"} { // one driver
		r = ext4Error()
		r.FSType, r.Function = [16]byte{}, [64]byte{}
		copy(r.FSType[:], fsType)
		copy(r.Function[:], "ext4_journal_check_start")
		decode(r)
	}
	if want := []uint32{8<<20 | 2, 65<<20 | 1, 8<<20 | 2, 8<<20 | 2}; !slices.Equal(reported, want) {
		t.Errorf("reported %v, want %v", reported, want)
	}
	if want := []bool{false, true, true, true}; !slices.Equal(ends, want) {
		t.Errorf("ends writing: %v, want %v", ends, want)
	}
}

func TestDecodeFSErrorAllocatesNothing(t *testing.T) {
	f := testFSError(t)
	r := ext4Error()
	var ev event.Event
	decode := func() {
		ev = event.Event{}
		if _, err := f.decode(&r.H, rawOf(r), &ev); err != nil {
			t.Fatal(err)
		}
	}
	decode()
	if n := testing.AllocsPerRun(100, decode); n != 0 {
		t.Errorf("%v allocations an event", n)
	}
}

func TestFSErrorFunctionsAreBounded(t *testing.T) {
	f := testFSError(t)
	r := ext4Error()
	var ev event.Event
	for i := range 10 * maxFunctions {
		r.Function[12], r.Function[13] = byte('a'+i%26), byte('a'+i/26%26)
		r.Function[14] = byte('a' + i/676)
		if _, err := f.decode(&r.H, rawOf(r), &ev); err != nil {
			t.Fatal(err)
		}
	}
	if len(f.text) > maxFunctions {
		t.Errorf("%d names kept", len(f.text))
	}
}

func FuzzDecodeFSError(f *testing.F) {
	f.Add(rawOf(ext4Error()))
	f.Add([]byte{})
	d := testFSError(f)
	f.Fuzz(func(t *testing.T, raw []byte) {
		var ev event.Event
		ok, err := d.decode(&bpf.Header{}, alignedCopy(raw), &ev)
		if err != nil {
			if !errors.Is(err, bpf.ErrMalformed) || ok {
				t.Fatal(ok, err)
			}
			return
		}
		checkShown(t, ev.Device.Name, ev.FSError.FSType, ev.FSError.Function, ev.Task.Comm, ev.Unit)
	})
}

// A filesystem whose module is loaded late gets its hooks attached once, and again after the module
// was unloaded, even if that was not seen.
func TestFSErrorAttachesToLateModules(t *testing.T) {
	f := testFSError(t)
	hooks := &hookLog{}
	f.hooks = hooks
	attach := func(filesystems string) {
		t.Helper()
		if err := errors.Join(f.attach(parseFilesystems(filesystems)), f.blind()); err != nil {
			t.Error(err)
		}
	}
	for _, loaded := range []string{
		"nodev\tproc\n\tsquashfs\n",
		"nodev\tproc\n\text4\n", "nodev\tproc\n\text4\n", // loaded
		"nodev\tproc\n", // removed
		"nodev\tproc\n\text4\n",
	} {
		attach(loaded)
	}
	module := f.env.fs.Path("/sys/module/xfs")
	if err := os.MkdirAll(module, 0o755); err != nil {
		t.Fatal(err)
	}
	attach("\text4\n\txfs\n")
	if err := errors.Join(os.Rename(module, module+".old"), os.Mkdir(module, 0o755)); err != nil {
		t.Fatal(err)
	}
	attach("\text4\n\txfs\n")
	want := []string{
		"+ext4_error", "+ext4_shutdown", "-ext4_error", "-ext4_shutdown", "+ext4_error", "+ext4_shutdown",
		"+xfs_force_shutdown", "-xfs_force_shutdown", "+xfs_force_shutdown",
	}
	if !slices.Equal(hooks.log, want) {
		t.Errorf("got %v, want %v", hooks.log, want)
	}
}

// A hook may fail to attach for a moment, as while a module is being loaded. If it fails again and
// again, the source is down.
func TestFSErrorAttachesAgain(t *testing.T) {
	f := testFSError(t)
	failed := errors.New("no such tracepoint")
	hooks := &hookLog{}
	f.hooks = hooks
	var watched []string
	f.env.fsWatched = func(types []string) { watched = types }
	for i, c := range []struct {
		fails, want, blind error
		loaded, watched    []string
	}{
		{failed, nil, nil, []string{"xfs"}, nil},
		{nil, nil, nil, []string{"xfs"}, []string{"xfs"}},
		{failed, nil, nil, []string{"xfs"}, []string{"xfs"}}, // it is attached
		{failed, nil, nil, []string{"xfs", "ext4"}, []string{"xfs"}},
		{failed, nil, nil, []string{"xfs", "ext4"}, []string{"xfs"}},
		{failed, failed, failed, []string{"xfs", "ext4"}, []string{"xfs"}},
		{failed, nil, failed, []string{"xfs", "ext4"}, []string{"xfs"}},
		{failed, nil, nil, []string{"xfs"}, []string{"xfs"}},
		{failed, nil, nil, nil, nil},
	} {
		hooks.err = c.fails
		if err := f.attach(c.loaded); !errors.Is(err, c.want) {
			t.Errorf("step %d: %v, want %v", i, err, c.want)
		}
		if err := f.blind(); !errors.Is(err, c.blind) {
			t.Errorf("step %d: blind: %v, want %v", i, err, c.blind)
		}
		if !slices.Equal(watched, c.watched) {
			t.Errorf("step %d: watched: %q, want %q", i, watched, c.watched)
		}
	}
	want := []string{"+xfs_force_shutdown", "+xfs_force_shutdown"}
	for range fsAttempts {
		want = append(want, "+ext4_error", "+ext4_shutdown")
	}
	want = append(want, "-ext4_error", "-ext4_shutdown", "-xfs_force_shutdown")
	if !slices.Equal(hooks.log, want) {
		t.Errorf("got %v, want %v", hooks.log, want)
	}
}
