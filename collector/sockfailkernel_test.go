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
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/link"
	"github.com/cilium/ebpf/rlimit"
	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"

	"github.com/kernosis/kernosis/bpf"
	"github.com/kernosis/kernosis/collector/event"
	"github.com/kernosis/kernosis/collector/hostfs"
)

// sockNet is a network namespace of the test's own, with a process in it.
type sockNet struct {
	ns    netns.NsHandle
	inode uint32
}

const sockHolder = "KERNOSIS_TEST_NETNS_HOLDER"

// TestSockFailHolder is the process in a sockNet: it ends with its parent.
func TestSockFailHolder(t *testing.T) {
	if os.Getenv(sockHolder) == "" {
		t.Skip("is a part of other tests")
	}
	io.Copy(io.Discard, os.Stdin)
}

// do runs fn in the namespace, on a thread that ends with it.
func (n *sockNet) do(fn func() error) error {
	done := make(chan error)
	go func() {
		runtime.LockOSThread() // and never unlocked
		if err := netns.Set(n.ns); err != nil {
			done <- err
			return
		}
		done <- fn()
	}()
	return <-done
}

func (n *sockNet) in(t *testing.T, fn func() error) {
	t.Helper()
	if err := n.do(fn); err != nil {
		t.Fatal(err)
	}
}

func newSockNet(t *testing.T, setUp func() error) *sockNet {
	t.Helper()
	n := &sockNet{}
	done := make(chan error)
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(exe, "-test.run=^TestSockFailHolder$")
	cmd.Env = append(os.Environ(), sockHolder+"=1")
	stdin, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	go func() {
		runtime.LockOSThread()
		if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
			done <- fmt.Errorf("unshare: %w", err)
			return
		}
		var err error
		if n.ns, err = netns.Get(); err == nil {
			// A forked process is in the thread's namespace.
			err = cmd.Start()
		}
		done <- err
	}()
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		stdin.Close()
		cmd.Wait()
		n.ns.Close()
	})
	var st unix.Stat_t
	if err := unix.Fstat(int(n.ns), &st); err != nil {
		t.Fatal(err)
	}
	n.inode = uint32(st.Ino)
	n.in(t, func() error {
		lo, err := netlink.LinkByName("lo")
		if err != nil {
			return err
		}
		return errors.Join(netlink.LinkSetUp(lo), setUp())
	})
	return n
}

// sockPair makes two namespaces: the prober's with 10.97.31.1 and fd97::1, the
// target's with 10.97.31.2 and fd97::2.
func sockPair(t *testing.T) (prober, target *sockNet) {
	t.Helper()
	target = newSockNet(t, func() error { return os.WriteFile("/proc/sys/net/ipv4/ip_forward", []byte("1"), 0) })
	prober = newSockNet(t, func() error {
		return netlink.LinkAdd(&netlink.Veth{
			LinkAttrs: netlink.LinkAttrs{Name: "probe0"}, PeerName: "probe0", PeerNamespace: netlink.NsFd(target.ns),
		})
	})
	for i, n := range []*sockNet{prober, target} {
		n.in(t, func() error {
			l, err := netlink.LinkByName("probe0")
			if err != nil {
				return err
			}
			for _, a := range []string{"10.97.31.%d/24", "fd97::%d/64"} {
				addr, err := netlink.ParseAddr(fmt.Sprintf(a, i+1))
				if err != nil {
					return err
				}
				addr.Flags = unix.IFA_F_NODAD
				if err := netlink.AddrAdd(l, addr); err != nil {
					return fmt.Errorf("address %s: %w", addr, err)
				}
			}
			return netlink.LinkSetUp(l)
		})
	}
	// Until then packets vanish: the kernel activates a queue up to a second
	// after the carrier is there.
	for _, n := range []*sockNet{prober, target} {
		n.in(t, func() error {
			for end := time.Now().Add(5 * time.Second); ; time.Sleep(time.Millisecond) {
				l, err := netlink.LinkByName("probe0")
				if err != nil {
					return err
				}
				if l.Attrs().OperState == netlink.OperUp {
					return nil
				}
				if time.Now().After(end) {
					return fmt.Errorf("link is %s", l.Attrs().OperState)
				}
			}
		})
	}
	return prober, target
}

