package active

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"
	"golang.org/x/sys/unix"
	"google.golang.org/grpc"
	pb "google.golang.org/grpc/health/grpc_health_v1"

	"github.com/kernosis/kernosis/collector/event"
	"github.com/kernosis/kernosis/collector/hostfs"
	"github.com/kernosis/kernosis/collector/netlook"
	"github.com/kernosis/kernosis/collector/netprobe"
	"github.com/kernosis/kernosis/collector/probe"
	"github.com/kernosis/kernosis/vmtest/netlab"
	"github.com/kernosis/kernosis/vmtest/testenv"
	"github.com/kernosis/kernosis/vmtest/testserver"
)

func TestMain(m *testing.M) { os.Exit(testenv.CheckLeaks(m.Run)) }

// plenty is longer than any probe takes that is not meant to time out.
const plenty = 30 * time.Second

// labHost returns a node whose own network namespace is node's, with no processes but the holders
// of the namespaces.
func labHost(t *testing.T, node *netlab.Net, others ...*netlab.Net) hostfs.FS {
	t.Helper()
	root := t.TempDir()
	holder := func(n *netlab.Net) int { return netlook.NewNamespaces(hostfs.New("/"), time.Second).Process(n.Inode) }
	link := func(name, to string) {
		if err := errors.Join(os.MkdirAll(filepath.Join(root, "proc"), 0o755), os.Symlink(to, filepath.Join(root, "proc", name))); err != nil {
			t.Fatal(err)
		}
	}
	link("1", fmt.Sprintf("/proc/%d", holder(node)))
	for _, n := range others {
		link(strconv.Itoa(holder(n)), fmt.Sprintf("/proc/%d", holder(n)))
	}
	return hostfs.New(root)
}

// ownHost returns a node whose network namespace is this process's, whatever init's is.
func ownHost(t *testing.T) hostfs.FS {
	t.Helper()
	holder := netlab.Holder(t)
	root := t.TempDir()
	if err := errors.Join(os.Mkdir(filepath.Join(root, "proc"), 0o755), os.Symlink(fmt.Sprintf("/proc/%d", holder), filepath.Join(root, "proc", "1"))); err != nil {
		t.Fatal(err)
	}
	return hostfs.New(root)
}

func serveHTTP(t *testing.T, n *netlab.Net, at string, secure bool, fn http.HandlerFunc) {
	t.Helper()
	testserver.HTTP(t, n.Listen(at, 128), secure, fn)
}

func serveGRPC(t *testing.T, n *netlab.Net, at string, healthy bool) {
	t.Helper()
	l := n.Listen(at, 128)
	if !healthy {
		testserver.GRPC(t, l, func(*grpc.Server) {})
		return
	}
	testserver.Health(t, l).SetServingStatus("down", pb.HealthCheckResponse_NOT_SERVING)
}

// fails probes 10.97.40.2, which must fail, and checks verdict and cause.
func fails(t *testing.T, p *Prober, target Target, timeout time.Duration, verdict, cause string) event.ProbeOutcome {
	t.Helper()
	if target.Host == "" {
		target.Host = "10.97.40.2"
	}
	target.Path = "/" + strings.TrimPrefix(target.Path, "/")
	o, err := p.Network(t.Context(), target, timeout)
	if err != nil {
		t.Fatalf("%s: %v", verdict, err)
	}
	d := o.Detail
	t.Logf("%s: %s; evidence %q; excluded %q", d.Verdict, d.Cause, d.Evidence, d.Excluded)
	if o.OK || o.At.IsZero() || d.Verdict != verdict || !regexp.MustCompile(cause).MatchString(d.Cause) || d.Feed != event.ProbeActive || d.Duration <= 0 {
		t.Errorf("%+v, want %s %s", o, verdict, cause)
	}
	if verdict != event.VerdictName && d.Phase == "" {
		t.Errorf("%s: no phase", verdict)
	}
	return d
}

