package detector

import (
	"net/netip"
	"strings"
	"testing"
	"time"

	"cel.dev/cel-go/cel"
	"cel.dev/cel-go/common/types"

	"github.com/kernosis/kernosis/collector/event"
)

// full returns an event with all parts at once, which no real event has.
func full() *event.Event {
	task := &event.Task{PID: 1, TGID: 2, Comm: "t", StartTime: event.Duration(time.Second), UID: 3}
	return &event.Event{
		Kind: event.OOMKill, Time: time.Unix(0, 0), Source: "bpf", Unit: "u", Task: task,
		Cgroup: &event.Cgroup{ID: 1 << 63, Path: "/c"}, Container: &event.Container{ID: "i", Runtime: "r", PodUID: "p", Name: "n", PodName: "pn", PodNamespace: "ns"},
		PodLabels: map[string]string{"app": "a", "team": "t"},
		Device:    &event.Device{Major: 1, Minor: 2, Name: "d", Parent: "p", Mounts: []event.Mount{{Path: "/m"}}},
		Conn:      &event.Conn{Src: netip.MustParseAddrPort("1.2.3.4:5"), Dst: netip.MustParseAddrPort("[::1]:6"), NetNS: 7},
		HungTask:  &event.HungTaskData{BlockedFor: 1, Wait: "io", Lock: "mutex", LockAddr: 0xffff, Holder: task, HolderHint: true, Detector: "poll", Exited: true},
		OOMKill: &event.OOMKillData{Scope: "memcg", Along: true, LimitCgroup: &event.Cgroup{Path: "/l"}, Limit: 1, Usage: 1, Trigger: task, TotalVM: 1,
			AnonRSS: 1, FileRSS: 1, ShmemRSS: 1, Swap: 1, PageTables: 1, Approximate: true, OOMScoreAdj: -1000},
		Check:   &event.CheckData{Check: "c", Status: "ok", Message: "m"},
		Gauge:   &event.GaugeData{Name: "files", Value: 3, Limit: 4},
		DiskIO:  &event.DiskIOData{Op: "read", Sector: 1, Bytes: 1, Error: "EIO", Status: "IOERR", ReadAhead: true, Bio: true, Lower: "l"},
		FSError: &event.FSErrorData{FSType: "ext4", Function: "f", Line: 1},
		HWError: &event.HWErrorData{What: "pcie", Severity: "fatal", Part: "p", CPU: 1, Bank: 1, Register: "1", Controller: "MC0", Errors: 1, Page: "0x1",
			Result: "Failed", Reporter: "fw", Detail: "d"},
		Mount: &event.MountData{FSType: "ext4", Path: "/m", Reason: "r"},
		SockFail: &event.SockFailData{Target: "t", Verdict: "v", Phase: "p", Errno: "E", Duration: 1, Retransmits: 1,
			Evidence: []string{"a", "b"}, Excluded: []string{"c"}, QueueLen: 1, QueueMax: 1},
		Probe: &event.ProbeData{Name: "n c", Probe: "liveness", Namespace: "ns", Pod: "p", Container: "c", Handler: "http", Endpoint: "e",
			Timeout: 1, Period: 2, Failures: 2, Threshold: 3, Over: true, ProbeOutcome: event.ProbeOutcome{
				Feed: "observed", Verdict: "refused", Cause: "why", Phase: "connect", Errno: "E", Duration: 1, FirstByte: 1, RTT: 1, Retransmits: 1,
				Status: "503", Said: "s", QueueLen: 1, QueueMax: 1, Throttled: 82, ThrottledIn: 10, Evidence: []string{"a"}, Excluded: []string{"b"},
			}},
		DiskStall: &event.DiskStallData{InFlight: 1, StalledFor: 1},
		Log:       &event.LogData{Log: "kmsg", Origin: "kernel", Unit: "u", Priority: "err", Text: "a"},
		Lost:      &event.LostData{Stem: "s", Count: 1, Reason: "r"}, SourceUp: &event.SourceData{Stem: "s", Up: true, Reason: "r"},
	}
}