// sockAgent is the stem as the agent runs it, on the real kernel.
type sockAgent struct {
	t *testing.T
	l *bpf.Loaded
	s *sockfail
}

func newSockAgent(t *testing.T, targets ...Target) *sockAgent {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root to load programs")
	}
	if err := rlimit.RemoveMemlock(); err != nil {
		t.Fatal(err)
	}
	k, err := bpf.OpenKernel()
	if err != nil {
		t.Fatal(err)
	}
	a := &sockAgent{t: t}
	for _, s := range bpf.Stems() {
		if s.Name == bpf.StemSockFail {
			a.l, err = bpf.Open(s, k, nil)
		}
	}
	if err != nil {
		t.Fatal(err)
	}
	a.s = newSockFail(sockEnvironment(k, targets), a.l)
	t.Cleanup(func() {
		if err := a.l.WatchTargets(nil); err != nil {
			t.Error(err)
		}
		a.l.Close()
	})
	a.poll()
	return a
}

func sockEnvironment(k *bpf.Kernel, targets []Target) *environment {
	fs := hostfs.New("/")
	return &environment{
		log: slog.New(slog.DiscardHandler), fs: fs, clock: hostfs.NewClock(), symbols: hostfs.NewSymbols(fs),
		attributor: hostfs.NewAttributor(64, nil), kernel: k, cfg: Config{HostRoot: "/", Targets: targets},
	}
}

func (a *sockAgent) poll() {
	a.t.Helper()
	if _, err := a.s.poll(a.t.Context(), time.Now(), nil); err != nil {
		a.t.Fatal(err)
	}
}

// events waits until n events have come, and returns them all.
func (a *sockAgent) events(n int) []*event.Event {
	a.t.Helper()
	p, err := bpf.NewPoller(a.l.Ring())
	if err != nil {
		a.t.Fatal(err)
	}
	defer p.Close()
	var out []*event.Event
	for end := time.Now().Add(5 * time.Second); ; {
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

// probe connects and, with a request, waits for an answer.
func (n *sockNet) probe(to string, timeout time.Duration, request string) error {
	return n.do(func() error {
		c, err := net.DialTimeout("tcp", to, timeout)
		if err != nil {
			return err
		}
		defer c.Close()
		if request == "" {
			return nil
		}
		c.SetDeadline(time.Now().Add(timeout))
		if _, err := io.WriteString(c, request); err != nil {
			return err
		}
		_, err = c.Read(make([]byte, 1))
		return err
	})
}

// listen makes a listener that nobody accepts from.
func (n *sockNet) listen(t *testing.T, at string, backlog int) {
	t.Helper()
	ap := netip.MustParseAddrPort(at)
	n.in(t, func() error {
		family, sa := unix.AF_INET, unix.Sockaddr(&unix.SockaddrInet4{Port: int(ap.Port())})
		if ap.Addr().Is4() {
			sa.(*unix.SockaddrInet4).Addr = ap.Addr().As4()
		} else {
			family, sa = unix.AF_INET6, &unix.SockaddrInet6{Port: int(ap.Port()), Addr: ap.Addr().As16()}
		}
		fd, err := unix.Socket(family, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			return err
		}
		t.Cleanup(func() { unix.Close(fd) })
		return errors.Join(unix.Bind(fd, sa), unix.Listen(fd, backlog))
	})
}

// serve handles each connection with fn.
func (n *sockNet) serve(t *testing.T, at string, fn func(net.Conn)) {
	t.Helper()
	var l net.Listener
	n.in(t, func() (err error) {
		l, err = net.Listen("tcp", at)
		return err
	})
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				c.SetDeadline(time.Now().Add(3 * time.Second))
				fn(c)
			}()
		}
	}()
}

