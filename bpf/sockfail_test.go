package bpf

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"runtime"
	"syscall"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"

	"github.com/kernosis/kernosis/vmtest/testenv"
)

// testNet is a network namespace of the test, with its loopback up.
type testNet struct {
	ns    netns.NsHandle
	inode uint32
}

// onThread runs fn on a thread that ends with it, so that it does not matter in which namespace the
// thread ends.
func onThread(fn func() error) error {
	done := make(chan error)
	go func() {
		runtime.LockOSThread() // never unlocked
		done <- fn()
	}()
	return <-done
}

func newTestNet(t *testing.T) *testNet {
	t.Helper()
	n := &testNet{}
	err := onThread(func() error {
		if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
			return fmt.Errorf("unshare: %w", err)
		}
		var err error
		if n.ns, err = netns.Get(); err != nil {
			return err
		}
		lo, err := netlink.LinkByName("lo")
		if err != nil {
			return err
		}
		return netlink.LinkSetUp(lo)
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { n.ns.Close() })
	var st unix.Stat_t
	if err := unix.Fstat(int(n.ns), &st); err != nil {
		t.Fatal(err)
	}
	n.inode = uint32(st.Ino)
	return n
}

// in runs fn in the namespace.
func (n *testNet) in(t *testing.T, fn func() error) {
	t.Helper()
	if err := onThread(func() error {
		if err := netns.Set(n.ns); err != nil {
			return err
		}
		return fn()
	}); err != nil {
		t.Fatal(err)
	}
}

// dial connects and expects the error want.
func (n *testNet) dial(t *testing.T, to netip.AddrPort, want error) {
	t.Helper()
	n.in(t, func() error {
		c, err := net.DialTimeout("tcp", to.String(), 3*time.Second)
		if err == nil {
			err = c.Close()
		}
		if !errors.Is(err, want) {
			return fmt.Errorf("dial %s: %w, want %w", to, err, want)
		}
		return nil
	})
}

// listen serves each connection with fn until the test ends.
func (n *testNet) listen(t *testing.T, at string, fn func(net.Conn)) netip.AddrPort {
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
			fn(c)
			c.Close()
		}
	}()
	return l.Addr().(*net.TCPAddr).AddrPort()
}

// watch opens the stem with these targets.
func watch(t *testing.T, k *Kernel, keys ...SockTargetKey) *Loaded {
	t.Helper()
	l := openStem(t, sockfail(), k, nil)
	rewatch(t, l, keys...)
	t.Cleanup(func() { rewatch(t, l) })
	return l
}

// targetsOf returns targets whose answers are never slow.
func targetsOf(keys ...SockTargetKey) SockTargets {
	want := SockTargets{Keys: map[SockTargetKey]SockTarget{}}
	for _, key := range keys {
		want.Keys[key] = SockTarget{ID: key.ID()}
	}
	return want
}

func rewatch(t *testing.T, l *Loaded, keys ...SockTargetKey) {
	t.Helper()
	if err := l.WatchTargets(targetsOf(keys...)); err != nil {
		t.Fatal(err)
	}
}

// drainSockets returns the records in the ring.
func drainSockets(t *testing.T, l *Loaded) []SockFail {
	t.Helper()
	var out []SockFail
	if _, err := l.Drain(func(raw []byte) {
		if _, err := ParseHeader(raw); err != nil {
			t.Fatal(err)
		}
		r, err := View[SockFail](raw)
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, *r)
	}); err != nil {
		t.Fatal(err)
	}
	if lost, err := l.RingFull(); err != nil || lost != 0 {
		t.Errorf("lost %d (%v)", lost, err)
	}
	return out
}

