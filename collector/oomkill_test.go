package collector

import (
	"bytes"
	"errors"
	"log/slog"
	"os"
	"strings"
	"testing"
	"unsafe"

	"github.com/google/go-cmp/cmp"

	"github.com/kernosis/kernosis/bpf"
	"github.com/kernosis/kernosis/collector/event"
	"github.com/kernosis/kernosis/collector/hostfs"
)

// Addresses of kernel functions in these tests.
const (
	oomMemcgAt = 0xffffffff81200000 // mem_cgroup_out_of_memory
	oomKillAt  = 0xffffffff81300000 // __oom_kill_process
)

func testOOMKill(t testing.TB) *oomkill {
	t.Helper()
	code := oomCode{
		memcg: []hostfs.Range{{Start: oomMemcgAt, End: oomMemcgAt + 0x100}},
		kill:  []hostfs.Range{{Start: oomKillAt, End: oomKillAt + 0x100}},
	}
	return newOOMKill(&environment{
		log: slog.New(slog.DiscardHandler), fs: hostfs.New(t.TempDir()), clock: hostfs.NewClock(),
		attributor: hostfs.NewAttributor(16, nil, nil),
		oomCode:    func() oomCode { return code },
	})
}

const (
	podSlice  = "kubepods-burstable-pod11111111_2222_3333_4444_555555555555.slice"
	container = "4f6a8d1c2b3e4f6a8d1c2b3e4f6a8d1c2b3e4f6a8d1c2b3e4f6a8d1c2b3e4f6a"
)

// podKill returns the kill of a child process in a service of a systemd container in a pod, at the
// container's limit.
func podKill() *bpf.OOMKill {
	r := &bpf.OOMKill{
		H:       bpf.Header{Version: bpf.WireVersion, Kind: bpf.KindOOMKill},
		Victim:  bpf.Task{PID: 812, TGID: 812, StartNS: 5e9, UID: 1000},
		Trigger: bpf.Task{PID: 820, TGID: 812, StartNS: 6e9},
		TotalVM: 1000, Anon: 800, File: 3, Shmem: 2, Swap: 1, PageTables: 4096,
		Limit: 1024, Usage: 1023, OOMScoreAdj: -997, RSSApproximate: 1, LimitLevel: 2, StackDepth: 2,
	}
	copy(r.Victim.Comm[:], "java")
	copy(r.Trigger.Comm[:], "C2 CompilerThre")
	r.Stack[0], r.Stack[1] = oomKillAt+0x10, oomMemcgAt+0x100 // a call that is the last instruction
	r.H.Size = uint32(unsafe.Sizeof(*r))
	setChain(&r.Memory, "app.service", "system.slice", "cri-containerd-"+container+".scope", podSlice, "kubepods-burstable.slice", "kubepods.slice")
	setChain(&r.Default, "app.service", "system.slice", "cri-containerd-"+container+".scope", podSlice, "kubepods-burstable.slice", "kubepods.slice")
	return r
}

func rawRecord[T any](r *T) []byte {
	return unsafe.Slice((*byte)(unsafe.Pointer(r)), unsafe.Sizeof(*r))
}

func mustDecode(t testing.TB, o *oomkill, raw []byte) *event.Event {
	t.Helper()
	h, err := bpf.ParseHeader(raw)
	if err != nil {
		t.Fatal(err)
	}
	var ev event.Event
	if ok, err := o.decode(h, raw, &ev); err != nil || !ok {
		t.Fatalf("decode: %v, %v", ok, err)
	}
	return &ev
}

func TestDecodeOOMKillInAPod(t *testing.T) {
	ev := mustDecode(t, testOOMKill(t), rawRecord(podKill()))
	page := uint64(os.Getpagesize())
	limited := "/kubepods.slice/kubepods-burstable.slice/" + podSlice + "/cri-containerd-" + container + ".scope"
	want := &event.Event{
		Kind:   event.OOMKill,
		Task:   &event.Task{PID: 812, TGID: 812, Comm: "java", StartTime: 5e9, UID: 1000},
		Cgroup: &event.Cgroup{ID: 100, Path: limited + "/system.slice/app.service"},
		Container: &event.Container{
			ID: container, Runtime: "containerd", PodUID: "11111111-2222-3333-4444-555555555555", QoS: "burstable",
		},
		OOMKill: &event.OOMKillData{
			Scope: "memcg", LimitCgroup: &event.Cgroup{ID: 102, Path: limited}, Limit: 1024 * page, Usage: 1023 * page,
			Trigger: &event.Task{PID: 820, TGID: 812, Comm: "C2 CompilerThre", StartTime: 6e9},
			TotalVM: 1000 * page, AnonRSS: 800 * page, FileRSS: 3 * page, ShmemRSS: 2 * page, Swap: page,
			PageTables: 4096, Approximate: true, OOMScoreAdj: -997,
		},
	}
	if diff := cmp.Diff(want, ev); diff != "" {
		t.Errorf("event differs (-want +got):\n%s", diff)
	}
}

