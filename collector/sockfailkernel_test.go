package collector

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/kernosis/kernosis/bpf"
	"github.com/kernosis/kernosis/collector/event"
	"github.com/kernosis/kernosis/collector/hostfs"
	"github.com/kernosis/kernosis/collector/poller"
	"github.com/kernosis/kernosis/vmtest/netlab"
	"github.com/kernosis/kernosis/vmtest/testenv"
)

// sockAgent is the stem as the agent runs it, on the real kernel.
type sockAgent struct {
	t *testing.T
	l *bpf.Loaded
	s *sockfail
}

func newSockAgent(t *testing.T, targets ...Target) *sockAgent {
	t.Helper()
	k := openKernel(t)
	var err error
	a := &sockAgent{t: t}
	for _, s := range bpf.Stems() {
		if s.Name == bpf.StemSockFail {
			a.l, err = bpf.Open(s, k, nil)
		}
	}
	if err != nil {
		t.Fatal(err)
	}
	env := sockEnvironment(t, k, targets)
	if a.s, err = openSockFail(env, a.l); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := env.close(); err != nil {
			t.Error(err)
		}
		if err := a.l.WatchTargets(bpf.SockTargets{}); err != nil {
			t.Error(err)
		}
		a.l.Close()
	})
	a.poll()
	return a
}

// The maximum number of targets can be watched, besides the canary.
func TestMostTargetsOfTheKernel(t *testing.T) {
	a := newSockAgent(t, manyTargets()...)
	watched, err := a.l.WatchedTargets()
	if err != nil {
		t.Fatal(err)
	}
	if n := len(watched.Keys); n != maxTargets+1 || !a.s.canary.watched {
		t.Errorf("%d are watched, want %d and the canary's: %v", n, maxTargets, a.s.canary.watched)
	}
}

// While targets can't be watched, the stem is blind, because it detects none of their failures.
func TestTargetsThatCanNotBeWatched(t *testing.T) {
	targets := manyTargets()[:1]
	a := newSockAgent(t)
	refused := slices.Clone(targets)
	refused[0].SlowAfter, refused[0].SlowOpeners = time.Second, strings.Repeat("x", bpf.MaxSockOpenerName+1)
	a.s.targets.sources["configuration"], a.s.targets.changed = refused, true // Set would refuse it
	for range maxUnwatched {
		if err := a.s.blind(); err != nil {
			t.Errorf("blind after too few attempts: %v", err)
		}
		if _, err := a.s.poll(t.Context(), time.Now(), nil); err == nil {
			t.Fatal("the target is watched")
		}
	}
	if err := a.s.blind(); err == nil {
		t.Error("not blind")
	}
	if err := a.s.targets.Set("configuration", targets); err != nil {
		t.Fatal(err)
	}
	a.poll()
	if err := a.s.blind(); err != nil {
		t.Errorf("blind although the target is watched: %v", err)
	}
}

func sockEnvironment(t *testing.T, k *bpf.Kernel, targets []Target) *environment {
	t.Helper()
	fs := hostfs.New("/")
	env := &environment{
		log: slog.New(slog.DiscardHandler), fs: fs, clock: hostfs.NewClock(), symbols: hostfs.NewSymbols(fs),
		attributor: hostfs.NewAttributor(64, nil, nil), kernel: k, cfg: Config{HostRoot: "/"}, targets: newTargets(),
	}
	if err := env.targets.Set("configuration", targets); err != nil {
		t.Fatal(err)
	}
	return env
}

func (a *sockAgent) poll() {
	a.t.Helper()
	if _, err := a.s.poll(a.t.Context(), time.Now(), nil); err != nil {
		a.t.Fatal(err)
	}
}

// events waits for n events, and returns them all.
func (a *sockAgent) events(n int) []*event.Event {
	a.t.Helper()
	p, err := poller.New(a.l.Ring().FD())
	if err != nil {
		a.t.Fatal(err)
	}
	defer p.Close()
	var out []*event.Event
	for end := time.Now().Add(testenv.Within(5 * time.Second)); ; {
		if _, err := a.l.Drain(func(raw []byte) {
			h, err := bpf.ParseHeader(raw)
			if err != nil {
				a.t.Fatal(err)
			}
			ev := event.Event{BootTime: event.Duration(h.BootNS)}
			if ok, err := a.s.decode(h, raw, &ev); err != nil {
				a.t.Fatal(err)
			} else if ok {
				out = append(out, ev.Clone())
			}
		}); err != nil {
			a.t.Fatal(err)
		}
		if len(out) >= n {
			break
		}
		if time.Now().After(end) {
			a.t.Fatalf("got %d events, want %d", len(out), n)
		}
		if err := p.Wait(50 * time.Millisecond); err != nil {
			a.t.Fatal(err)
		}
		a.poll()
	}
	if lost, err := a.l.RingFull(); err != nil || lost != 0 {
		a.t.Errorf("lost %d (%v)", lost, err)
	}
	return out
}