// waitSockets drains until it has n records.
func waitSockets(t *testing.T, l *Loaded, n int) []SockFail {
	t.Helper()
	var out []SockFail
	for end := time.Now().Add(testenv.Within(3 * time.Second)); ; {
		out = append(out, drainSockets(t, l)...)
		if len(out) >= n {
			return out
		}
		if time.Now().After(end) {
			t.Fatalf("got %d records, want %d", len(out), n)
		}
		fds := []unix.PollFd{{Fd: int32(l.Ring().FD()), Events: unix.POLLIN}}
		if _, err := unix.Poll(fds, 100); err != nil && !errors.Is(err, unix.EINTR) {
			t.Fatal(err)
		}
	}
}

func TestSockFailRefused(t *testing.T) {
	k := testKernel(t)
	n := newTestNet(t)
	other := newTestNet(t)
	for _, at := range []string{"127.0.0.1:9", "[::1]:9", "[::ffff:127.0.0.1]:9"} {
		t.Run(at, func(t *testing.T) {
			to := netip.MustParseAddrPort(at)
			key := NewSockTargetKey(n.inode, to.Addr().Unmap(), 9)
			l := watch(t, k, key)
			for range 23 {
				n.dial(t, to, syscall.ECONNREFUSED)
				other.dial(t, to, syscall.ECONNREFUSED)                            // the same address in another namespace
				n.dial(t, netip.AddrPortFrom(to.Addr(), 10), syscall.ECONNREFUSED) // another port
			}
			got := drainSockets(t, l)
			if len(got) != 23 {
				t.Fatalf("23 connections refused, got %d records", len(got))
			}
			for _, r := range got {
				if r.H.Kind != KindSockFail || r.Target != key.ID() || r.NetNS != n.inode ||
					r.Flags != SockReset || r.Err != uint32(syscall.ECONNREFUSED) || r.SrcPort == 0 || r.DstPort != 9 ||
					r.DstAddr != to.Addr().As16() || r.SrcAddr != to.Addr().As16() {
					t.Fatalf("record %+v", r)
				}
				if r.Opener.TGID != uint32(unix.Getpid()) || r.StartNS > r.H.BootNS || r.MemoryID == 0 {
					t.Fatalf("opener %+v, started at %d, failed at %d", r.Opener, r.StartNS, r.H.BootNS)
				}
			}
		})
	}
}

func TestSockFailWildcards(t *testing.T) {
	k := testKernel(t)
	n := newTestNet(t)
	to := netip.MustParseAddrPort("127.0.0.1:9")
	for name, key := range map[string]SockTargetKey{
		"port":    NewSockTargetKey(n.inode, to.Addr(), 0),
		"netns":   NewSockTargetKey(0, to.Addr(), 9),
		"address": NewSockTargetKey(n.inode, netip.Addr{}, 9),
		"both":    NewSockTargetKey(n.inode, netip.Addr{}, 0),
	} {
		t.Run(name, func(t *testing.T) {
			exact := NewSockTargetKey(n.inode, netip.MustParseAddr("127.0.0.2"), 11)
			l := watch(t, k, key, exact)
			n.dial(t, to, syscall.ECONNREFUSED)
			n.dial(t, netip.MustParseAddrPort("127.0.0.2:11"), syscall.ECONNREFUSED)
			got := drainSockets(t, l)
			if len(got) != 2 || got[0].Target != key.ID() || got[1].Target != exact.ID() {
				t.Fatalf("got %+v", got)
			}
			rewatch(t, l)
			n.dial(t, to, syscall.ECONNREFUSED)
			if got := drainSockets(t, l); len(got) != 0 {
				t.Fatalf("not watched any more, got %+v", got)
			}
		})
	}
}