// A kernel without CONFIG_MEMCG has no memory cgroups: the default hierarchy identifies the victim.
func TestDecodeOOMKillWithoutMemoryGroups(t *testing.T) {
	want := mustDecode(t, testOOMKill(t), rawRecord(podKill()))
	r := podKill()
	r.Memory, r.Scope, r.Limit, r.LimitLevel = bpf.Chain{}, bpf.OOMScopeGlobal, bpf.OOMNoLimit, -1
	got := mustDecode(t, testOOMKill(t), rawRecord(r))
	if diff := cmp.Diff(want.Container, got.Container); diff != "" || got.Cgroup.Path != want.Cgroup.Path {
		t.Errorf("cgroup %s, container differs (-want +got):\n%s", got.Cgroup.Path, diff)
	}
	if d := got.OOMKill; d.Scope != "global" || d.LimitCgroup != nil || d.Limit != 0 {
		t.Errorf("scope %q, limit %d of %v", d.Scope, d.Limit, d.LimitCgroup)
	}
}

// 5.10 without a context program reports only the victim's PID, with the trigger's cgroups. If the
// node is out of memory, the trigger may be in any pod.
func TestDecodeOOMKillOfAPID(t *testing.T) {
	for name, tt := range map[string]struct {
		scope   uint8
		started string // the process with the PID, in ticks since boot
		comm    string
		pod     bool
	}{
		"at a limit":                       {bpf.OOMScopeMemcg, "500", "java", true},
		"of the node":                      {bpf.OOMScopeGlobal, "500", "java", false},
		"of the node, the PID is reused":   {bpf.OOMScopeGlobal, "1001", "", false},
		"of the node, the process is gone": {bpf.OOMScopeGlobal, "", "", false},
	} {
		t.Run(name, func(t *testing.T) {
			o := testOOMKill(t)
			if tt.started != "" {
				dir := o.env.fs.Path("/proc/812")
				stat := "812 (java) S 1" + strings.Repeat(" 0", 17) + " " + tt.started + " 0 0\n"
				if err := errors.Join(
					os.MkdirAll(dir, 0o755), os.WriteFile(dir+"/stat", []byte(stat), 0o644),
					os.WriteFile(dir+"/status", []byte("Tgid:\t812\nUid:\t1000\t0\t0\t0\nCapEff:\t0\n"), 0o644),
				); err != nil {
					t.Fatal(err)
				}
			}
			r := podKill()
			r.H.BootNS, r.Scope, r.VictimPartial, r.Victim = 10e9, tt.scope, 1, bpf.Task{PID: 812, TGID: 812}
			ev := mustDecode(t, o, rawRecord(r))
			if ev.Task.PID != 812 || ev.Task.Comm != tt.comm {
				t.Errorf("victim %+v, want %q", ev.Task, tt.comm)
			}
			if (ev.Container != nil) != tt.pod || (ev.Cgroup != nil) != tt.pod {
				t.Errorf("cgroup %+v, container %+v", ev.Cgroup, ev.Container)
			}
		})
	}
}

func TestOOMScope(t *testing.T) {
	tests := []struct {
		name   string
		record func(*bpf.OOMKill)
		want   string
	}{
		{"by the stack", func(*bpf.OOMKill) {}, "memcg"},
		{"not on the stack, although a group is full", func(r *bpf.OOMKill) { r.Stack[1] = 1 }, "global"},
		{"context says global", func(r *bpf.OOMKill) { r.Scope = bpf.OOMScopeGlobal }, "global"},
		{"context says memcg", func(r *bpf.OOMKill) { r.Scope, r.StackDepth = bpf.OOMScopeMemcg, 0 }, "memcg"},
		{"no stack, a group is full", func(r *bpf.OOMKill) { r.StackDepth = 0 }, "memcg"},
		{"no stack, no group is full", func(r *bpf.OOMKill) { r.StackDepth, r.LimitLevel, r.Limit = 0, -1, bpf.OOMNoLimit }, "unknown"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			r := podKill()
			tt.record(r)
			d := mustDecode(t, testOOMKill(t), rawRecord(r)).OOMKill
			if d.Scope != tt.want {
				t.Errorf("scope %q, want %q", d.Scope, tt.want)
			}
			if (d.LimitCgroup != nil) != (tt.want == "memcg") {
				t.Errorf("limiting group %v with scope %s", d.LimitCgroup, d.Scope)
			}
		})
	}
}