// Each class of failure is provoked and gets its verdict.
func TestVerdicts(t *testing.T) {
	node, pod := netlab.PairIn(t, 40)
	p := New(labHost(t, node, pod))
	silent := func(c net.Conn) { _, _ = io.Copy(io.Discard, c) }
	// A server has to accept, or begin its answer, within served.
	const brief, served = 400 * time.Millisecond, 2 * time.Second

	for _, protocol := range []string{netprobe.TCP, netprobe.HTTP, netprobe.HTTPS, netprobe.GRPC} {
		d := fails(t, p, Target{Protocol: protocol, Port: 81}, plenty, event.VerdictRefused, `^nothing listens at 10.97.40.2:81: the SYN was refused after`)
		if d.Errno != "ECONNREFUSED" || d.Phase != "connect" || len(d.Evidence) != 1 || !strings.Contains(strings.Join(d.Excluded, "; "), "route: via") {
			t.Errorf("%s: %+v", protocol, d)
		}
	}

	pod.Serve("10.97.40.2:82", silent)
	for _, protocol := range []string{netprobe.HTTP, netprobe.HTTPS, netprobe.GRPC} {
		d := fails(t, p, Target{Protocol: protocol, Port: 82}, served, event.VerdictSilent, `^SYN answered in .*s, request acked \(\d+ bytes\), no byte back in 2s$`)
		if excluded := strings.Join(d.Excluded, "; "); d.RTT <= 0 || !strings.Contains(excluded, "network: TCP connect took") || !strings.Contains(excluded, "listener present: queue 0/") {
			t.Errorf("%s: %+v", protocol, d)
		}
	}

	pod.Listen("10.97.40.2:83", 5)
	d := fails(t, p, Target{Protocol: netprobe.HTTP, Port: 83}, brief, event.VerdictNotAccepted, `waits in the accept queue \(1/5\) of :83 and was not accepted in`)
	if d.QueueLen != 1 || d.QueueMax != 5 {
		t.Errorf("%+v", d)
	}

	pod.Listen("10.97.40.2:84", 0)
	node.Dial("10.97.40.2:84")
	d = fails(t, p, Target{Protocol: netprobe.TCP, Port: 84}, brief, event.VerdictAcceptQueueFull, `^accept queue full 1/0 on :84: its process does not call accept`)
	if d.QueueLen != 1 || d.QueueMax != 0 {
		t.Errorf("%+v", d)
	}

	pod.Serve("10.97.40.2:85", func(c net.Conn) {
		_, _ = c.Read(make([]byte, 1))
		_ = c.(*net.TCPConn).SetLinger(0)
	})
	for _, protocol := range []string{netprobe.HTTP, netprobe.HTTPS, netprobe.GRPC} {
		fails(t, p, Target{Protocol: protocol, Port: 85}, plenty, event.VerdictReset, `^the connection to 10.97.40.2:85 was reset during the`)
	}
	pod.Serve("10.97.40.2:86", func(c net.Conn) { _, _ = c.Read(make([]byte, 64<<10)) })
	fails(t, p, Target{Protocol: netprobe.HTTP, Port: 86}, plenty, event.VerdictSilent, `accepted the connection and closed it without sending a byte`)
	fails(t, p, Target{Protocol: netprobe.HTTPS, Port: 86}, plenty, event.VerdictTLS, `failed: the peer closed the connection$`)

	serveHTTP(t, pod, "10.97.40.2:87", false, func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/slow":
			w.Header().Set("Content-Length", "100")
			_, _ = io.WriteString(w, "x")
			_ = http.NewResponseController(w).Flush()
			<-r.Context().Done()
		case "/loop":
			http.Redirect(w, r, "/loop", http.StatusFound)
		default:
			w.WriteHeader(http.StatusServiceUnavailable)
			_, _ = io.WriteString(w, "database is \x1b[1mgone\nand more")
		}
	})
	d = fails(t, p, Target{Protocol: netprobe.HTTP, Port: 87}, plenty, event.VerdictStatus, `^HTTP status 503 Service Unavailable from 10.97.40.2:87 after .*: database is .*gone$`)
	if d.Status != "503" || strings.Contains(d.Said+d.Cause, "\x1b") || d.FirstByte <= 0 {
		t.Errorf("%+v", d)
	}
	d = fails(t, p, Target{Protocol: netprobe.HTTP, Port: 87, Path: "slow"}, served, event.VerdictSlow, `^SYN answered in .*, first byte after .*, the answer was not complete in 2s: \d+ bytes received`)
	if d.Phase != "answer" {
		t.Errorf("%+v", d)
	}
	fails(t, p, Target{Protocol: netprobe.HTTP, Port: 87, Path: "loop"}, plenty, event.VerdictStatus, `^10.97.40.2:87: stopped after 10 redirects`)
	fails(t, p, Target{Protocol: netprobe.HTTPS, Port: 87}, plenty, event.VerdictTLS, `^TLS handshake with 10.97.40.2:87 failed: .*HTTP`)
	fails(t, p, Target{Protocol: netprobe.GRPC, Port: 87}, plenty, event.VerdictStatus, `gave no GRPC answer: |closed the connection in the middle of its answer`)
	pod.Serve("10.97.40.2:88", func(c net.Conn) {
		_, _ = c.Read(make([]byte, 64<<10))
		_, _ = io.WriteString(c, "SSH-2.0-OpenSSH_9.2\r\n")
	})
	fails(t, p, Target{Protocol: netprobe.HTTP, Port: 88}, plenty, event.VerdictStatus, `^10.97.40.2:88 gave no HTTP answer: .*malformed HTTP`)
	serveHTTP(t, pod, "10.97.40.2:89", true, func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() })
	d = fails(t, p, Target{Protocol: netprobe.HTTPS, Port: 89}, served, event.VerdictSilent, `request acked \(\d+ bytes\), no byte of the answer in 2s`)
	if !strings.Contains(strings.Join(d.Excluded, "; "), "TLS: the handshake took") {
		t.Errorf("%+v", d)
	}

	serveGRPC(t, pod, "10.97.40.2:90", true)
	serveGRPC(t, pod, "10.97.40.2:91", false)
	d = fails(t, p, Target{Protocol: netprobe.GRPC, Port: 90, Service: "down"}, plenty, event.VerdictStatus, `^gRPC health at 10.97.40.2:90: NOT_SERVING after`)
	if d.Status != "NOT_SERVING" {
		t.Errorf("%+v", d)
	}
	fails(t, p, Target{Protocol: netprobe.GRPC, Port: 90, Service: "none"}, plenty, event.VerdictStatus, `NotFound after .*: unknown service`)
	fails(t, p, Target{Protocol: netprobe.GRPC, Port: 91}, plenty, event.VerdictStatus, `does not implement the gRPC health protocol`)

	// All of them succeed if nothing is wrong.
	serveHTTP(t, pod, "10.97.40.2:92", false, func(http.ResponseWriter, *http.Request) {})
	serveHTTP(t, pod, "[fd97:40::2]:92", false, func(http.ResponseWriter, *http.Request) {})
	for _, target := range []Target{
		{Protocol: netprobe.TCP, Port: 92}, {Protocol: netprobe.HTTP, Port: 92, Path: "/"}, {Protocol: netprobe.GRPC, Port: 90},
		{Protocol: netprobe.HTTP, Host: "fd97:40::2", Port: 92, Path: "/"},
	} {
		if target.Host == "" {
			target.Host = "10.97.40.2"
		}
		o, err := p.Network(t.Context(), target, plenty)
		if err != nil || !o.OK || o.Detail.Verdict != "" || o.Detail.Phase != "" || o.Detail.Duration <= 0 {
			t.Errorf("%+v: %+v, %v", target, o, err)
		}
	}
}