// Success is not reported, except the first one after a failure.
func TestSockFailRecovers(t *testing.T) {
	k := testKernel(t)
	n := newTestNet(t)
	l := watch(t, k, NewSockTargetKey(n.inode, netip.Addr{}, 0))
	at := n.listen(t, "127.0.0.1:0", func(net.Conn) {})
	dead := netip.AddrPortFrom(at.Addr(), 9)
	for range 3 {
		n.dial(t, at, nil)
	}
	if got := drainSockets(t, l); len(got) != 0 {
		t.Fatalf("success yields %+v", got)
	}
	n.dial(t, dead, syscall.ECONNREFUSED)
	n.dial(t, at, nil)
	n.in(t, func() error {
		ln, err := net.Listen("tcp", dead.String())
		if err != nil {
			return err
		}
		defer ln.Close()
		for range 2 {
			c, err := net.Dial("tcp", dead.String())
			if err != nil {
				return err
			}
			c.Close()
		}
		return nil
	})
	got := drainSockets(t, l)
	if len(got) != 2 || got[0].H.Kind != KindSockFail || got[1].H.Kind != KindSockFailRecovered || got[1].DstPort != 9 {
		t.Fatalf("want one failure and one recovery, got %+v", got)
	}
}

// TestSockFailMidStream ends connections in each way, observed by either program that follows
// states, and by both.
func TestSockFailMidStream(t *testing.T) {
	k := testKernel(t)
	n := newTestNet(t)
	for _, by := range []struct {
		name  string
		hooks map[string]bool // attached
	}{
		{"sock_ops", map[string]bool{hookState: true}},
		{"tracepoint", map[string]bool{hookStateToo: true}},
		{"both", map[string]bool{hookState: true, hookStateToo: true}},
	} {
		t.Run(by.name, func(t *testing.T) {
			l := watch(t, k, NewSockTargetKey(n.inode, netip.Addr{}, 0))
			for _, hook := range []string{hookState, hookStateToo} {
				change := l.Detach
				if by.hooks[hook] {
					change = l.Attach
				}
				if err := change(hook); err != nil {
					t.Fatal(err)
				}
			}
			for _, c := range conversations() {
				t.Run(c.name, func(t *testing.T) { c.run(t, n, l) })
			}
		})
	}
}

// conversation describes a connection and the expected record.
type conversation struct {
	name   string
	server func(net.Conn)       // nil: nobody listens
	client func(net.Conn) error // nil: the connection fails
	check  func(*SockFail) bool // nil: no record
}

func conversations() []conversation {
	return []conversation{
		{"refused", nil, nil, func(r *SockFail) bool {
			return r.Flags == SockReset && r.Err == uint32(syscall.ECONNREFUSED) && r.OldState == 2
		}},
		{"recovered", func(net.Conn) {}, func(c net.Conn) error { _, err := io.ReadAll(c); return err }, func(r *SockFail) bool {
			return r.H.Kind == KindSockFailRecovered && r.Flags == SockEstablished|SockPeerClosed
		}},
		{"answered", echo, ask(1), nil},
		{"answered after shutdown", echoAtEnd, askAndShut, nil},
		{"server speaks first", func(c net.Conn) { io.WriteString(c, "hello"); io.ReadAll(c) }, ask(1), nil},
		{"server closes without a word", func(net.Conn) {}, func(c net.Conn) error { _, err := io.ReadAll(c); return err }, nil},
		{"reset", func(c net.Conn) { read(c); c.(*net.TCPConn).SetLinger(0) }, askFor(syscall.ECONNRESET), func(r *SockFail) bool {
			return r.Flags == SockEstablished|SockReset && r.Err == uint32(syscall.ECONNRESET) && r.BytesReceived == 0
		}},
		{"closed without an answer", func(c net.Conn) { read(c) }, askFor(io.EOF), func(r *SockFail) bool {
			return r.Flags == SockEstablished|SockPeerClosed && r.BytesAcked > 1 && r.BytesReceived == 0
		}},
		{"silent", func(c net.Conn) { io.ReadAll(c) }, askFor(errTimeout), func(r *SockFail) bool {
			return r.Flags == SockEstablished && r.Err == 0 && r.BytesAcked == 5 && r.Unacked == 0 && r.BytesReceived == 0
		}},
		{"silent after shutdown", func(c net.Conn) { io.ReadAll(c) }, func(c net.Conn) error {
			if err := ask(0)(c); err != nil {
				return err
			}
			return c.(*net.TCPConn).CloseWrite()
		}, func(r *SockFail) bool { return r.Flags&SockEstablished != 0 && r.BytesReceived <= 1 }},
	}
}