func contains(list []string, part string) bool {
	return slices.ContainsFunc(list, func(s string) bool { return strings.Contains(s, part) })
}

// anyErrno: whether the socket still has the error when it closes depends on whether the neighbor
// resolution fails or the SYN is retransmitted first.
const anyErrno = "any"

// provoked is how often each fault is provoked.
const provoked = 23

// sockCase is one way for connections to fail.
type sockCase struct {
	name     string
	needs    string // a program that this case needs
	count    int    // number of faults, if a router limits its answers; 0: provoked
	setUp    func(prober, target *netlab.Net)
	to       string
	timeout  time.Duration
	request  string
	whole    bool // the prober waits for the whole answer
	verdict  string
	phase    string
	errno    string
	evidence string
	excluded string
	queueMax uint32 // of the listener
}

const (
	shortProbe = 150 * time.Millisecond
	// servedProbe gives the server time to act: it accepts, and may answer.
	servedProbe = time.Second
)

// Each fault is real, and is reported with its verdict each time.
func TestSockFailVerdicts(t *testing.T) {
	testenv.OnlyInTestAll(t)
	for _, c := range []sockCase{
		{name: "refused", to: "10.97.31.2:81", verdict: event.VerdictRefused, errno: "ECONNREFUSED", evidence: "no listener on 10.97.31.2:81"},
		{
			name: "refused, something else listens", to: "10.97.31.2:81", verdict: event.VerdictRefused, errno: "ECONNREFUSED",
			setUp: func(_, target *netlab.Net) {
				for _, at := range []string{"127.0.0.1:81", "10.97.31.2:8081", "[::]:9090"} {
					target.Listen(at, 1)
				}
			},
			evidence: "listens on 127.0.0.1:81, :8081, :9090",
		},
		{name: "refused, IPv6", to: "[fd97:31::2]:81", verdict: event.VerdictRefused, errno: "ECONNREFUSED", evidence: "no listener on [fd97:31::2]:81"},
		{
			name: "blackhole", to: "10.97.31.50:80", verdict: event.VerdictTimeout,
			setUp:    func(prober, _ *netlab.Net) { prober.AddGhost("10.97.31.50") },
			evidence: "no answer", excluded: "PERMANENT",
		},
		{
			name: "blackhole, IPv6", to: "[fd97:31::50]:80", verdict: event.VerdictTimeout,
			setUp:    func(prober, _ *netlab.Net) { prober.AddGhost("fd97:31::50") },
			evidence: "no answer", excluded: "via probe0",
		},
		{
			name: "accept queue full", to: "10.97.31.2:80", verdict: event.VerdictAcceptQueueFull,
			setUp: fillQueue("10.97.31.2:80"), evidence: "1/0", excluded: "via probe0",
		},
		{
			name: "accept queue full, any address", to: "10.97.31.2:80", verdict: event.VerdictAcceptQueueFull,
			setUp: fillQueue("[::]:80"), evidence: "1/0",
		},
		{
			name: "accept queue full, IPv6", to: "[fd97:31::2]:80", verdict: event.VerdictAcceptQueueFull,
			setUp: fillQueue("[fd97:31::2]:80"), evidence: "1/0",
		},
		{
			name: "reset", to: "10.97.31.2:80", timeout: testenv.Within(5 * time.Second), request: "ping", verdict: event.VerdictReset, phase: "established", errno: "ECONNRESET",
			setUp: func(_, target *netlab.Net) {
				target.Serve("10.97.31.2:80", func(c net.Conn) {
					c.Read(make([]byte, 4))
					c.(*net.TCPConn).SetLinger(0)
				})
			},
			evidence: "reset",
		},
		{
			name: "connected, silent", to: "10.97.31.2:80", timeout: servedProbe, request: "ping", verdict: event.VerdictSilent, phase: "established",
			setUp: func(_, target *netlab.Net) {
				target.Serve("10.97.31.2:80", func(c net.Conn) { hang(c) })
			},
			evidence: "acknowledged: 4 bytes", excluded: "a process has the connection",
		},
		{
			name: "slow", to: "10.97.31.2:80", timeout: servedProbe, request: "ping", whole: true, verdict: event.VerdictSlow, phase: "established",
			setUp:    begins("10.97.31.2:80"),
			evidence: "5 bytes came back", excluded: "network RTT",
		},
		{
			name: "slow, IPv6", to: "[fd97:31::2]:80", timeout: servedProbe, request: "ping", whole: true, verdict: event.VerdictSlow, phase: "established",
			setUp:    begins("[fd97:31::2]:80"),
			evidence: "its limit is 1s", excluded: "a process has the connection",
		},
		{
			name: "not accepted", to: "10.97.31.2:80", request: "ping", verdict: event.VerdictNotAccepted, phase: "established",
			setUp:    func(_, target *netlab.Net) { target.Listen("10.97.31.2:80", 2*provoked) },
			evidence: "/46", queueMax: 46,
		},
		{
			name: "not accepted, IPv6", to: "[fd97:31::2]:80", request: "ping", verdict: event.VerdictNotAccepted, phase: "established",
			setUp:    func(_, target *netlab.Net) { target.Listen("[::]:80", 2*provoked) },
			evidence: "/46", queueMax: 46,
		},
		{name: "no route", to: "10.99.0.1:80", verdict: event.VerdictNoRoute, errno: "ENETUNREACH", evidence: "route: none"},
		{name: "blackhole route", to: "10.11.0.1:80", verdict: event.VerdictNoRoute, errno: "EINVAL", evidence: "route: blackhole", setUp: routeTo("10.11.0.0/24", netlab.Blackhole)},
		{name: "prohibit route", to: "10.11.0.1:80", verdict: event.VerdictNoRoute, errno: "EACCES", evidence: "route: prohibit", setUp: routeTo("10.11.0.0/24", netlab.Prohibit)},
		{name: "unreachable route", to: "10.11.0.1:80", verdict: event.VerdictNoRoute, errno: "EHOSTUNREACH", evidence: "route: unreachable", setUp: routeTo("10.11.0.0/24", netlab.Unreachable)},
		{name: "prohibit route, IPv6", to: "[fd11::1]:80", verdict: event.VerdictNoRoute, errno: "EACCES", evidence: "route: prohibit", setUp: routeTo("fd11::/64", netlab.Prohibit)},
		{
			name: "dead neighbour, still asked for", to: "10.97.31.77:80", timeout: 700 * time.Millisecond,
			verdict: event.VerdictNeighborFailed, evidence: "neighbor 10.97.31.77: INCOMPLETE",
		},
		{
			name: "dead neighbour", to: "10.97.31.77:80", timeout: 5 * time.Second,
			verdict: event.VerdictNeighborFailed, errno: anyErrno, evidence: "neighbor 10.97.31.77: ",
		},
		{
			name: "dead neighbour, IPv6", to: "[fd97:31::77]:80", timeout: 5 * time.Second,
			verdict: event.VerdictNeighborFailed, errno: anyErrno, evidence: "neighbor fd97:31::77: ",
		},
		{
			name: "ICMP", count: 2, to: "10.10.0.1:80", verdict: event.VerdictUnreachable, errno: "EHOSTUNREACH",
			setUp: func(prober, target *netlab.Net) {
				target.AddRoute("10.10.0.0/24", netlab.Unreachable)
				prober.AddRouteVia("10.10.0.0/24", "10.97.31.2")
			},
			evidence: "ICMP host unreachable came back", excluded: "via probe0, next hop 10.97.31.2",
		},
		{
			name: "ICMP, IPv6", to: "[fd10::1]:80", verdict: event.VerdictUnreachable,
			setUp: func(prober, target *netlab.Net) {
				target.Sysctl("net/ipv6/icmp/ratelimit", "0")
				target.AddRoute("fd10::/64", netlab.Unreachable)
				prober.AddRouteVia("fd10::/64", "fd97:31::2")
			},
			evidence: "the socket received ENETUNREACH, and kept trying",
		},
		{
			name: "dropped on this node", to: "10.97.31.2:80", verdict: event.VerdictLocalDrop,
			setUp: func(prober, target *netlab.Net) {
				target.Listen("10.97.31.2:80", 5)
				target.DropTCP()
			},
			evidence: "TC_INGRESS", excluded: "listener present: queue 0/5",
		},
		{
			name: "ports exhausted", to: "10.97.31.2:80", verdict: event.VerdictPortsExhausted,
			setUp: func(prober, target *netlab.Net) {
				target.Listen("10.97.31.2:80", 5)
				prober.Sysctl("net/ipv4/ip_local_port_range", "40000 40000")
				prober.Dial("10.97.31.2:80")
			},
			evidence: "no free local port",
		},
		{
			name: "firewall drops", to: "10.97.31.2:80", verdict: event.VerdictLocalDrop, needs: "nft",
			setUp:    firewall("10.97.31.2:80", "drop"),
			evidence: "NETFILTER_DROP", excluded: "listener present",
		},
		{
			name: "firewall resets", to: "10.97.31.2:80", verdict: event.VerdictLocalDrop, errno: "ECONNREFUSED", needs: "nft",
			setUp:    firewall("10.97.31.2:80", "reject with tcp reset"),
			evidence: "NETFILTER_DROP", excluded: "listener present",
		},
		{
			name: "firewall rejects", to: "10.97.31.2:80", verdict: event.VerdictUnreachable, errno: anyErrno, needs: "nft",
			setUp: func(prober, target *netlab.Net) {
				target.Sysctl("net/ipv4/icmp_ratelimit", "0")
				firewall("10.97.31.2:80", "reject with icmpx host-unreachable")(prober, target)
			},
			evidence: "ICMP host unreachable",
		},
		{
			name: "firewall rejects, IPv6", to: "[fd97:31::2]:80", verdict: event.VerdictUnreachable, errno: anyErrno, needs: "nft",
			setUp: func(prober, target *netlab.Net) {
				target.Sysctl("net/ipv6/icmp/ratelimit", "0")
				firewall("[fd97:31::2]:80", "reject with icmpx port-unreachable")(prober, target)
			},
			evidence: "ECONNREFUSED",
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			if c.needs != "" {
				if _, err := exec.LookPath(c.needs); err != nil {
					t.Skip("needs a program:", err)
				}
			}
			if c.timeout == 0 {
				c.timeout = shortProbe
			}
			if c.count == 0 {
				c.count = provoked
			}
			if c.phase == "" {
				c.phase = "connect"
			}
			c.run(t)
		})
	}
}