// Probes that never leave the node, or are never answered.
func TestVerdictsOfTheWay(t *testing.T) {
	node, pod := netlab.PairIn(t, 40)
	p := New(labHost(t, node, pod))
	pod.Listen("10.97.40.2:80", 100)
	tcp := Target{Protocol: netprobe.TCP, Port: 80}
	const brief = 300 * time.Millisecond

	mend := pod.DropTCP()
	d := fails(t, p, tcp, brief, event.VerdictTimeout, `^no answer to the SYN to 10.97.40.2:80 in \S+s$`)
	if excluded := strings.Join(d.Excluded, "; "); !strings.Contains(excluded, "listener present: queue 0/100") || !strings.Contains(excluded, "route: via") {
		t.Errorf("%+v", d)
	}
	mend()

	for kind, want := range map[netlab.Kind]string{netlab.Blackhole: "blackhole", netlab.Prohibit: "prohibit", netlab.Unreachable: "unreachable"} {
		node.AddRoute("10.97.40.2/32", kind)
		fails(t, p, tcp, plenty, event.VerdictNoRoute, `^can't reach 10.97.40.2:80: route: `+want)
		node.RemoveRoute("10.97.40.2/32", kind)
	}
	tcp.Host = "203.0.113.7"
	fails(t, p, tcp, plenty, event.VerdictNoRoute, `^can't reach 203.0.113.7:80: route: none`)
	tcp.Host = "10.97.40.77" // no host has this address
	fails(t, p, tcp, 900*time.Millisecond, event.VerdictNeighborFailed, `^the next hop 10.97.40.77 to 10.97.40.77:80 does not answer: neighbour`)
	tcp.Host = ""

	node.Sysctl("net/ipv4/ip_local_port_range", "50000 50001")
	node.Dial("10.97.40.2:80")
	node.Dial("10.97.40.2:80")
	fails(t, p, tcp, plenty, event.VerdictPortsExhausted, `^no local port is free to connect to 10.97.40.2:80`)
}

