package active

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"
	"golang.org/x/time/rate"

	"github.com/kernosis/kernosis/collector/display"
	"github.com/kernosis/kernosis/collector/event"
	"github.com/kernosis/kernosis/collector/hostfs"
	"github.com/kernosis/kernosis/collector/netlook"
	"github.com/kernosis/kernosis/collector/netprobe"
	"github.com/kernosis/kernosis/collector/probe"
)

// Prober makes probes. It is safe for concurrent use.
type Prober struct {
	fs   hostfs.FS
	look *looker

	mu    sync.Mutex
	inode uint32 // the node's network namespace; 0: not found yet
	pid   int    // of a process in that namespace
}

// New returns a Prober for the node whose files fs has. It starts nothing.
func New(fs hostfs.FS) *Prober { return &Prober{fs: fs, look: newLooker(fs)} }

// Probe makes a container's probe. It implements probe.Prober.
func (p *Prober) Probe(ctx context.Context, r *probe.Request) (probe.Outcome, error) {
	switch r.Spec.Handler {
	case probe.Exec:
		return p.Command(ctx, r.Container.ID, r.Spec.Command, r.Spec.Timeout)
	case probe.HTTP, probe.HTTPS, probe.TCP, probe.GRPC:
		return p.Network(ctx, Target{
			Protocol: string(r.Spec.Handler), Host: r.Spec.HostOf(r.Pod), Port: r.Spec.Port,
			Path: r.Spec.Path, Headers: r.Spec.Headers, Service: r.Spec.Service,
		}, r.Spec.Timeout)
	}
	return probe.Outcome{}, fmt.Errorf("unknown handler %q", r.Spec.Handler)
}

// Target is the target of a network probe.
type Target struct {
	Protocol string // one of package netprobe's
	Host     string // address or name
	Port     uint16
	Path     string
	Headers  http.Header
	Service  string      // of gRPC
	TLS      *tls.Config // nil: certificates are not verified
}

// Network probes a target from the node's network namespace.
func (p *Prober) Network(ctx context.Context, t Target, timeout time.Duration) (probe.Outcome, error) {
	began := time.Now()
	within, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	addr, name, err := resolve(within, t.Host)
	if ctx.Err() != nil {
		return probe.Outcome{}, ctx.Err()
	}
	if err != nil {
		if _, ok := errors.AsType[*net.DNSError](err); !ok {
			return probe.Outcome{}, err
		}
		return Failed(began, event.VerdictName, netprobe.PhaseConnect, "the name %s does not resolve: %v", t.Host, err), nil
	}
	inode, pid, err := p.node()
	if err != nil {
		return probe.Outcome{}, err
	}
	what := &netprobe.Probe{
		Protocol: t.Protocol, To: netip.AddrPortFrom(addr, t.Port), Name: name, Path: t.Path, Headers: t.Headers,
		Service: t.Service, TLS: t.TLS,
		From: func(connect func() error) error { return netlook.Within(p.fs, inode, pid, connect) },
	}
	r := what.RunWithin(ctx, timeout-time.Since(began))
	if r.Err == nil {
		return probe.Outcome{At: time.Now(), OK: true, Detail: detail(&r)}, nil
	}
	if ctx.Err() != nil {
		return probe.Outcome{}, ctx.Err()
	}
	if err := notMade(&r); err != nil {
		return probe.Outcome{}, err
	}
	f := facts{protocol: t.Protocol, to: what.To, timeout: timeout, Result: r}
	if f.open() {
		f.seen = p.look.look(ctx, inode, pid, &f)
	}
	d := detail(&r)
	f.judge(&d)
	return probe.Outcome{At: time.Now(), Detail: d}, nil
}

// node returns the node's network namespace, and a process in it. It looks them up only once: the
// namespace does not change, and if init can't be inspected, a thread of this process may
// temporarily be in another namespace.
func (p *Prober) node() (inode uint32, pid int, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.inode == 0 {
		if p.inode, p.pid, err = netlook.NodeNamespace(p.fs); err != nil {
			return 0, 0, err
		}
	}
	return p.inode, p.pid, nil
}

// InNode calls fn on a thread in the node's network namespace; see netlook.Within.
func (p *Prober) InNode(fn func() error) error {
	inode, pid, err := p.node()
	if err != nil {
		return err
	}
	return netlook.Within(p.fs, inode, pid, fn)
}

// resolve returns the address of a host, and its name if the host is not an address.
func resolve(ctx context.Context, host string) (netip.Addr, string, error) {
	if host == "" {
		return netip.Addr{}, "", errors.New("no address to probe")
	}
	if a, err := netip.ParseAddr(host); err == nil {
		return a.Unmap(), "", nil
	}
	all, err := net.DefaultResolver.LookupNetIP(ctx, "ip", host)
	if err != nil {
		return netip.Addr{}, "", err
	}
	return all[0].Unmap(), host, nil // a name without addresses is an error
}

