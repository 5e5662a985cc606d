package collector

import (
	"fmt"
	"log/slog"
	"net/netip"
	"strings"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
	"golang.org/x/time/rate"

	"github.com/kernosis/kernosis/bpf"
	"github.com/kernosis/kernosis/collector/display"
	"github.com/kernosis/kernosis/collector/event"
	"github.com/kernosis/kernosis/collector/hostfs"
	"github.com/kernosis/kernosis/collector/netlook"
)

// Tests the verdict alone, with facts written by hand: those seen on real kernels, and those too
// rare to wait for.
func TestSockFailJudge(t *testing.T) {
	dst := netip.MustParseAddrPort("10.0.0.2:80")
	route := netlook.Route{Known: true, Dev: "eth0", Via: dst.Addr()}
	listens := func(queue, limit uint32) netlook.Listener {
		return netlook.Listener{Known: true, Present: true, Queue: queue, Max: limit}
	}
	for _, c := range []struct {
		name     string
		facts    facts
		verdict  string
		evidence string
		excluded string
	}{
		{"refused", facts{reset: true, errno: unix.ECONNREFUSED}, event.VerdictRefused, "reset answered", ""},
		{"refused by a firewall", facts{reset: true, looked: looked{listener: listens(0, 128)}}, event.VerdictRefused, "yet there is a listener: queue 0/128", ""},
		{"refused by this node's firewall", facts{reset: true, dropReason: "NETFILTER_DROP", dropAt: "nf_hook_slow", looked: looked{listener: listens(0, 128)}},
			event.VerdictLocalDrop, "NETFILTER_DROP at nf_hook_slow", "listener present: queue 0/128"},
		{"reject without a reset", facts{errno: unix.ECONNREFUSED}, event.VerdictUnreachable, "ECONNREFUSED", ""},
		{"soft error only", facts{errnoSoft: unix.EHOSTUNREACH}, event.VerdictUnreachable, "EHOSTUNREACH", ""},
		{"time-out keeps no ICMP", facts{errno: unix.ETIMEDOUT}, event.VerdictTimeout, "no answer", ""},
		{"ICMP beats the drop that made it", facts{icmp: "ICMP host prohibited", dropReason: "NETFILTER_DROP"}, event.VerdictUnreachable, "NETFILTER_DROP", ""},
		{"silent", facts{}, event.VerdictTimeout, "gave up", ""},
		{"blackhole, all in order", facts{looked: looked{route: route, listener: listens(0, 128), neighbor: netlook.Neighbor{Known: true, State: "REACHABLE", Address: "02:00:00:00:00:01"}}},
			event.VerdictTimeout, "no answer", "neighbor 10.0.0.2: 02:00:00:00:00:01, REACHABLE"},
		{"queue full", facts{looked: looked{listener: listens(129, 128)}}, event.VerdictAcceptQueueFull, "129/128", ""},
		{"queue at its limit lets one more in", facts{looked: looked{listener: listens(128, 128)}}, event.VerdictTimeout, "no answer", "queue 128/128"},
		{"queue was full", facts{looked: looked{listener: listens(3, 128), overflows: 7, overIn: 4 * time.Second}}, event.VerdictAcceptQueueFull, "overflowed 7 times in 4s", ""},
		{"overflows of another listener", facts{looked: looked{overflows: 7}}, event.VerdictTimeout, "", ""},
		{"overflow by the drop", facts{dropReason: "TCP_LISTEN_OVERFLOW"}, event.VerdictAcceptQueueFull, "", ""},
		{"dropped", facts{dropReason: "NETFILTER_DROP", dropAt: "nf_hook_slow"}, event.VerdictLocalDrop, "NETFILTER_DROP at nf_hook_slow", ""},
		{"no route on output", facts{dropReason: "IP_OUTNOROUTES"}, event.VerdictNoRoute, "IP_OUTNOROUTES", ""},
		{"dead neighbour", facts{errno: unix.EHOSTUNREACH, looked: looked{route: route, neighbor: netlook.Neighbor{Known: true, State: "FAILED", Failed: true}}}, event.VerdictNeighborFailed, "10.0.0.2: FAILED", ""},
		{"neighbour just asked for", facts{duration: time.Millisecond, looked: looked{neighbor: netlook.Neighbor{Known: true, State: "INCOMPLETE", Trying: true}}}, event.VerdictTimeout, "", ""},
		{"neighbour asked for long", facts{duration: time.Second, looked: looked{neighbor: netlook.Neighbor{Known: true, State: "INCOMPLETE", Trying: true}}}, event.VerdictNeighborFailed, "INCOMPLETE", ""},
		{"neighbour by the drop", facts{dropReason: "NEIGH_FAILED"}, event.VerdictNeighborFailed, "NEIGH_FAILED", ""},

		{"no ports", facts{notSent: true, looked: looked{route: route}}, event.VerdictPortsExhausted, "no free local port", "via eth0"},
		{"no route after the port", facts{notSent: true, looked: looked{route: netlook.Route{Known: true, Errno: unix.ENETUNREACH}}}, event.VerdictNoRoute, "ENETUNREACH", ""},
		{"never sent, not looked", facts{noState: true, notSent: true}, event.VerdictNoRoute, "could not be looked up", ""},
		{"never sent, prohibited", facts{noState: true, looked: looked{route: netlook.Route{Known: true, Errno: unix.EACCES}}}, event.VerdictNoRoute, "prohibit", ""},
		{"never sent, with a route", facts{noState: true, looked: looked{route: route}}, event.VerdictLocalDrop, "policy", "via eth0"},
		{"never sent, not permitted", facts{noState: true, errno: unix.EPERM}, event.VerdictLocalDrop, "", ""},
		{"never sent, no port", facts{noState: true, errno: unix.EADDRNOTAVAIL, looked: looked{route: route}}, event.VerdictPortsExhausted, "no free local port", "via eth0"},

		{"reset mid-stream", facts{established: true, reset: true, acked: 4, received: 10}, event.VerdictReset, "10 bytes came back", ""},
		{"reset seen by its error only", facts{established: true, errno: unix.ECONNRESET}, event.VerdictReset, "nothing was sent", ""},
		{"silent", facts{established: true, acked: 4}, event.VerdictSilent, "acknowledged: 4 bytes", ""},
		{"silent, accepted", facts{established: true, acked: 4, looked: looked{child: netlook.ChildAccepted, listener: listens(0, 1)}}, event.VerdictSilent, "no byte", "a process has"},
		{"peer closed", facts{established: true, acked: 4, peerClosed: true}, event.VerdictSilent, "the peer closed", ""},
		{"not accepted", facts{established: true, acked: 4, looked: looked{child: netlook.ChildWaiting, listener: listens(3, 128)}}, event.VerdictNotAccepted, "queue 3/128", ""},
		{"last ACK ignored", facts{established: true, unacked: 4, looked: looked{child: netlook.ChildHalfOpen, listener: listens(2, 1)}}, event.VerdictAcceptQueueFull, "2/1", ""},
		{"request lost", facts{established: true, unacked: 4, errno: unix.ETIMEDOUT}, event.VerdictSilent, "not acknowledged: 4 bytes", ""},

		{"slow", facts{established: true, acked: 4, received: 10, duration: 1002 * time.Millisecond, slowAfter: time.Second, rtt: 210 * time.Microsecond, looked: looked{child: netlook.ChildAccepted}},
			event.VerdictSlow, "closed after 1.002s, before the answer was complete; its limit is 1s", "network RTT 0.21 ms"},
		{"slow by the network", facts{established: true, acked: 4, received: 10, duration: time.Second, slowAfter: time.Second, rtt: 230 * time.Millisecond},
			event.VerdictSlow, "network RTT 230 ms", ""},
		{"silent, and the network is well", facts{established: true, acked: 4, duration: time.Second, rtt: 45 * time.Microsecond}, event.VerdictSilent, "no byte", "network RTT 0.045 ms"},
		{"not accepted in a well network", facts{established: true, duration: time.Second, rtt: time.Millisecond, looked: looked{child: netlook.ChildWaiting}}, event.VerdictNotAccepted, "not accepted", "network RTT 1 ms"},
		{"refused, and another port listens", facts{reset: true, looked: looked{listener: netlook.Listener{Known: true}, listening: "listens on :8081"}}, event.VerdictRefused, "listens on :8081", ""},
		{"no place to track", facts{looked: looked{conntrack: netlook.Conntrack{Known: true, Count: 262143, Max: 262144}}}, event.VerdictTimeout, "connection tracking is full: 262143 of 262144", ""},
		{"no place to track what is sent", facts{noState: true, errno: unix.EPERM, looked: looked{conntrack: netlook.Conntrack{Known: true, Count: 8, Max: 8}}}, event.VerdictLocalDrop, "tracking is full", ""},
		{"no ports, no place", facts{notSent: true, looked: looked{conntrack: netlook.Conntrack{Known: true, Count: 8, Max: 8}}}, event.VerdictPortsExhausted, "tracking is full", ""},
		{"room to track", facts{looked: looked{conntrack: netlook.Conntrack{Known: true, Count: 200, Max: 262144}}}, event.VerdictTimeout, "no answer", ""},

		{"too many at once", facts{reset: true, looked: looked{skipped: true}}, event.VerdictRefused, "not examined", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			var j judgement
			c.facts.dst = dst
			j.judge(&c.facts)
			if j.verdict != c.verdict || !contains(j.evidence, c.evidence) || c.excluded != "" && !contains(j.excluded, c.excluded) {
				t.Errorf("%s\nevidence %q\nexcluded %q", j.verdict, j.evidence, j.excluded)
			}
		})
	}
}