// talkAt is the address of all conversations: recoveries are tracked by destination.
const talkAt = "127.0.0.1:4711"

func (c conversation) run(t *testing.T, n *testNet, l *Loaded) {
	served := make(chan struct{}, 1)
	if c.server != nil {
		n.listen(t, talkAt, func(conn net.Conn) {
			conn.SetDeadline(time.Now().Add(2 * time.Second))
			c.server(conn)
			conn.Close()
			served <- struct{}{}
		})
	}
	n.in(t, func() error {
		conn, err := net.Dial("tcp", talkAt)
		if c.client == nil {
			served <- struct{}{}
			if !errors.Is(err, syscall.ECONNREFUSED) {
				return fmt.Errorf("dial: %w, want refused", err)
			}
			return nil
		}
		if err != nil {
			return err
		}
		defer conn.Close()
		return c.client(conn)
	})
	<-served
	if c.check == nil {
		if got := drainSockets(t, l); len(got) != 0 {
			t.Fatalf("got %+v", got)
		}
		return
	}
	if got := waitSockets(t, l, 1); len(got) != 1 || !c.check(&got[0]) {
		t.Fatalf("got %+v", got)
	}
}

var errTimeout = errors.New("time-out")

func read(c net.Conn) { c.Read(make([]byte, 16)) }

func echo(c net.Conn) {
	b := make([]byte, 16)
	n, _ := c.Read(b)
	c.Write(b[:n])
	io.ReadAll(c)
}

func echoAtEnd(c net.Conn) {
	b, _ := io.ReadAll(c)
	c.Write(b)
}

// ask sends four bytes and reads at least n.
func ask(n int) func(net.Conn) error {
	return func(c net.Conn) error {
		if _, err := io.WriteString(c, "ping"); err != nil {
			return err
		}
		_, err := io.ReadAtLeast(c, make([]byte, 16), n)
		return err
	}
}

func askAndShut(c net.Conn) error {
	if err := ask(0)(c); err != nil {
		return err
	}
	if err := c.(*net.TCPConn).CloseWrite(); err != nil {
		return err
	}
	b, err := io.ReadAll(c)
	if err == nil && string(b) != "ping" {
		err = fmt.Errorf("answer %q", b)
	}
	return err
}

// askFor asks and expects this error.
func askFor(want error) func(net.Conn) error {
	return func(c net.Conn) error {
		limit := 100 * time.Millisecond
		if !errors.Is(want, errTimeout) {
			limit = testenv.Within(5 * time.Second) // the server may need time
		}
		c.SetReadDeadline(time.Now().Add(limit))
		err := ask(1)(c)
		var ne net.Error
		if errors.As(err, &ne) && ne.Timeout() {
			err = errTimeout
		}
		if !errors.Is(err, want) {
			return fmt.Errorf("asked: %w, want %w", err, want)
		}
		return nil
	}
}