// A process killed with its cgroup has the limit of the first kill, although no cgroup is full any
// more; an unrelated kill does not.
func TestOOMGroupKillHasOneLimit(t *testing.T) {
	along := func(change func(*bpf.OOMKill)) *bpf.OOMKill {
		r := podKill()
		r.H.BootNS, r.Victim.PID, r.Victim.TGID = 5e8, 813, 813
		r.Limit, r.Usage, r.LimitLevel = bpf.OOMNoLimit, 0, -1
		change(r)
		return r
	}
	tests := []struct {
		name  string
		r     *bpf.OOMKill
		limit bool
		along bool
	}{
		{"of the group", along(func(*bpf.OOMKill) {}), true, true},
		{"in a group below", along(func(r *bpf.OOMKill) { r.Memory.ID[0] = 99 }), true, true},
		{"for another's sake", along(func(r *bpf.OOMKill) { r.Trigger.PID = 821 }), false, false},
		{"for the sake of another with that pid", along(func(r *bpf.OOMKill) { r.Trigger.StartNS++ }), false, false},
		{"later", along(func(r *bpf.OOMKill) { r.H.BootNS = 2e9 }), false, false},
		{"elsewhere", along(func(r *bpf.OOMKill) { r.Memory.ID[2] = 99 }), false, true},
		{"of the whole machine", along(func(r *bpf.OOMKill) { r.Scope = bpf.OOMScopeGlobal }), false, false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			o := testOOMKill(t)
			first := mustDecode(t, o, rawRecord(podKill())).OOMKill
			group, limit, along := *first.LimitCgroup, first.Limit, first.Along
			got := mustDecode(t, o, rawRecord(tt.r)).OOMKill
			if along || got.Along != tt.along {
				t.Errorf("first along: %t; this one: %t, want %t", along, got.Along, tt.along)
			}
			if tt.limit != (got.LimitCgroup != nil && *got.LimitCgroup == group && got.Limit == limit) || !tt.limit && got.Limit != 0 {
				t.Errorf("limit %d of %+v, want that of the first: %v", got.Limit, got.LimitCgroup, tt.limit)
			}
		})
	}
}

// isReported reports whether a record becomes an event.
func isReported(t *testing.T, o *oomkill, r *bpf.OOMKill) bool {
	t.Helper()
	h, err := bpf.ParseHeader(rawRecord(r))
	if err != nil {
		t.Fatal(err)
	}
	var ev event.Event
	ok, err := o.decode(h, rawRecord(r), &ev)
	if err != nil {
		t.Fatal(err)
	}
	return ok
}

// A victim that the kernel marks without a kill was dying already, whoever needs the memory, and
// however many were killed before.
func TestDyingVictimIsNoKill(t *testing.T) {
	o := testOOMKill(t)
	for pid := range uint32(50) {
		r := podKill()
		r.Victim = bpf.Task{PID: 200 + pid, TGID: 200 + pid}
		if !isReported(t, o, r) {
			t.Errorf("%d of the group is not reported", pid)
		}
	}
	for _, victim := range []bpf.Task{{PID: 200, TGID: 200}, {PID: 900, TGID: 200}, {PID: 812, TGID: 812}} {
		r := podKill()
		r.Victim, r.Stack[0] = victim, oomKillAt-0x10 // called from oom_kill_process itself
		if isReported(t, o, r) {
			t.Errorf("%d was dying already, and is reported", victim.PID)
		}
	}
}