// Healthy targets are never reported as failed, and cause no inspection.
func TestHealthyProbes(t *testing.T) {
	node, pod := netlab.PairIn(t, 40)
	p := New(labHost(t, node, pod))
	serveHTTP(t, pod, "10.97.40.2:80", false, func(http.ResponseWriter, *http.Request) {})
	serveHTTP(t, pod, "10.97.40.2:81", true, func(http.ResponseWriter, *http.Request) {})
	serveGRPC(t, pod, "10.97.40.2:82", true)
	targets := []Target{
		{Protocol: netprobe.TCP, Port: 80}, {Protocol: netprobe.HTTP, Port: 80, Path: "/"},
		{Protocol: netprobe.HTTPS, Port: 81, Path: "/"}, {Protocol: netprobe.GRPC, Port: 82},
	}
	began := time.Now()
	const n = 1000
	var all errgroup.Group
	all.SetLimit(16)
	for i := range n {
		all.Go(func() error {
			target := targets[i%len(targets)]
			target.Host = "10.97.40.2"
			o, err := p.Network(t.Context(), target, plenty)
			if err != nil || !o.OK || o.Detail.Verdict != "" || len(o.Detail.Evidence) > 0 {
				return fmt.Errorf("%s: %+v, %w", target.Protocol, o, err)
			}
			return nil
		})
	}
	if err := all.Wait(); err != nil {
		t.Error(err)
	}
	if p.look.limit.Tokens() < lookBurst {
		t.Error("looked into a success")
	}
	t.Logf("%d probes in %s", n, time.Since(began))
}

// Failures beyond the rate limit are reported without an inspection.
func TestLooksAreBounded(t *testing.T) {
	node, pod := netlab.PairIn(t, 40)
	p := New(labHost(t, node, pod))
	skipped := 0
	for range lookBurst + 3*lookRate {
		o, err := p.Network(t.Context(), Target{Protocol: netprobe.TCP, Host: "10.97.40.2", Port: 80}, plenty)
		if err != nil || o.Detail.Verdict != event.VerdictRefused {
			t.Fatalf("%+v, %v", o, err)
		}
		if strings.Contains(strings.Join(o.Detail.Evidence, ";"), "not examined") {
			skipped++
		}
	}
	if skipped == 0 {
		t.Error("all were looked into")
	}
}

func TestNames(t *testing.T) {
	p := New(ownHost(t))
	fails(t, p, Target{Protocol: netprobe.TCP, Host: "no-such-host.invalid", Port: 80}, plenty, event.VerdictName, `^the name no-such-host.invalid does not resolve: `)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	at := netip.MustParseAddrPort(l.Addr().String())
	if o, err := p.Network(t.Context(), Target{Protocol: netprobe.TCP, Host: "localhost", Port: at.Port()}, plenty); err != nil || !o.OK {
		t.Errorf("%+v, %v", o, err)
	}
}

// A probe that can't be made is an error: its target may be healthy.
func TestNotMade(t *testing.T) {
	p := New(hostfs.New(t.TempDir())) // a node without processes
	if o, err := p.Network(t.Context(), Target{Protocol: netprobe.TCP, Host: "127.0.0.1", Port: 80}, plenty); err == nil {
		t.Errorf("%+v", o)
	}
	p = New(hostfs.New("/"))
	if o, err := p.Network(t.Context(), Target{Protocol: netprobe.TCP, Port: 80}, plenty); err == nil {
		t.Errorf("%+v", o)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if o, err := p.Network(ctx, Target{Protocol: netprobe.TCP, Host: "127.0.0.1", Port: 80}, plenty); !errors.Is(err, context.Canceled) {
		t.Errorf("%+v, %v", o, err)
	}
	if notMade(&netprobe.Result{Phase: netprobe.PhaseConnect, Err: &net.OpError{Err: os.NewSyscallError("socket", unix.EMFILE)}}) == nil {
		t.Error("no descriptor left, and the target is to blame")
	}
}

// A pod's probe as passed by the Manager.
func TestProbeOfAPod(t *testing.T) {
	var got *http.Request
	s := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { got = r }))
	defer s.Close()
	at := netip.MustParseAddrPort(s.Listener.Addr().String())
	r := &probe.Request{
		Pod: &probe.Pod{Addresses: []netip.Addr{at.Addr()}}, Container: &probe.Container{},
		Spec: &probe.Spec{Handler: probe.HTTP, Port: at.Port(), Path: "/healthz?verbose", Timeout: plenty, Headers: http.Header{"X-A": {"1", "2"}}},
	}
	p := New(ownHost(t))
	if o, err := p.Probe(t.Context(), r); err != nil || !o.OK || got.URL.String() != "/healthz?verbose" || strings.Join(got.Header["X-A"], " ") != "1 2" {
		t.Errorf("%+v, %v, %+v", o, err, got)
	}
	r.Spec.Handler = "udp"
	if o, err := p.Probe(t.Context(), r); err == nil {
		t.Errorf("%+v", o)
	}
	r.Spec.Handler, r.Pod.Addresses = probe.TCP, nil
	if o, err := p.Probe(t.Context(), r); err == nil {
		t.Errorf("%+v", o)
	}
}