func contains(list []string, part string) bool {
	return slices.ContainsFunc(list, func(s string) bool { return strings.Contains(s, part) })
}

// anyErrno: whether the error is still there when the socket closes depends on
// which of the resolution's end and the SYN's retransmission comes first.
const anyErrno = "any"

// Each fault is made for real, and told by its name.
func TestSockFailVerdicts(t *testing.T) {
	const short = 150 * time.Millisecond
	for _, c := range []struct {
		name     string
		setUp    func(t *testing.T, prober, target *sockNet)
		to       string
		timeout  time.Duration
		request  string
		verdict  string
		phase    string
		errno    string
		evidence string
		excluded string
		queue    [2]uint32
	}{
		{name: "refused", to: "10.97.31.2:81", verdict: event.VerdictRefused, errno: "ECONNREFUSED", evidence: "no listener on 10.97.31.2:81"},
		{name: "refused, IPv6", to: "[fd97::2]:81", verdict: event.VerdictRefused, errno: "ECONNREFUSED", evidence: "no listener on [fd97::2]:81"},
		{
			name: "blackhole", to: "10.97.31.50:80", verdict: event.VerdictTimeout,
			setUp:    func(t *testing.T, prober, _ *sockNet) { prober.deadEnd(t, "10.97.31.50") },
			evidence: "no answer", excluded: "PERMANENT",
		},
		{
			name: "blackhole, IPv6", to: "[fd97::50]:80", verdict: event.VerdictTimeout,
			setUp:    func(t *testing.T, prober, _ *sockNet) { prober.deadEnd(t, "fd97::50") },
			evidence: "no answer", excluded: "via probe0",
		},
		{
			name: "accept queue full", to: "10.97.31.2:80", verdict: event.VerdictAcceptQueueFull,
			setUp: fillQueue("10.97.31.2:80"), evidence: "1/0", excluded: "via probe0", queue: [2]uint32{1, 0},
		},
		{
			name: "accept queue full, any address", to: "10.97.31.2:80", verdict: event.VerdictAcceptQueueFull,
			setUp: fillQueue("[::]:80"), evidence: "1/0", queue: [2]uint32{1, 0},
		},
		{
			name: "accept queue full, IPv6", to: "[fd97::2]:80", verdict: event.VerdictAcceptQueueFull,
			setUp: fillQueue("[fd97::2]:80"), evidence: "1/0", queue: [2]uint32{1, 0},
		},
		{
			name: "reset", to: "10.97.31.2:80", request: "ping", verdict: event.VerdictReset, phase: "established", errno: "ECONNRESET",
			setUp: func(t *testing.T, _, target *sockNet) {
				target.serve(t, "10.97.31.2:80", func(c net.Conn) {
					c.Read(make([]byte, 4))
					c.(*net.TCPConn).SetLinger(0)
				})
			},
			evidence: "reset",
		},
		{
			name: "connected, silent", to: "10.97.31.2:80", request: "ping", verdict: event.VerdictSilent, phase: "established",
			setUp: func(t *testing.T, _, target *sockNet) {
				target.serve(t, "10.97.31.2:80", func(c net.Conn) { io.ReadAll(c); time.Sleep(time.Second) })
			},
			evidence: "acknowledged: 4 bytes", excluded: "a process has the connection",
		},
		{
			name: "not accepted", to: "10.97.31.2:80", request: "ping", verdict: event.VerdictNotAccepted, phase: "established",
			setUp:    func(t *testing.T, _, target *sockNet) { target.listen(t, "10.97.31.2:80", 5) },
			evidence: "queue 1/5", queue: [2]uint32{1, 5},
		},
		{
			name: "not accepted, IPv6", to: "[fd97::2]:80", request: "ping", verdict: event.VerdictNotAccepted, phase: "established",
			setUp:    func(t *testing.T, _, target *sockNet) { target.listen(t, "[::]:80", 5) },
			evidence: "queue 1/5", queue: [2]uint32{1, 5},
		},
		{name: "no route", to: "10.99.0.1:80", verdict: event.VerdictNoRoute, errno: "ENETUNREACH", evidence: "route: none"},
		{name: "blackhole route", to: "10.11.0.1:80", verdict: event.VerdictNoRoute, errno: "EINVAL", evidence: "route: blackhole", setUp: routeTo("10.11.0.0/24", unix.RTN_BLACKHOLE)},
		{name: "prohibit route", to: "10.11.0.1:80", verdict: event.VerdictNoRoute, errno: "EACCES", evidence: "route: prohibit", setUp: routeTo("10.11.0.0/24", unix.RTN_PROHIBIT)},
		{name: "unreachable route", to: "10.11.0.1:80", verdict: event.VerdictNoRoute, errno: "EHOSTUNREACH", evidence: "route: unreachable", setUp: routeTo("10.11.0.0/24", unix.RTN_UNREACHABLE)},
		{name: "prohibit route, IPv6", to: "[fd11::1]:80", verdict: event.VerdictNoRoute, errno: "EACCES", evidence: "route: prohibit", setUp: routeTo("fd11::/64", unix.RTN_PROHIBIT)},
		{
			name: "dead neighbour, still asked for", to: "10.97.31.77:80", timeout: 700 * time.Millisecond,
			verdict: event.VerdictNeighborFailed, evidence: "neighbor 10.97.31.77: INCOMPLETE",
		},
		{
			name: "dead neighbour", to: "10.97.31.77:80", timeout: 5 * time.Second,
			verdict: event.VerdictNeighborFailed, errno: anyErrno, evidence: "neighbor 10.97.31.77: ",
		},
		{
			name: "dead neighbour, IPv6", to: "[fd97::77]:80", timeout: 5 * time.Second,
			verdict: event.VerdictNeighborFailed, errno: anyErrno, evidence: "neighbor fd97::77: ",
		},
		{
			name: "ICMP", to: "10.10.0.1:80", verdict: event.VerdictUnreachable, errno: "EHOSTUNREACH",
			setUp: func(t *testing.T, prober, target *sockNet) {
				routeTo("10.10.0.0/24", unix.RTN_UNREACHABLE)(t, target, nil)
				prober.via(t, "10.10.0.0/24", "10.97.31.2")
			},
			evidence: "ICMP host unreachable came back", excluded: "via probe0, next hop 10.97.31.2",
		},
		{
			name: "ICMP, IPv6", to: "[fd10::1]:80", verdict: event.VerdictUnreachable,
			setUp: func(t *testing.T, prober, target *sockNet) {
				target.in(t, func() error {
					return os.WriteFile("/proc/sys/net/ipv6/conf/all/forwarding", []byte("1"), 0)
				})
				routeTo("fd10::/64", unix.RTN_UNREACHABLE)(t, target, nil)
				prober.via(t, "fd10::/64", "fd97::2")
			},
			evidence: "the socket was told ENETUNREACH, and went on trying",
		},
		{
			name: "dropped on this node", to: "10.97.31.2:80", verdict: event.VerdictLocalDrop,
			setUp: func(t *testing.T, prober, target *sockNet) {
				target.listen(t, "10.97.31.2:80", 5)
				prober.deadEnd(t, "10.97.31.2") // ARP would be dropped too
				target.dropAll(t)
			},
			evidence: "TC_INGRESS", excluded: "listener present: queue 0/5",
		},
		{
			name: "ports exhausted", to: "10.97.31.2:80", verdict: event.VerdictPortsExhausted,
			setUp: func(t *testing.T, prober, target *sockNet) {
				target.listen(t, "10.97.31.2:80", 5)
				prober.in(t, func() error {
					if err := os.WriteFile("/proc/sys/net/ipv4/ip_local_port_range", []byte("40000 40000"), 0); err != nil {
						return err
					}
					c, err := net.Dial("tcp", "10.97.31.2:80")
					if err == nil {
						t.Cleanup(func() { c.Close() })
					}
					return err
				})
			},
			evidence: "no free local port",
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			if c.timeout == 0 {
				c.timeout = short
			}
			prober, target := sockPair(t)
			if c.setUp != nil {
				c.setUp(t, prober, target)
			}
			dst := netip.MustParseAddrPort(c.to)
			a := newSockAgent(t, Target{Name: "the target", Address: dst.Addr(), Port: dst.Port(), NetNS: prober.inode})
			err := prober.probe(c.to, c.timeout, c.request)
			if err == nil {
				t.Fatal("the probe succeeded")
			}
			t.Log("probe:", err)
			ev := a.events(1)[0]
			d := ev.SockFail
			t.Logf("%s %s %s after %s\nevidence %q\nexcluded %q", d.Verdict, d.Phase, d.Errno, d.Duration, d.Evidence, d.Excluded)
			if c.phase == "" {
				c.phase = "connect"
			}
			if ev.Kind != event.SockFail || d.Verdict != c.verdict || d.Phase != c.phase || c.errno != anyErrno && d.Errno != c.errno || d.Target != "the target" {
				t.Errorf("want %s %s %q", c.verdict, c.phase, c.errno)
			}
			if !contains(d.Evidence, c.evidence) || c.excluded != "" && !contains(d.Excluded, c.excluded) {
				t.Errorf("want evidence %q, excluded %q", c.evidence, c.excluded)
			}
			if (c.queue != [2]uint32{}) && (d.QueueLen != c.queue[0] || d.QueueMax != c.queue[1]) {
				t.Errorf("queue %d/%d, want %v", d.QueueLen, d.QueueMax, c.queue)
			}
			if ev.Conn.Dst != dst || ev.Conn.NetNS != prober.inode || ev.Task.TGID != uint32(os.Getpid()) {
				t.Errorf("connection %+v of %+v", ev.Conn, ev.Task)
			}
		})
	}
}