// Succeeded returns the outcome of a probe that began at a time and succeeded.
func Succeeded(began time.Time) probe.Outcome {
	return probe.Outcome{At: time.Now(), OK: true, Detail: event.ProbeOutcome{Feed: event.ProbeActive, Duration: event.Duration(time.Since(began))}}
}

// Failed returns the outcome of a probe that began at a time and failed.
func Failed(began time.Time, verdict, phase, format string, args ...any) probe.Outcome {
	return probe.Outcome{At: time.Now(), Detail: event.ProbeOutcome{
		Feed: event.ProbeActive, Verdict: verdict, Phase: phase, Duration: event.Duration(time.Since(began)),
		Cause: display.Safe(fmt.Sprintf(format, args...), maxCause),
	}}
}

// notMade returns the error if the probe could not be made because of this node.
func notMade(r *netprobe.Result) error {
	for _, e := range []error{unix.EMFILE, unix.ENFILE, unix.ENOMEM, unix.ENOBUFS} {
		if errors.Is(r.Err, e) {
			return r.Err
		}
	}
	_, dialed := errors.AsType[*net.OpError](r.Err)
	_, late := errors.AsType[*netprobe.TimeoutError](r.Err)
	if r.Phase == netprobe.PhaseConnect && !dialed && !late && !r.Conn.Remote.IsValid() {
		return r.Err
	}
	return nil
}

// detail returns the part of an outcome that needs no judgement.
func detail(r *netprobe.Result) event.ProbeOutcome {
	d := event.ProbeOutcome{
		Feed: event.ProbeActive, Duration: event.Duration(r.Took), FirstByte: event.Duration(r.FirstByte),
		RTT: event.Duration(r.Conn.RTT), Retransmits: r.Conn.Retransmits,
		Said: display.Safe(strings.TrimSpace(r.Body), maxSaid),
	}
	if r.Status != "" {
		d.Status, _, _ = strings.Cut(display.Safe(r.Status, 64), " ")
	}
	switch r.Phase {
	case netprobe.PhaseRequest:
		d.Phase = "established"
	case netprobe.PhaseDone:
	default:
		d.Phase = r.Phase
	}
	if errno, ok := errors.AsType[unix.Errno](r.Err); ok {
		d.Errno = hostfs.ErrnoName(int32(errno))
	}
	return d
}

const (
	// lookLimit bounds all look-ups after one failure, answerLimit a single one.
	lookLimit   = 2 * time.Second
	answerLimit = 500 * time.Millisecond
	// lookRate is how many failures a second are inspected, one after another, and lookBurst how
	// many at once after a quiet time. An inspection takes some 0.3 ms. If all network namespaces
	// of the node must be searched for the address, it takes that time for each of them.
	lookRate  = 5
	lookBurst = 50
)

// seen is what an inspection found. Its zero value means "not inspected".
type seen struct {
	skipped  bool // too many failures at once
	route    netlook.Route
	neighbor netlook.Neighbor
	listener netlook.Listener
	child    netlook.ChildState
}

// looker queries the kernel after failures, one failure at a time.
type looker struct {
	limit  *rate.Limiter
	turn   chan struct{}
	spaces *netlook.Namespaces // used only by the holder of turn
}

func newLooker(fs hostfs.FS) *looker {
	return &looker{limit: rate.NewLimiter(lookRate, lookBurst), turn: make(chan struct{}, 1), spaces: netlook.NewNamespaces(fs, answerLimit)}
}

// look returns within twice lookLimit, with what it has found by then.
func (l *looker) look(ctx context.Context, inode uint32, pid int, f *facts) (s seen) {
	if !l.limit.Allow() {
		return seen{skipped: true}
	}
	wait, cancel := context.WithTimeout(ctx, lookLimit)
	defer cancel()
	select {
	case <-wait.Done():
		return seen{skipped: true}
	case l.turn <- struct{}{}:
	}
	defer func() { <-l.turn }()
	end := time.Now().Add(lookLimit)
	node, err := l.spaces.Open(inode, pid)
	if err != nil {
		return s
	}
	defer node.Close()
	s.route = node.RouteTo(f.to.Addr())
	if f.Phase == netprobe.PhaseConnect && s.route.Errno == 0 && s.route.Known && !s.route.Local && time.Now().Before(end) {
		s.neighbor = node.Neighbor(&s.route)
	}
	if s.route.Errno != 0 {
		return s
	}
	target := node
	if !s.route.Local && !f.to.Addr().IsLoopback() {
		home := l.spaces.Home(f.to.Addr(), end)
		if home.Inode == 0 {
			return s // on another machine, or not found
		}
		if target, err = l.spaces.Open(home.Inode, 0); err != nil {
			return s
		}
		defer target.Close()
	}
	if time.Now().Before(end) {
		s.listener = target.Listener(f.to)
	}
	if f.Conn.Local.IsValid() && time.Now().Before(end) {
		s.child = target.Child(f.to, f.Conn.Local)
	}
	return s
}