// TestFieldsInCEL reads every field through an expression, from an event that
// has it and from an empty one, and checks its declared type.
func TestFieldsInCEL(t *testing.T) {
	c, err := newCompiler()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range event.Fields() {
		x, errs := c.compile(f.Name)
		if len(errs) > 0 {
			t.Errorf("%s: %v", f.Name, errs)
			continue
		}
		if len(x.fields) != 1 || x.fields[0] != f || x.direct.text == nil || !x.out.IsExactType(celType(f.Type)) {
			t.Errorf("%s: compiled as %v", f.Name, cel.FormatCELType(x.out))
		}
		for name, ev := range map[string]*event.Event{"full": full(), "empty": {}} {
			act := newActivation()
			act.ev = ev
			v, _, err := interpreted(t, c, f.Name).Eval(act)
			if err != nil {
				t.Errorf("%s of the %s event: %v", f.Name, name, err)
				continue
			}
			raw := f.Read(ev)
			bare := string(raw.Append(nil, f.Type))
			if text := string(appendCEL(nil, v)); text != bare {
				t.Errorf("%s of the %s event: %q as CEL, %q in messages", f.Name, name, text, bare)
			}
			if name == "full" && f.Name != "cgroup.outsidePods" && (bare == "" || bare == "0" || bare == "false") {
				t.Errorf("%s of the full event is %q: the wrong part is read", f.Name, bare)
			}
		}
	}
}

// In a pod the path is omitted, because it changes with each restart of a container.
func TestCgroupOutsidePods(t *testing.T) {
	f := event.FieldByName("cgroup.outsidePods")
	for want, c := range map[string]*event.Container{"/c": nil, "": {PodUID: "p"}} {
		if v := f.Read(&event.Event{Cgroup: &event.Cgroup{Path: "/c"}, Container: c}); v.Text != want {
			t.Errorf("%+v: %q, want %q", c, v.Text, want)
		}
	}
	if v := f.Read(&event.Event{Cgroup: &event.Cgroup{Path: "/docker/x"}, Container: &event.Container{ID: "x"}}); v.Text != "/docker/x" {
		t.Errorf("of a container outside of Kubernetes: %q", v.Text)
	}
}

// TestProbeFields checks that fields shared with connections are read from a probe.
func TestProbeFields(t *testing.T) {
	ev := &event.Event{Kind: event.Probe, Probe: full().Probe}
	for name, want := range map[string]string{
		"event.target": "n c", "event.verdict": "refused", "event.phase": "connect", "event.errno": "E", "event.duration": "1ns",
		"event.retransmits": "1", "event.queueLen": "1", "event.queueMax": "1", "event.evidence": "a", "event.excluded": "b",
		"event.status": "503", "event.progress": "liveness 2 of 3 towards restart", "event.cause": "why",
	} {
		f := event.FieldByName(name)
		v := f.Read(ev)
		if got := string(v.Append(nil, f.Type)); got != want || !f.CarriedBy(event.Probe) || !f.CarriedBy(event.ProbeRecovered) {
			t.Errorf("%s: %q, want %q", name, got, want)
		}
	}
	ev.Probe.Cause = ""
	if v := event.FieldByName("event.cause").Read(ev); v.Text != "refused" {
		t.Errorf("without words the cause is %q", v.Text)
	}
}