// deadEnd gives an address a link address that nobody has.
func (n *sockNet) deadEnd(t *testing.T, addr string) {
	t.Helper()
	n.in(t, func() error {
		l, err := netlink.LinkByName("probe0")
		if err != nil {
			return err
		}
		return netlink.NeighAdd(&netlink.Neigh{
			LinkIndex: l.Attrs().Index, IP: net.ParseIP(addr), State: netlink.NUD_PERMANENT,
			HardwareAddr: net.HardwareAddr{2, 0, 0, 0, 0, 0x50},
		})
	})
}

// fillQueue makes a listener whose accept queue has its one place taken.
func fillQueue(at string) func(t *testing.T, prober, target *sockNet) {
	return func(t *testing.T, prober, target *sockNet) {
		target.listen(t, at, 0)
		ap := netip.MustParseAddrPort(at)
		to := ap
		if ap.Addr().IsUnspecified() {
			to = netip.AddrPortFrom(netip.MustParseAddr("10.97.31.2"), ap.Port())
		}
		prober.in(t, func() error {
			c, err := net.Dial("tcp", to.String())
			if err == nil {
				t.Cleanup(func() { c.Close() })
			}
			return err
		})
	}
}

func routeTo(dst string, kind int) func(t *testing.T, prober, target *sockNet) {
	return func(t *testing.T, prober, _ *sockNet) {
		t.Helper()
		_, n, err := net.ParseCIDR(dst)
		if err != nil {
			t.Fatal(err)
		}
		prober.in(t, func() error { return netlink.RouteAdd(&netlink.Route{Dst: n, Type: kind}) })
	}
}

