package collector

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"iter"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"
	"unsafe"

	"github.com/kernosis/kernosis/bpf"
	"github.com/kernosis/kernosis/collector/display"
	"github.com/kernosis/kernosis/collector/event"
	"github.com/kernosis/kernosis/collector/hostfs"
)

// hungEnvironment returns an environment whose kernel has the given kallsyms and
// hung_task_timeout_secs ("": no khungtaskd).
func hungEnvironment(t testing.TB, kallsyms, timeout string) *environment {
	t.Helper()
	root := t.TempDir()
	for name, content := range map[string]string{
		"proc/kallsyms":                          kallsyms,
		"proc/sys/kernel/hung_task_timeout_secs": timeout,
	} {
		if content == "" {
			continue
		}
		path := filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	fs := hostfs.New(root)
	return &environment{
		log: slog.New(slog.DiscardHandler), fs: fs, clock: hostfs.NewClock(),
		attributor: hostfs.NewAttributor(16, nil, nil), symbols: hostfs.NewSymbols(fs),
	}
}

const hungKallsyms = `ffffffff81000000 T _stext
ffffffff81001000 T schedule
ffffffff81002000 t __mutex_lock.constprop.0
ffffffff81003000 t anon_pipe_write
ffffffff81004000 T io_schedule
ffffffff81005000 T vfs_write
ffffffff81006000 T _etext
`

func rawOf[R any](r *R) []byte {
	return unsafe.Slice((*byte)(unsafe.Pointer(r)), unsafe.Sizeof(*r))
}

func wireTask(pid, tgid uint32, comm string) bpf.Task {
	t := bpf.Task{PID: pid, TGID: tgid, StartNS: 7e9 + uint64(pid), UID: 1000}
	copy(t.Comm[:], comm)
	return t
}

func wireChain(names ...string) bpf.Chain {
	c := bpf.Chain{Depth: uint32(len(names))}
	for i, n := range names {
		c.ID[i] = uint64(100 + i)
		copy(c.Name[i][:], n)
	}
	return c
}

func hungRecord() *bpf.HungTask {
	return &bpf.HungTask{
		H:         bpf.Header{Version: bpf.WireVersion, Kind: bpf.KindHungTask},
		Task:      wireTask(812, 811, "post\x1bgres"),
		Holder:    wireTask(900, 899, "vacuum"),
		LockAddr:  0xffff888100000040,
		BlockedNS: 121e9,
		Called:    0xffffffff81002000,
		Detector:  bpf.HungByKhungtaskd, Lock: bpf.LockMutex,
		StackDepth: 2,
		Stack:      [32]uint64{0xffffffff81003030, 0xffffffff81005050},
		Memory:     wireChain("cri-containerd-6f1c1a5bd6ae4d8eb7a4c6f4a3b0d2c16f1c1a5bd6ae4d8eb7a4c6f4a3b0d2c1.scope", "kubepods-burstable-pod0b1c2d3e_4f5a_6b7c_8d9e_0f1a2b3c4d5e.slice", "kubepods-burstable.slice", "kubepods.slice"),
	}
}

func resumedRecord(of *bpf.HungTask) *bpf.HungTaskResumed {
	return &bpf.HungTaskResumed{
		H:         bpf.Header{Version: bpf.WireVersion, Kind: bpf.KindHungTaskResumed},
		Task:      of.Task,
		BlockedNS: 300e9, Detector: of.Detector, Memory: of.Memory,
	}
}

func decodeHung[R any](t testing.TB, h *hungtask, kind bpf.RecordKind, r *R) *event.Event {
	t.Helper()
	var ev event.Event
	ok, err := h.decode(&bpf.Header{Kind: kind}, rawOf(r), &ev)
	if !ok || err != nil {
		t.Fatalf("decode: %v, %v", ok, err)
	}
	return ev.Clone()
}

func TestDecodeHungTask(t *testing.T) {
	h := makeHungTask(hungEnvironment(t, hungKallsyms, ""))
	ev := decodeHung(t, h, bpf.KindHungTask, hungRecord())
	if ev.Kind != event.HungTask || ev.Task.PID != 812 || ev.Task.TGID != 811 || ev.Task.Comm != `post\x1bgres` {
		t.Errorf("task %+v", ev.Task)
	}
	if ev.Container == nil || ev.Container.PodUID != "0b1c2d3e-4f5a-6b7c-8d9e-0f1a2b3c4d5e" {
		t.Errorf("container %+v", ev.Container)
	}
	d := ev.HungTask
	if d.Wait != "lock" || d.Lock != "mutex" || d.LockAddr != 0xffff888100000040 || d.Detector != "khungtaskd" || d.BlockedFor != event.Duration(121*time.Second) {
		t.Errorf("data %+v", d)
	}
	if d.Holder == nil || d.Holder.PID != 900 || d.Holder.TGID != 899 || d.Holder.Comm != "vacuum" || d.HolderHint {
		t.Errorf("holder %+v, hint %v", d.Holder, d.HolderHint)
	}
	want := []string{"__mutex_lock.constprop.0", "anon_pipe_write+0x30", "vfs_write+0x50"}
	if !slices.Equal(d.Stack, want) {
		t.Errorf("stack %q, want %q", d.Stack, want)
	}
}

// A hang that khungtaskd finds between the start of an agent and its first walk is in the ring twice.
func TestHangsAreReportedOnce(t *testing.T) {
	h := makeHungTask(hungEnvironment(t, hungKallsyms, "120"))
	for i, c := range []struct {
		at, blocked time.Duration // since boot
		reported    bool
	}{
		{400 * time.Second, 121 * time.Second, true},
		{405 * time.Second, 126 * time.Second, false},   // by the walk: the same sleep
		{700 * time.Second, 421 * time.Second, false},   // the same
		{1100 * time.Second, 200 * time.Second, true},   // its end was lost: it sleeps since 900 s
		{1101 * time.Second, 1101 * time.Second, false}, // since the boot, as far as known
	} {
		r := hungRecord()
		r.H.BootNS, r.BlockedNS = uint64(c.at), uint64(c.blocked)
		ev := event.Event{BootTime: event.Duration(c.at)}
		if ok, err := h.decode(&r.H, rawOf(r), &ev); ok != c.reported || err != nil {
			t.Errorf("record %d: reported %v, %v", i, ok, err)
		}
	}
	r := hungRecord()
	decodeHung(t, h, bpf.KindHungTaskResumed, resumedRecord(r))
	decodeHung(t, h, bpf.KindHungTask, r) // it hangs anew
}

// The walk's report of a hang counts if the agent ignores the record in the ring, because its
// predecessor handled that one.
func TestHangsAreConfirmed(t *testing.T) {
	h := makeHungTask(hungEnvironment(t, hungKallsyms, "120"))
	h.env.cfg.Seen = func(ev *event.Event) bool {
		return ev.HungTask != nil && ev.BootTime == event.Duration(400*time.Second)
	}
	for _, c := range []struct {
		at       time.Duration // since boot
		reported bool
	}{{400 * time.Second, true}, {500 * time.Second, true}, {501 * time.Second, false}} {
		r := hungRecord()
		r.H.BootNS, r.BlockedNS = uint64(c.at), uint64(c.at-300*time.Second)
		ev := event.Event{BootTime: event.Duration(c.at)}
		if ok, err := h.decode(&r.H, rawOf(r), &ev); ok != c.reported || err != nil {
			t.Errorf("at %s: reported %v, %v", c.at, ok, err)
		}
	}
}

// The end of a hang has the subject and the lock of its beginning, even if the task, and with it
// its cgroups, is gone.
func TestDecodeHungTaskEnd(t *testing.T) {
	h := makeHungTask(hungEnvironment(t, hungKallsyms, ""))
	begin := hungRecord()
	beginning := decodeHung(t, h, bpf.KindHungTask, begin)
	end := resumedRecord(begin)
	end.Exited, end.Memory = 1, bpf.Chain{}
	ev := decodeHung(t, h, bpf.KindHungTaskResumed, end)
	if ev.Kind != event.HungTaskResumed || ev.Task.ID() != beginning.Task.ID() || ev.Subject() != beginning.Subject() {
		t.Errorf("end is of %q, beginning of %q", ev.Subject(), beginning.Subject())
	}
	d := ev.HungTask
	if !d.Exited || d.BlockedFor != event.Duration(300*time.Second) || d.Wait != "lock" || d.Lock != "mutex" || d.LockAddr != begin.LockAddr || d.Holder != nil || d.Stack != nil {
		t.Errorf("data %+v", d)
	}
	if len(h.reported) != 0 {
		t.Errorf("%d hangs remembered after their end", len(h.reported))
	}

	// A hang that an earlier run reported.
	ev = decodeHung(t, h, bpf.KindHungTaskResumed, resumedRecord(begin))
	if ev.Subject() != beginning.Subject() || ev.HungTask.Wait != "other" || ev.HungTask.Exited {
		t.Errorf("end after a restart: %q, %+v", ev.Subject(), ev.HungTask)
	}
}

func TestHungTasksRememberedAreBounded(t *testing.T) {
	h := makeHungTask(hungEnvironment(t, "", ""))
	r := hungRecord()
	r.StackDepth, r.Called = 0, 0
	for pid := range uint32(3 * maxHungReported) {
		r.Task.PID = pid
		decodeHung(t, h, bpf.KindHungTask, r)
	}
	if len(h.reported) > maxHungReported {
		t.Errorf("%d hangs remembered", len(h.reported))
	}
}

// The end of a hang allocates nothing. Its beginning does, for the stack.
func TestDecodeHungTaskEndAllocates(t *testing.T) {
	h := makeHungTask(hungEnvironment(t, "", ""))
	end := resumedRecord(hungRecord())
	raw, head := rawOf(end), &end.H
	var ev event.Event
	if n := testing.AllocsPerRun(100, func() {
		ev = event.Event{}
		if ok, err := h.decode(head, raw, &ev); !ok || err != nil {
			t.Fatal(ok, err)
		}
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

func TestWaitOf(t *testing.T) {
	for _, c := range []struct {
		name           string
		recorded, inIO bool
		stack          []string
		want           string
	}{
		{"recorded lock", true, true, []string{"io_schedule+0x1"}, "lock"},
		{"in_iowait", false, true, []string{"__mutex_lock+0x1"}, "io"},
		{"discard", false, true, []string{"io_schedule_timeout+0x1", "submit_bio_wait+0x1", "blkdev_issue_discard+0x1"}, "command"},
		{"SG_IO", false, true, []string{"io_schedule_timeout+0x1", "blk_execute_rq+0x1", "sg_io+0x1"}, "command"},
		{"flush", false, true, []string{"io_schedule_timeout+0x1", "submit_bio_wait+0x1", "blkdev_issue_flush+0x1"}, "io"},
		{"frozen filesystem", false, false, []string{"schedule+0x5b", "percpu_rwsem_wait+0x10d", "__percpu_down_read+0x41", "ext4_buffered_write_iter+0x1"}, "lock"},
		{"mutex", false, false, []string{"schedule+0x1", "schedule_preempt_disabled+0x15", "__mutex_lock.constprop.0+0x1"}, "lock"},
		{"rwsem", false, false, []string{"rwsem_down_write_slowpath+0x1", "down_write+0x1"}, "lock"},
		{"semaphore", false, false, []string{"down", "some_driver_ioctl+0x1"}, "lock"},
		{"mutex, by the call", false, false, []string{"mutex_lock", "anon_pipe_write+0x30"}, "lock"},
		{"journal", false, false, []string{"schedule+0x1", "jbd2_log_wait_commit+0x1", "ext4_sync_file+0x1 [ext4]"}, "io"},
		{"lock below I/O", false, false, []string{"io_schedule+0x1", "folio_wait_bit_common+0x1", "mutex_lock+0x1"}, "io"},
		{"nfs", false, false, []string{"rpc_wait_bit_killable+0x1 [sunrpc]", "nfs_file_fsync+0x1 [nfs]"}, "io"},
		{"vfork", false, false, []string{"schedule+0x1", "wait_for_completion_state+0x1", "kernel_clone+0x1"}, "process"},
		{"vfork, by the call", false, false, []string{"wait_for_completion_killable", "kernel_clone+0x1", "__do_sys_vfork+0x1"}, "process"},
		{"vfork, not inlined", false, false, []string{"wait_for_completion_state", "wait_for_vfork_done+0x1", "kernel_clone+0x1"}, "process"},
		{"exec", false, false, []string{"schedule", "begin_new_exec+0x1", "load_elf_binary+0x1"}, "process"},
		{"fork that waits for a lock", false, false, []string{"percpu_rwsem_wait+0x1", "__percpu_down_read+0x1", "copy_process+0x1", "kernel_clone+0x1"}, "lock"},
		{"exec that waits for a lock", false, false, []string{"down_write_killable", "begin_new_exec+0x1"}, "lock"},
		{"another completion", false, false, []string{"wait_for_completion", "flush_work+0x1", "kernel_clone+0x1"}, "other"},
		{"no names", false, false, []string{"0xffffffff81000000"}, "other"},
		{"downloads are not down()", false, false, []string{"download_firmware+0x1"}, "other"},
		{"nothing", false, false, nil, "other"},
	} {
		if got := waitOf(c.recorded, c.inIO, c.stack); got != c.want {
			t.Errorf("%s: %s, want %s", c.name, got, c.want)
		}
	}
}

func TestHungTimes(t *testing.T) {
	const kernelDefault = 120 * time.Second
	for _, c := range []struct {
		configured time.Duration
		timeout    string
		want       bpf.HungTimes
	}{
		{0, "120\n", bpf.HungTimes{Walk: kernelDefault, Wake: time.Minute}},
		{0, "30\n", bpf.HungTimes{Walk: 30 * time.Second, Wake: 15 * time.Second}},
		{0, "0\n", bpf.HungTimes{Walk: kernelDefault}},
		{0, "", bpf.HungTimes{Walk: kernelDefault}},
		{0, "-1\n", bpf.HungTimes{Walk: kernelDefault}},
		{0, "9223372036854775\n", bpf.HungTimes{Walk: kernelDefault}},
		{20 * time.Second, "1\n", bpf.HungTimes{Walk: 20 * time.Second, Khungtaskd: 20 * time.Second, Wake: 500 * time.Millisecond}},
		{time.Minute, "0\n", bpf.HungTimes{Walk: time.Minute, Khungtaskd: time.Minute}},
	} {
		if got := hungTimes(c.configured, hungEnvironment(t, "", c.timeout).fs); got != c.want {
			t.Errorf("configured %s, sysctl %q: %+v, want %+v", c.configured, c.timeout, got, c.want)
		}
	}
}

func TestNextHungLook(t *testing.T) {
	const after = 2 * time.Minute
	for _, c := range []struct {
		after time.Duration
		left  bpf.Asleep
		want  time.Duration
	}{
		{after, bpf.Asleep{}, hungLookEvery},
		{after, bpf.Asleep{Reported: 1}, hungLookSoon},
		{2 * time.Second, bpf.Asleep{}, hungLookSoon},
		{after, bpf.Asleep{Longest: 20 * time.Second}, hungLookEvery},
		{after, bpf.Asleep{Longest: after - 3*time.Second}, 3 * time.Second},
		{after, bpf.Asleep{Longest: after - time.Microsecond}, hungLookAtOnce},
		// The ring was full: no reason to hurry.
		{after, bpf.Asleep{Longest: after + time.Minute}, hungLookEvery},
	} {
		if got := nextHungLook(c.after, c.left); got != c.want {
			t.Errorf("after %s with %+v: %s, want %s", c.after, c.left, got, c.want)
		}
	}
}

func FuzzDecodeHungTask(f *testing.F) {
	begin := hungRecord()
	f.Add(uint16(bpf.KindHungTask), bytes.Clone(rawOf(begin)))
	f.Add(uint16(bpf.KindHungTaskResumed), bytes.Clone(rawOf(resumedRecord(begin))))
	f.Add(uint16(bpf.KindHungTask), []byte{1})
	env := hungEnvironment(f, hungKallsyms, "")
	f.Fuzz(func(t *testing.T, kind uint16, b []byte) {
		h := makeHungTask(env)
		// The ring aligns records to 8 bytes; a byte slice may not be aligned.
		words := make([]uint64, (len(b)+7)/8)
		for i := range words {
			var w [8]byte
			copy(w[:], b[i*8:])
			words[i] = binary.NativeEndian.Uint64(w[:])
		}
		raw := unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(words))), len(words)*8)[:len(b)]
		var ev event.Event
		ok, err := h.decode(&bpf.Header{Kind: bpf.RecordKind(kind)}, raw, &ev)
		if ok == (err != nil) {
			t.Fatalf("ok %v with error %v", ok, err)
		}
		if !ok {
			return
		}
		if ev.Task == nil || ev.HungTask == nil || ev.HungTask.Wait == "" || ev.HungTask.Detector == "" || len(ev.HungTask.Stack) > 32 {
			t.Fatalf("incomplete event %+v", ev)
		}
		if display.Safe(ev.Task.Comm, 1000) != ev.Task.Comm {
			t.Fatalf("comm %q is not fit to be shown", ev.Task.Comm)
		}
	})
}

// A lock's last owner is named only if that task exists and started before the wait.
func TestDecodeHungTaskHint(t *testing.T) {
	env := hungEnvironment(t, hungKallsyms, "")
	for _, tt := range []struct {
		name, stat string
		waited     time.Duration
		want       bool
	}{
		{"lives", "900 (vacuum) S 1 1 1 0 -1 0 0 0 0 0 0 0 0 0 20 0 1 0 700 0 0", 121 * time.Second, true},
		{"has ended", "", 121 * time.Second, false},
		{"another has its number", "900 (other) S 1 1 1 0 -1 0 0 0 0 0 0 0 0 0 20 0 1 0 9000 0 0", 121 * time.Second, false},
		{"began after the wait", "900 (vacuum) S 1 1 1 0 -1 0 0 0 0 0 0 0 0 0 20 0 1 0 700 0 0", 194 * time.Second, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			path := env.fs.Path("/proc/900/stat")
			if err := errors.Join(os.RemoveAll(path), os.MkdirAll(filepath.Dir(path), 0o755)); err != nil {
				t.Fatal(err)
			}
			if tt.stat != "" {
				if err := os.WriteFile(path, []byte(tt.stat), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			r := hungRecord() // the holder started 7 s after boot
			r.H.BootNS, r.BlockedNS = 200e9, uint64(tt.waited)
			r.Lock, r.HolderHint = bpf.LockSemaphore, 1
			if d := decodeHung(t, makeHungTask(env), bpf.KindHungTask, r).HungTask; (d.Holder != nil) != tt.want {
				t.Errorf("holder %+v", d.Holder)
			}
		})
	}
}

// fakeWalk is a walk over tasks that fails with err, or finds the tasks that hang.
type fakeWalk struct {
	err  error
	hung []*bpf.HungTaskSleep
}

func (w *fakeWalk) Run(bpf.HungTimes) error { return w.err }
func (w *fakeWalk) Sweep(func(*bpf.HungTaskSleep)) (bpf.Asleep, error) {
	return bpf.Asleep{Reported: len(w.hung)}, nil
}
func (w *fakeWalk) Hung() iter.Seq[*bpf.HungTaskSleep] { return slices.Values(w.hung) }

// While walks fail, nobody would see a hang or its end: the source is down, and what still hangs
// afterwards is reported again.
func TestHungTaskWalksThatFail(t *testing.T) {
	h := makeHungTask(hungEnvironment(t, hungKallsyms, "120"))
	hang := hungRecord()
	decodeHung(t, h, bpf.KindHungTask, hang)
	walk := &fakeWalk{hung: []*bpf.HungTaskSleep{{Task: hang.Task, SinceNS: 1e9, SeenNS: 200e9, Reported: bpf.HungByKhungtaskd}}}
	h.walk = walk
	var got []string
	r := &ringReader{
		stem: &stem{name: bpf.StemHungTask, loaded: new(bpf.Loaded), decoder: decoder{blind: h.blind, reportLasting: h.asked.add}},
		emit: func(ev *event.Event) {
			if ev.SourceUp != nil {
				got = append(got, fmt.Sprintf("%s up %v %s", ev.SourceUp.Stem, ev.SourceUp.Up, ev.SourceUp.Reason))
				return
			}
			got = append(got, string(ev.Kind))
		},
	}
	for _, c := range []struct {
		err  error
		want []string
	}{
		{nil, nil},
		{errors.New("momentary"), nil},
		{nil, nil},
		{errors.New("no memory"), nil},
		{errors.New("no memory"), nil},
		{errors.New("no memory"), []string{"hungtask up false no memory"}},
		{errors.New("no memory"), nil},
		{nil, []string{"hungtask up true "}},
		{nil, []string{string(event.HungTask)}},
		{nil, nil},
	} {
		walk.err, got = c.err, nil
		next, err := h.poll(t.Context(), time.Now(), r.emit)
		r.reportBlind()
		if !errors.Is(err, c.err) || (next == hungLookAgain) != (c.err != nil) {
			t.Errorf("poll: %s, %v", next, err)
		}
		if !slices.Equal(got, c.want) {
			t.Errorf("got %q, want %q", got, c.want)
		}
	}
}

// childEnv makes a test run in a child PID namespace.
const childEnv = "COLLECTOR_CHILD_PID_NAMESPACE"

// In a child PID namespace where no program detects hangs, there is no decoder, and ReportLasting
// must not use it.
func TestReportLastingWithoutHungTask(t *testing.T) {
	if os.Getenv(childEnv) == "" {
		if os.Geteuid() != 0 {
			t.Skip("needs root to make a PID namespace")
		}
		cmd := exec.Command(os.Args[0], "-test.run=^"+t.Name()+"$", "-test.v")
		cmd.Env = append(os.Environ(), childEnv+"=1")
		cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWPID}
		if out, err := cmd.CombinedOutput(); err != nil || !strings.Contains(string(out), "--- PASS: "+t.Name()) {
			t.Errorf("%v\n%s", err, out)
		}
		return
	}
	env := hungEnvironment(t, "", "")
	s := &Sources{mounts: newMountSource(env), stalls: newDiskStallSource(env)}
	st := &stem{name: bpf.StemHungTask}
	st.decoder, st.err = newDecoder(env, &bpf.Loaded{Stem: bpf.StemHungTask})
	if !errors.Is(st.err, bpf.ErrChildPIDNamespace) {
		t.Fatal(st.err)
	}
	s.stems = []*stem{st}
	s.ReportLasting(func(*event.Event) {})
}