// run provokes the fault.
func (c *sockCase) run(t *testing.T) {
	prober, target := netlab.Pair(t)
	if c.setUp != nil {
		c.setUp(prober, target)
	}
	dst := netip.MustParseAddrPort(c.to)
	a := newSockAgent(t, Target{Name: "the target", Address: dst.Addr(), Port: dst.Port(), NetNS: prober.Inode, SlowAfter: servedProbe})
	errs, err := prober.Probes(c.count, c.to, c.timeout, c.request, c.whole)
	if err != nil || slices.Contains(errs, nil) {
		t.Fatalf("some probes succeeded: %v (%v)", errs, err)
	}
	evs := a.events(c.count)
	d := evs[0].SockFail
	t.Logf("probe: %v\n%s %s %s after %s\nevidence %q\nexcluded %q", errs[0], d.Verdict, d.Phase, d.Errno, d.Duration, d.Evidence, d.Excluded)
	if len(evs) != c.count {
		t.Errorf("%d events of %d faults", len(evs), c.count)
	}
	for i, ev := range evs {
		d := ev.SockFail
		switch {
		case ev.Kind != event.SockFail || d.Verdict != c.verdict || d.Phase != c.phase || c.errno != anyErrno && d.Errno != c.errno || d.Target != "the target":
			t.Errorf("%d: %s of %s %s %s %q, want %s %s %q", i, ev.Kind, d.Target, d.Verdict, d.Phase, d.Errno, c.verdict, c.phase, c.errno)
		case !contains(d.Evidence, c.evidence) || c.excluded != "" && !contains(d.Excluded, c.excluded):
			t.Errorf("%d: want evidence %q, excluded %q, got %q, %q", i, c.evidence, c.excluded, d.Evidence, d.Excluded)
		case c.queueMax != 0 && (d.QueueLen == 0 || d.QueueMax != c.queueMax):
			t.Errorf("%d: queue %d/%d, want it of %d", i, d.QueueLen, d.QueueMax, c.queueMax)
		case ev.Conn.Dst != dst || ev.Conn.NetNS != prober.Inode || ev.Task.TGID != uint32(os.Getpid()):
			t.Errorf("%d: connection %+v of %+v", i, ev.Conn, ev.Task)
		}
	}
}