func (n *sockNet) via(t *testing.T, dst, gw string) {
	t.Helper()
	_, d, err := net.ParseCIDR(dst)
	if err != nil {
		t.Fatal(err)
	}
	n.in(t, func() error { return netlink.RouteAdd(&netlink.Route{Dst: d, Gw: net.ParseIP(gw)}) })
}

// dropAll has the namespace's device drop every packet that comes in.
func (n *sockNet) dropAll(t *testing.T) {
	t.Helper()
	err := n.do(func() error {
		l, err := netlink.LinkByName("probe0")
		if err != nil {
			return err
		}
		p, err := ebpf.NewProgram(&ebpf.ProgramSpec{
			Type: ebpf.SchedCLS, License: "GPL",
			Instructions: asm.Instructions{asm.Mov.Imm(asm.R0, 2), asm.Return()}, // TCX_DROP
		})
		if err != nil {
			return err
		}
		defer p.Close()
		lk, err := link.AttachTCX(link.TCXOptions{Interface: l.Attrs().Index, Program: p, Attach: ebpf.AttachTCXIngress})
		if err == nil {
			t.Cleanup(func() { lk.Close() })
		}
		return err
	})
	if errors.Is(err, ebpf.ErrNotSupported) {
		t.Skip("needs tcx (v6.6) to drop packets:", err)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// One event for each failure, none for success, one for the recovery.
func TestSockFailCounts(t *testing.T) {
	prober, target := sockPair(t)
	a := newSockAgent(t, Target{Address: netip.MustParseAddr("10.97.31.2"), NetNS: prober.inode, TargetNetNS: target.inode})
	for range 23 {
		if err := prober.probe("10.97.31.2:80", time.Second, ""); !errors.Is(err, syscall.ECONNREFUSED) {
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
	if looked < lookRate || uint64(23-looked) != a.s.prober.over {
		t.Errorf("%d looked into, %d counted as not", looked, a.s.prober.over)
	}
	target.serve(t, "10.97.31.2:80", func(c net.Conn) { io.Copy(c, c) })
	for range 3 {
		if err := prober.probe("10.97.31.2:80", time.Second, "x"); err != nil {
			t.Fatal(err)
		}
	}
	evs = a.events(1)
	if len(evs) != 1 || evs[0].Kind != event.SockFailRecovered || evs[0].SockFail.Target != "10.97.31.2:80" {
		t.Fatalf("want one recovery, got %+v", evs)
	}
}

// A file of targets is watched as soon as it is there, and until it goes.
func TestSockFailTargetFile(t *testing.T) {
	prober, _ := sockPair(t)
	a := newSockAgent(t)
	dir := filepath.Join(t.TempDir(), "targets.d")
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	a.s.dir = newTargetDir(dir, a.s.targets, a.s.env.log)
	look := func(n int) {
		t.Helper()
		for end := time.Now().Add(3 * time.Second); ; {
			if _, err := a.s.poll(ctx, time.Now(), nil); err != nil {
				t.Fatal(err)
			}
			if a.s.targets.len() == n {
				return
			}
			if time.Now().After(end) {
				t.Fatalf("%d targets, want %d", a.s.targets.len(), n)
			}
		}
	}
	look(0)
	file := filepath.Join(dir, "inject.yaml")
	text := fmt.Sprintf("targets:\n- name: from a file\n  address: 10.97.31.2\n  netns: %d\n", prober.inode)
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	look(1)
	if err := prober.probe("10.97.31.2:80", time.Second, ""); !errors.Is(err, syscall.ECONNREFUSED) {
		t.Fatal(err)
	}
	if evs := a.events(1); len(evs) != 1 || evs[0].SockFail.Target != "from a file" {
		t.Fatalf("got %+v", evs)
	}
	if err := os.Remove(file); err != nil {
		t.Fatal(err)
	}
	look(0)
	if err := prober.probe("10.97.31.2:80", time.Second, ""); !errors.Is(err, syscall.ECONNREFUSED) {
		t.Fatal(err)
	}
	if evs := a.events(0); len(evs) != 0 {
		t.Fatalf("not watched any more, got %+v", evs)
	}
}