func TestFieldBounds(t *testing.T) {
	kill := &event.Event{OOMKill: &event.OOMKillData{TotalVM: 1 << 63, OOMScoreAdj: -1000}, Unit: strings.Repeat("é", event.MaxFieldText)}
	if n := event.FieldByName("event.totalVM").Read(kill).Number; n != 1<<63-1 {
		t.Errorf("2⁶³ reads as %d", n)
	}
	if n := event.FieldByName("event.oomScoreAdj").Read(kill).Number; n != -1000 {
		t.Errorf("-1000 reads as %d", n)
	}
	if v := event.FieldByName("unit").Read(kill); len(v.Text) > event.MaxFieldText || !strings.HasSuffix(v.Text, "é") {
		t.Errorf("long text reads as %d bytes", len(v.Text))
	}
	f := event.FieldByName("event.evidence")
	ev := full()
	ev.SockFail.Evidence = make([]string, 1000)
	if v := f.Read(ev); len(v.List) != event.MaxFieldList {
		t.Errorf("long list reads as %d items", len(v.List))
	}
}

func TestActivationKeepsFewTexts(t *testing.T) {
	a := newActivation()
	for i := range 2 * maxKnown {
		a.keep(strings.Repeat("x", i%64) + string(rune('a'+i%26)) + string(rune('A'+i/26)))
	}
	if len(a.known) > maxKnown {
		t.Errorf("%d texts kept, want at most %d", len(a.known), maxKnown)
	}
	if a.keep("ENOSPC") != types.String("ENOSPC") {
		t.Error("a text reads as another")
	}
}

// TestMatchFieldsAreBounded checks that the cost estimate bounds captured texts like
// any other text.
func TestMatchFieldsAreBounded(t *testing.T) {
	c, err := newCompiler()
	if err != nil {
		t.Fatal(err)
	}
	v, err := c.withGroups([]string{"b", "a", "b"})
	if err != nil {
		t.Fatal(err)
	}
	if again, err := c.withGroups([]string{"a", "b"}); again != v || err != nil {
		t.Errorf("the same groups make another environment (%v)", err)
	}
	for _, source := range []string{`match.a.contains(match.b)`, `cidr(match.a).containsIP(match.b)`, `match.a.split(",").exists(x, x == match.b)`} {
		x, errs := v.compile(source)
		if len(errs) > 0 {
			t.Errorf("%s: %v", source, errs)
			continue
		}
		act := newActivation()
		act.ev = &event.Event{Kind: event.Log, Log: &event.LogData{Captures: map[string]string{"a": strings.Repeat(",", 2*event.MaxFieldText), "b": strings.Repeat("é", 2*event.MaxFieldText)}}}
		begin := time.Now()
		_, err := x.test(act)
		t.Logf("%s: %v in %v", source, err != nil, time.Since(begin))
	}
	if f := v.field("match.a"); len(f.Read(&event.Event{Log: &event.LogData{Captures: map[string]string{"a": strings.Repeat("x", 2*event.MaxFieldText)}}}).Text) != event.MaxFieldText {
		t.Error("a captured text is not bounded")
	}
	if _, errs := c.compile("match.a"); len(errs) == 0 {
		t.Error("the groups of one pattern are fields of all")
	}
}

// TestCostOfLongLists checks that a list of the longest texts is searched to its end, and that an
// expression that would take long on it is refused.
func TestCostOfLongLists(t *testing.T) {
	c, err := newCompiler()
	if err != nil {
		t.Fatal(err)
	}
	x, errs := c.compile(`event.evidence.exists(a, a.contains("` + strings.Repeat("b", 200) + `"))`)
	if len(errs) > 0 {
		t.Fatal(errs)
	}
	act := newActivation()
	act.ev = full()
	long := make([]string, event.MaxFieldList)
	for i := range long {
		long[i] = strings.Repeat("a", event.MaxFieldText)
	}
	act.ev.SockFail.Evidence = long
	if found, err := x.test(act); found || err != nil {
		t.Errorf("found %v, %v", found, err)
	}
	_, errs = c.compile(`event.evidence.exists(a, [1, 2, 3, 4, 5, 6, 7, 8, 9, 10].exists(b, isIP(a) || isCIDR(a)))`)
	if len(errs) != 1 || !strings.Contains(errs[0].msg, "too expensive") {
		t.Errorf("errors %v, want it to be refused", errs)
	}
}