// begins returns a setup with a server that begins an answer but does not finish it.
func begins(at string) func(prober, target *netlab.Net) {
	return func(_, target *netlab.Net) {
		target.Serve(at, func(c net.Conn) {
			c.Read(make([]byte, 4))
			io.WriteString(c, "begun")
			hang(c)
		})
	}
}

// hang acts like a process that hangs: it keeps the connection after the prober has left, for
// longer than a lookup takes.
func hang(c net.Conn) {
	io.ReadAll(c)
	time.Sleep(time.Second)
}

// firewall returns a setup with a listener whose packets a rule of its namespace blocks.
func firewall(at, rule string) func(prober, target *netlab.Net) {
	return func(_, target *netlab.Net) {
		target.Listen(at, 2)
		target.Command("nft", "table inet fault { chain fault { type filter hook input priority 0; tcp dport 80 "+rule+"; }; }")
	}
}

// fillQueue returns a setup with a listener whose accept queue is full: its only place is taken.
func fillQueue(at string) func(prober, target *netlab.Net) {
	return func(prober, target *netlab.Net) {
		target.Listen(at, 0)
		to := netip.MustParseAddrPort(at)
		if to.Addr().IsUnspecified() {
			to = netip.AddrPortFrom(netip.MustParseAddr("10.97.31.2"), to.Port())
		}
		prober.Dial(to.String())
	}
}