func TestSockFailReasonsAreBounded(t *testing.T) {
	var r reasons
	for range 20 {
		r.add(strings.Repeat("x\x1b", 500))
	}
	if len(r) != maxEvidence || strings.Contains(r[0], "\x1b") || len(r[0]) > 4*maxFact {
		t.Errorf("%d entries, first %q", len(r), r[0])
	}
}

// testSockFail returns a decoder without a kernel.
func testSockFail(t testing.TB) *sockfail {
	t.Helper()
	fs := hostfs.New(t.TempDir())
	env := &environment{
		log: slog.New(slog.DiscardHandler), fs: fs, clock: hostfs.NewClock(), symbols: hostfs.NewSymbols(fs),
		attributor: hostfs.NewAttributor(64, nil, nil),
		targets:    newTargets(),
	}
	if err := env.targets.Set("configuration", []Target{{Name: "web", Address: netip.MustParseAddr("10.0.0.2"), Port: 80}}); err != nil {
		t.Fatal(err)
	}
	s := newSockFail(env, nil)
	if err := s.targets.reconcile(func(bpf.SockTargets) error { return nil }); err != nil {
		t.Fatal(err)
	}
	return s
}

func sockRecord(kind bpf.RecordKind) *bpf.SockFail {
	key := bpf.NewSockTargetKey(0, netip.MustParseAddr("10.0.0.2"), 80)
	r := &bpf.SockFail{
		H:       bpf.Header{Version: bpf.WireVersion, Kind: kind, BootNS: 5e9},
		Opener:  bpf.Task{PID: 11, TGID: 10},
		SrcAddr: netip.MustParseAddr("10.0.0.1").As16(), DstAddr: key.Addr, SrcPort: 40000, DstPort: 80,
		NetNS: 7, Target: key.ID(), Flags: bpf.SockReset, OldState: 2, NewState: 7,
		StartNS: 4e9, Err: uint32(unix.ECONNREFUSED), Retransmits: 2,
	}
	r.H.Size = uint32(unsafe.Sizeof(*r))
	copy(r.Opener.Comm[:], "kubelet")
	r.Memory.Depth = 1
	copy(r.Memory.Name[0][:], "kubelet.service")
	return r
}