// If the kernel's addresses are not available, a thread of a process that was killed before is not
// another kill.
func TestDyingThreadIsNoKillWithoutSymbols(t *testing.T) {
	o := testOOMKill(t)
	o.env.oomCode = func() oomCode { return oomCode{} }
	reported := func(victim, trigger bpf.Task, at uint64) bool {
		t.Helper()
		r := podKill()
		r.Victim, r.Trigger, r.H.BootNS = victim, trigger, at
		return isReported(t, o, r)
	}
	main, thread, other := bpf.Task{PID: 152, TGID: 152}, bpf.Task{PID: 154, TGID: 152}, bpf.Task{PID: 160, TGID: 160}
	for i, tt := range []struct {
		victim, trigger bpf.Task
		at              uint64
		want            bool
	}{
		{main, main, 1e9, true},            // killed for its own demand
		{thread, thread, 1.01e9, false},    // its thread is marked while it dies
		{other, thread, 1.02e9, true},      // another process is killed for the thread
		{other, main, 1.03e9, true},        // killed again, for another trigger
		{thread, thread, 1e9 + 20e9, true}, // the PID was reused
	} {
		if got := reported(tt.victim, tt.trigger, tt.at); got != tt.want {
			t.Errorf("%d: reported %v, want %v", i, got, tt.want)
		}
	}
	for pid := range uint32(50) { // a whole cgroup
		task := bpf.Task{PID: 300 + pid, TGID: 300 + pid}
		if !reported(task, other, 30e9) {
			t.Errorf("%d of the group is not reported", pid)
		}
	}
	if first := (bpf.Task{PID: 400, TGID: 300}); reported(first, first, 30.1e9) {
		t.Error("a thread of the first of a group is reported as killed again")
	}
	for pid := range uint32(3 * maxOOMKilled) {
		reported(bpf.Task{PID: pid, TGID: pid}, other, 40e9)
	}
	if len(o.killed) > maxOOMKilled {
		t.Errorf("%d kills remembered", len(o.killed))
	}
}

// Anyone who can start a process or create a cgroup can choose names.
func TestHostileNamesAreEscapedAndBounded(t *testing.T) {
	r := podKill()
	copy(r.Victim.Comm[:], "\x1b[2J\xff\u202eevil\n")
	setChain(&r.Memory, "a\nb\x00", strings.Repeat("\xfe", 95))
	setChain(&r.Default)
	ev := mustDecode(t, testOOMKill(t), rawRecord(r))
	for _, s := range []string{ev.Task.Comm, ev.Cgroup.Path, ev.Subject()} {
		if strings.ContainsFunc(s, func(r rune) bool { return r < ' ' || r == 0x202e || r == 0xfffd }) || len(s) > 5000 {
			t.Errorf("shown as %q", s)
		}
	}
}

func TestDecodeOOMKillAllocatesNothing(t *testing.T) {
	o, raw := testOOMKill(t), rawRecord(podKill())
	h, err := bpf.ParseHeader(raw)
	if err != nil {
		t.Fatal(err)
	}
	var ev event.Event
	if n := testing.AllocsPerRun(100, func() {
		if _, err := o.decode(h, raw, &ev); err != nil {
			t.Fatal(err)
		}
	}); n != 0 {
		t.Errorf("%v allocations a record, want 0", n)
	}
}

func FuzzDecodeOOMKill(f *testing.F) {
	f.Add(rawRecord(podKill()))
	f.Add(make([]byte, 100))
	o := testOOMKill(f)
	f.Fuzz(func(t *testing.T, data []byte) {
		// Aligned to 8 bytes, as in the ring.
		words := make([]uint64, len(data)/8+1)
		raw := unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(words))), len(words)*8)[:len(data)]
		copy(raw, data)
		var ev event.Event
		ok, err := o.decode(&bpf.Header{}, raw, &ev)
		if ok == (err != nil) {
			t.Fatalf("ok %v with error %v", ok, err)
		}
		if ok && (ev.Task == nil || ev.OOMKill == nil || len(ev.Task.Comm) > maxComm+len("…")) {
			t.Fatalf("decoded %+v", ev)
		}
	})
}

// A record that is not ours is counted as lost, and the next one is read.
func TestMalformedRecordsAreCounted(t *testing.T) {
	env := testOOMKill(t).env
	s := &stem{name: bpf.StemOOMKill, env: env, log: env.log, decoder: decoder{decode: newOOMKill(env).decode}}
	foreign := bytes.Clone(rawRecord(podKill()))
	(*bpf.Header)(unsafe.Pointer(&foreign[0])).Version = bpf.WireVersion + 1
	short := bytes.Clone(rawRecord(podKill())[:200])
	headed := podKill() // a whole header, but a truncated record
	headed.H.Size = 48
	var got []string
	for _, raw := range [][]byte{foreign, short, rawRecord(headed)[:48], {1, 2, 3}, rawRecord(podKill())} {
		s.handle(raw, func(ev *event.Event) {
			if ev.Lost != nil {
				got = append(got, ev.Lost.Reason)
			} else {
				got = append(got, string(ev.Kind))
			}
		})
	}
	want := []string{"foreign-wire", "malformed", "malformed", "malformed", "oomkill"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("reported (-want +got):\n%s", diff)
	}
}