// A connect() without a route causes no state event.
func TestSockFailNeverSent(t *testing.T) {
	k := testKernel(t)
	n := newTestNet(t)
	n.in(t, func() error {
		for _, r := range []netlink.Route{
			{Dst: mustCIDR("10.77.1.0/24"), Type: unix.RTN_BLACKHOLE},
			{Dst: mustCIDR("fd77::/64"), Type: unix.RTN_PROHIBIT},
		} {
			if err := netlink.RouteAdd(&r); err != nil {
				return fmt.Errorf("route %s: %w", r.Dst, err)
			}
		}
		return nil
	})
	l := watch(t, k, NewSockTargetKey(n.inode, netip.Addr{}, 0))
	for _, r := range l.Reports() {
		t.Logf("%s %s %s %s", r.Hook, r.Program, r.State, r.Reason)
	}
	targets := map[string]error{
		"10.77.1.1:80":  syscall.EINVAL,
		"10.77.2.1:80":  syscall.ENETUNREACH,
		"[fd77::1]:80":  syscall.EACCES,
		"127.0.0.1:9":   syscall.ECONNREFUSED, // sent
		"[fd78::1]:443": syscall.ENETUNREACH,
	}
	for to, err := range targets {
		n.dial(t, netip.MustParseAddrPort(to), err)
	}
	// On the same thread: the next connect() reports the previous one.
	n.in(t, func() error {
		for range 3 {
			net.Dial("tcp", "10.77.1.1:80")
		}
		return nil
	})
	if err := l.SweepNeverSent(time.Duration(bootNow())); err != nil {
		t.Fatal(err)
	}
	byDst := map[netip.AddrPort]int{}
	for _, r := range drainSockets(t, l) {
		dst := netip.AddrPortFrom(netip.AddrFrom16(r.DstAddr).Unmap(), r.DstPort)
		byDst[dst]++
		if dst.Port() != 9 && r.Flags != SockNoState|SockNotSent || r.NetNS != n.inode || r.Opener.TGID != uint32(unix.Getpid()) {
			t.Errorf("record %+v", r)
		}
	}
	for to := range targets {
		want := 1
		if to == "10.77.1.1:80" {
			want = 4
		}
		if got := byDst[netip.MustParseAddrPort(to)]; got != want {
			t.Errorf("%s: %d records, want %d", to, got, want)
		}
	}
	if err := l.SweepNeverSent(time.Duration(bootNow())); err != nil {
		t.Fatal(err)
	}
	if got := drainSockets(t, l); len(got) != 0 {
		t.Errorf("reported twice: %+v", got)
	}
}

func mustCIDR(s string) *net.IPNet {
	_, n, err := net.ParseCIDR(s)
	if err != nil {
		panic(err)
	}
	return n
}

func TestSockFailPortsExhausted(t *testing.T) {
	k := testKernel(t)
	n := newTestNet(t)
	l := watch(t, k, NewSockTargetKey(n.inode, netip.Addr{}, 0))
	at := n.listen(t, "127.0.0.1:9000", func(c net.Conn) { io.ReadAll(c) })
	n.in(t, func() error {
		// /proc/sys/net shows the namespace of the task that opens it.
		if err := writeFile("/proc/sys/net/ipv4/ip_local_port_range", "40000 40001"); err != nil {
			return err
		}
		var conns []net.Conn
		defer func() {
			for _, c := range conns {
				c.Close()
			}
		}()
		for {
			c, err := net.Dial("tcp", at.String())
			if errors.Is(err, syscall.EADDRNOTAVAIL) {
				return nil
			}
			if err != nil || len(conns) > 3 {
				return fmt.Errorf("%d connections: %w", len(conns), err)
			}
			conns = append(conns, c)
		}
	})
	got := drainSockets(t, l)
	// net.Dial retries twice on EADDRNOTAVAIL; then the others are closed, which is the first
	// success.
	if len(got) != 4 || got[3].H.Kind != KindSockFailRecovered {
		t.Fatalf("%d records, want 3 failures and 1 recovery: %+v", len(got), got)
	}
	for _, r := range got[:3] {
		// If no program follows the tracepoint, connect()'s return has the reason.
		reported := r.Flags == SockNotSent || r.Flags == SockNotSent|SockNoState && r.Err == uint32(syscall.EADDRNOTAVAIL)
		if r.H.Kind != KindSockFail || !reported || r.SrcPort != 0 {
			t.Errorf("kind %d, flags %#x, error %d, port %d", r.H.Kind, r.Flags, r.Err, r.SrcPort)
		}
	}
}