func rawSock(r *bpf.SockFail) []byte {
	return unsafe.Slice((*byte)(unsafe.Pointer(r)), unsafe.Sizeof(*r))
}

func TestSockFailDecode(t *testing.T) {
	s := testSockFail(t)
	r := sockRecord(bpf.KindSockFail)
	var ev event.Event
	if ok, err := s.decode(&r.H, rawSock(r), &ev); !ok || err != nil {
		t.Fatal(ok, err)
	}
	d := ev.SockFail
	if ev.Kind != event.SockFail || d.Verdict != event.VerdictRefused || d.Target != "web" || d.Phase != "connect" ||
		d.Errno != "ECONNREFUSED" || time.Duration(d.Duration) != time.Second || d.Retransmits != 2 {
		t.Errorf("payload %+v", d)
	}
	if got := fmt.Sprint(*ev.Conn); got != "{10.0.0.1:40000 10.0.0.2:80 7}" {
		t.Errorf("connection %s", got)
	}
	if ev.Task.Comm != "kubelet" || ev.Unit != "kubelet.service" || ev.Subject() != "web" {
		t.Errorf("task %+v, unit %s, subject %s", ev.Task, ev.Unit, ev.Subject())
	}
	// A target that was removed: its address is used as its name.
	r.Target = 1
	r.H.Kind = bpf.KindSockFailRecovered
	ev = event.Event{}
	if ok, err := s.decode(&r.H, rawSock(r), &ev); !ok || err != nil || ev.Kind != event.SockFailRecovered || ev.SockFail.Target != "10.0.0.2:80" || ev.SockFail.Verdict != "" {
		t.Errorf("%v %v %+v", ok, err, ev.SockFail)
	}
}