func routeTo(subnet string, kind netlab.Kind) func(prober, target *netlab.Net) {
	return func(prober, _ *netlab.Net) { prober.AddRoute(subnet, kind) }
}

// One event for each failure, none for success, one for the recovery.
func TestSockFailCounts(t *testing.T) {
	prober, target := netlab.Pair(t)
	a := newSockAgent(t, Target{Address: netip.MustParseAddr("10.97.31.2"), NetNS: prober.Inode, TargetNetNS: target.Inode})
	for range 23 {
		if err := prober.Probe("10.97.31.2:80", time.Second, ""); !errors.Is(err, syscall.ECONNREFUSED) {
			t.Fatal(err)
		}
	}
	evs := a.events(23)
	if len(evs) != 23 {
		t.Fatalf("23 failures, %d events", len(evs))
	}
	looked := 0
	for _, ev := range evs {
		if ev.SockFail.Verdict != event.VerdictRefused || ev.SockFail.Target != "10.97.31.2:80" {
			t.Errorf("event %+v", ev.SockFail)
		}
		if contains(ev.SockFail.Evidence, "no listener") {
			looked++
		}
	}
	if looked != 23 || a.s.prober.over != 0 {
		t.Errorf("%d looked into, %d counted as not", looked, a.s.prober.over)
	}
	target.Serve("10.97.31.2:80", netlab.Echo)
	for range 3 {
		if err := prober.Probe("10.97.31.2:80", time.Second, "x"); err != nil {
			t.Fatal(err)
		}
	}
	evs = a.events(1)
	if len(evs) != 1 || evs[0].Kind != event.SockFailRecovered || evs[0].SockFail.Target != "10.97.31.2:80" {
		t.Fatalf("want one recovery, got %+v", evs)
	}
}

// The targets of a file are watched from its creation until its removal.
func TestSockFailTargetFile(t *testing.T) {
	prober, _ := netlab.Pair(t)
	a := newSockAgent(t)
	dir := filepath.Join(t.TempDir(), "targets.d")
	ctx, stop := context.WithCancel(t.Context())
	targets := &targetDir{path: dir, targets: a.s.targets, log: a.s.env.log}
	var g sync.WaitGroup
	g.Go(func() { _ = targets.run(ctx) })
	defer g.Wait()
	defer stop()
	look := func(n int) {
		t.Helper()
		testenv.UntilShown(t, fmt.Sprintf("%d targets", n), 3*time.Second, func() (bool, string) {
			if _, err := a.s.poll(ctx, time.Now(), nil); err != nil {
				t.Fatal(err)
			}
			got := a.s.targets.len()
			return got == n, strconv.Itoa(got)
		})
	}
	testenv.UntilShown(t, "the folder", 3*time.Second, func() (bool, string) {
		_, err := os.Stat(dir)
		return err == nil, fmt.Sprint(err)
	})
	look(0)
	file := filepath.Join(dir, "inject.yaml")
	text := fmt.Sprintf("targets:\n- name: from a file\n  address: 10.97.31.2\n  netns: %d\n", prober.Inode)
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	look(1)
	if err := prober.Probe("10.97.31.2:80", time.Second, ""); !errors.Is(err, syscall.ECONNREFUSED) {
		t.Fatal(err)
	}
	if evs := a.events(1); len(evs) != 1 || evs[0].SockFail.Target != "from a file" {
		t.Fatalf("got %+v", evs)
	}
	if err := os.Remove(file); err != nil {
		t.Fatal(err)
	}
	look(0)
	if err := prober.Probe("10.97.31.2:80", time.Second, ""); !errors.Is(err, syscall.ECONNREFUSED) {
		t.Fatal(err)
	}
	if evs := a.events(0); len(evs) != 0 {
		t.Fatalf("not watched any more, got %+v", evs)
	}
}