func writeFile(path, s string) error {
	fd, err := unix.Open(path, unix.O_WRONLY, 0)
	if err != nil {
		return fmt.Errorf("open %s: %w", path, err)
	}
	defer unix.Close(fd)
	_, err = unix.Write(fd, []byte(s))
	return err
}

func TestWatchedBy(t *testing.T) {
	k := testKernel(t)
	pins, _ := testPins(t)
	l := openStem(t, sockfail(), k, pins)
	to := netip.MustParseAddrPort("10.9.0.2:80")
	rewatch(t, l, NewSockTargetKey(7, to.Addr(), 80), NewSockTargetKey(8, netip.Addr{}, 443))
	for _, c := range []struct {
		netns uint32
		addr  string
		want  bool
	}{
		{7, "10.9.0.2:80", true}, {8, "10.9.0.2:80", false}, {7, "10.9.0.2:81", false},
		{8, "10.9.0.2:443", true}, {8, "[fd00::1]:443", true}, {9, "10.9.0.2:443", false},
		{7, "[::ffff:10.9.0.2]:80", true},
	} {
		got, err := WatchedBy(pins.path, c.netns, netip.MustParseAddrPort(c.addr))
		if err != nil || got != c.want {
			t.Errorf("netns %d, %s: %v (%v), want %v", c.netns, c.addr, got, err, c.want)
		}
	}
	rewatch(t, l)
	if got, err := WatchedBy(pins.path, 7, to); err != nil || got {
		t.Errorf("no targets: %v (%v)", got, err)
	}
	if got, err := WatchedBy(pins.path+"-none", 7, to); err != nil || got {
		t.Errorf("no agent: %v (%v)", got, err)
	}
}

// TestSockFailCost measures what the programs cost; run with -v to see it.
func TestSockFailCost(t *testing.T) {
	k := testKernel(t)
	n := newTestNet(t)
	at := n.listen(t, "127.0.0.1:0", func(net.Conn) {})
	stats, err := ebpf.EnableStats(uint32(unix.BPF_STATS_RUN_TIME))
	if err != nil {
		t.Skip("kernel has no BPF statistics:", err)
	}
	defer stats.Close()
	for _, c := range []struct {
		name string
		keys []SockTargetKey
	}{
		{"no targets", nil},
		{"exact targets, another connection", []SockTargetKey{NewSockTargetKey(n.inode, at.Addr(), 1), NewSockTargetKey(1, at.Addr(), at.Port())}},
		{"all classes, another connection", []SockTargetKey{
			NewSockTargetKey(1, at.Addr(), 1), NewSockTargetKey(1, at.Addr(), 0), NewSockTargetKey(0, at.Addr(), 1),
			NewSockTargetKey(1, netip.Addr{}, 1), NewSockTargetKey(0, netip.Addr{}, 1), NewSockTargetKey(1, netip.Addr{}, 0),
		}},
		{"watched connection", []SockTargetKey{NewSockTargetKey(n.inode, at.Addr(), at.Port())}},
	} {
		t.Run(c.name, func(t *testing.T) {
			l := watch(t, k, c.keys...)
			for range 500 {
				n.dial(t, at, nil)
			}
			for name, p := range l.programs {
				s, err := p.Stats()
				if err != nil {
					t.Fatal(err)
				}
				// Other connections of the machine may be reset, and one that an earlier agent
				// followed calls follow_ops until it closes. None of these 500 does.
				others := uint64(0)
				if name == SockfailProgResetRaw || name == SockfailProgFollowOps {
					others = 100
				}
				if len(c.keys) == 0 && s.RunCount > others {
					t.Errorf("%s: %d runs without a target", name, s.RunCount)
				}
				if s.RunCount > 0 {
					t.Logf("%s: %d runs, %v each, %v a connection", name, s.RunCount, s.Runtime/time.Duration(s.RunCount), s.Runtime/500)
				}
			}
		})
	}
}