// A flood allocates nothing: beyond the rate of lookups a record is judged without one.
func TestSockFailDecodeAllocates(t *testing.T) {
	s := testSockFail(t)
	r := sockRecord(bpf.KindSockFail)
	raw := rawSock(r)
	s.prober.looks = rate.NewLimiter(0, 0)
	var ev event.Event
	for name, change := range map[string]func(){
		"refused":   func() {},
		"silent":    func() { r.Flags, r.Err = 0, 0; r.Target = 1 },
		"recovered": func() { r.H.Kind = bpf.KindSockFailRecovered },
	} {
		*r = *sockRecord(bpf.KindSockFail)
		change()
		allowed := 0.0
		if name == "silent" {
			allowed = 4 // the text of the duration
		}
		if n := testing.AllocsPerRun(100, func() {
			if _, err := s.decode(&r.H, raw, &ev); err != nil {
				t.Fatal(err)
			}
		}); n > allowed {
			t.Errorf("%s: %v allocations", name, n)
		}
	}
}

func TestSockFailLookRate(t *testing.T) {
	p := newProber(hostfs.New(t.TempDir()))
	now := time.Unix(1000, 0)
	took := 0
	for range 2 * lookBurst {
		if p.take(now) {
			took++
		}
	}
	if took != lookBurst || p.over != uint64(2*lookBurst-took) {
		t.Errorf("took %d, refused %d", took, p.over)
	}
	if !p.take(now.Add(time.Second / lookRate)) {
		t.Error("no token after its time")
	}
	p.looks = rate.NewLimiter(lookRate, lookBurst)
	if l := p.look(&question{place: place{reset: true}, established: true}); l != (looked{}) || p.looks.TokensAt(now) != lookBurst {
		t.Errorf("looked for what needs no look: %+v", l)
	}
}

func TestDropReasonNames(t *testing.T) {
	d := dropReasons{
		core: map[uint64]string{12: "NETFILTER_DROP"}, subsys: map[uint64]string{3: "SKB_DROP_REASON_SUBSYS_OPENVSWITCH"},
		unknown: map[uint32]string{},
	}
	for reason, want := range map[uint32]string{12: "NETFILTER_DROP", 99: "reason 99", 3<<16 | 5: "openvswitch reason 5", 9<<16 | 1: "reason 589825"} {
		if got := d.name(reason); got != want {
			t.Errorf("%d: %q, want %q", reason, got, want)
		}
	}
	for i := range uint32(1000) {
		d.name(1<<20 + i)
	}
	if len(d.unknown) > maxReasons {
		t.Errorf("%d names kept", len(d.unknown))
	}
}

func FuzzDecodeSockfail(f *testing.F) {
	for _, kind := range []bpf.RecordKind{bpf.KindSockFail, bpf.KindSockFailRecovered, 0} {
		f.Add(append([]byte(nil), rawSock(sockRecord(kind))...), uint8(0))
	}
	f.Add([]byte("short"), uint8(1))
	s := testSockFail(f)
	f.Fuzz(func(t *testing.T, data []byte, kind uint8) {
		// The ring aligns records to 8 bytes; a byte slice may not be aligned.
		words := make([]uint64, (len(data)+7)/8)
		raw := unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(words))), len(words)*8)[:len(data)]
		copy(raw, data)
		h := bpf.Header{Kind: bpf.RecordKind(kind)}
		if got, err := bpf.ParseHeader(raw); err == nil {
			h = *got
		}
		s.prober.looks = rate.NewLimiter(0, 0) // no lookups of what is in the record
		var ev event.Event
		ok, err := s.decode(&h, raw, &ev)
		if err != nil || !ok {
			return
		}
		d := ev.SockFail
		if ev.Kind == event.SockFail && d.Verdict == "" || len(d.Evidence) > maxEvidence || len(d.Excluded) > maxEvidence {
			t.Errorf("%+v", d)
		}
		for _, text := range append(append([]string{d.Target, ev.Task.Comm}, d.Evidence...), d.Excluded...) {
			if display.Safe(text, len(text)) != text {
				t.Errorf("unsafe text %q", text)
			}
		}
	})
}
