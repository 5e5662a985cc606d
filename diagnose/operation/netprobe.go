package operation

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/netip"
	"net/url"
	"os"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	health "google.golang.org/grpc/health/grpc_health_v1"

	"github.com/kernosis/kernosis/collector/netlook"
)

const (
	// netProbeAgent begins as kubelet's does, for applications that go by it.
	netProbeAgent = "kube-probe/kernosis"
	// netProbeBody is how much of an answer kubelet reads.
	netProbeBody = 10 << 10
	// netProbeHops is how many redirects kubelet follows.
	netProbeHops = 10
)

// netProbe is one probe, as kubelet makes them: without a proxy, certificates not
// verified, a connection of its own that lingers for a second.
type netProbe struct {
	host     Host
	from     netPlace
	to       netip.AddrPort
	protocol string // tcp, http, https or grpc
	path     string // with a query, of HTTP
	hostName string // Host header; empty: the address
	headers  http.Header
	service  string // of gRPC
	// connected is called when a connection stands, if it is set. Its error ends the
	// probe.
	connected func(to, local netip.AddrPort) error
}

// netProbed is how a probe went.
type netProbed struct {
	mu sync.Mutex // held for writing while the probe runs
	// phase is how far it got: connect, tls, request, answer, done.
	phase                         string
	connect, tls, firstByte, took time.Duration // 0: not reached
	status, redirect              string
	err                           error // nil: success
	handshake, requested          time.Time
}

func (r *netProbed) enter(phase string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.phase = phase
}

// at returns how far the probe is.
func (r *netProbed) at() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.phase
}

// run probes until ctx ends, into r.
func (p *netProbe) run(ctx context.Context, r *netProbed) {
	began := time.Now()
	r.enter("connect")
	var err error
	switch p.protocol {
	case "http", "https":
		err = p.http(ctx, r)
	case "grpc":
		err = p.grpc(ctx, r)
	default:
		var c net.Conn
		if c, err = p.dial(ctx, r, p.to.Port()); err == nil {
			err = c.Close()
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.took, r.err = time.Since(began), err
	if err == nil {
		r.phase = "done"
	}
}

// dial connects from the probe's namespace, to its address and no other.
func (p *netProbe) dial(ctx context.Context, r *netProbed, port uint16) (net.Conn, error) {
	d := net.Dialer{Control: func(_, _ string, c syscall.RawConn) error {
		var set error
		err := c.Control(func(fd uintptr) {
			set = os.NewSyscallError("setsockopt", unix.SetsockoptLinger(int(fd), unix.SOL_SOCKET, unix.SO_LINGER, &unix.Linger{Onoff: 1, Linger: 1}))
		})
		return errors.Join(err, set)
	}}
	var c net.Conn
	began := time.Now()
	err := netlook.Within(p.host.FS, p.from.inode, p.from.pid, func() (err error) {
		// To a number: the socket is made on this very thread.
		c, err = d.DialContext(ctx, "tcp", netip.AddrPortFrom(p.to.Addr(), port).String())
		return err
	})
	if err != nil {
		return nil, err
	}
	r.mu.Lock()
	r.connect, r.phase = time.Since(began), "request"
	r.mu.Unlock()
	if local, ok := c.LocalAddr().(*net.TCPAddr); ok && p.connected != nil {
		at := local.AddrPort()
		if err := p.connected(netip.AddrPortFrom(p.to.Addr(), port), netip.AddrPortFrom(at.Addr().Unmap(), at.Port())); err != nil {
			return nil, errors.Join(err, c.Close())
		}
	}
	return c, nil
}

func (p *netProbe) http(ctx context.Context, r *netProbed) error {
	u, err := url.Parse(p.path)
	if err != nil {
		return fmt.Errorf("path: %w", err)
	}
	u.Scheme, u.Host = p.protocol, p.to.String()
	ctx = httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{
		TLSHandshakeStart: func() { r.mu.Lock(); r.phase, r.handshake = "tls", time.Now(); r.mu.Unlock() },
		TLSHandshakeDone: func(_ tls.ConnectionState, err error) {
			r.mu.Lock()
			defer r.mu.Unlock()
			if err == nil {
				r.tls, r.phase = time.Since(r.handshake), "request"
			}
		},
		WroteRequest: func(w httptrace.WroteRequestInfo) {
			r.mu.Lock()
			defer r.mu.Unlock()
			if w.Err == nil {
				r.requested, r.phase = time.Now(), "answer"
			}
		},
		GotFirstResponseByte: func() { r.mu.Lock(); r.firstByte = time.Since(r.requested); r.mu.Unlock() },
	})
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, u.String(), nil)
	if err != nil {
		return err
	}
	req.Header = p.headers.Clone()
	if req.Header == nil {
		req.Header = http.Header{}
	}
	for name, value := range map[string]string{"User-Agent": netProbeAgent, "Accept": "*/*"} {
		if req.Header.Values(name) == nil {
			req.Header.Set(name, value)
		}
	}
	req.Host = p.hostName
	transport := &http.Transport{
		DialContext: func(ctx context.Context, _, address string) (net.Conn, error) {
			at, err := netip.ParseAddrPort(address)
			if err != nil || at.Addr().Unmap() != p.to.Addr() {
				return nil, fmt.Errorf("connects to %s only", p.to.Addr())
			}
			return p.dial(ctx, r, at.Port())
		},
		TLSClientConfig:    &tls.Config{InsecureSkipVerify: true}, // as kubelet: a pod's certificate is rarely for its address
		DisableKeepAlives:  true,
		ForceAttemptHTTP2:  true, // where TLS agrees on it
		DisableCompression: true,
	}
	defer transport.CloseIdleConnections()
	client := &http.Client{Transport: transport, CheckRedirect: func(to *http.Request, via []*http.Request) error {
		if to.URL.Hostname() != via[0].URL.Hostname() {
			r.mu.Lock()
			r.redirect = to.URL.Redacted()
			r.mu.Unlock()
			return http.ErrUseLastResponse
		}
		if len(via) >= netProbeHops {
			return fmt.Errorf("stopped after %d redirects", netProbeHops)
		}
		return nil
	}}
	answer, err := client.Do(req)
	if err != nil {
		return errors.Unwrap(err) // without the URL, which is long
	}
	defer answer.Body.Close()
	r.mu.Lock()
	r.status = answer.Status
	r.mu.Unlock()
	if _, err := io.Copy(io.Discard, io.LimitReader(answer.Body, netProbeBody)); err != nil {
		return fmt.Errorf("read the answer: %w", err)
	}
	if answer.StatusCode < http.StatusOK || answer.StatusCode >= http.StatusBadRequest {
		return fmt.Errorf("status %s", answer.Status)
	}
	return nil
}

func (p *netProbe) grpc(ctx context.Context, r *netProbed) error {
	var dialErr error
	c, err := grpc.NewClient("passthrough:///"+p.to.String(), grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithUserAgent(netProbeAgent), grpc.WithNoProxy(), grpc.WithDisableServiceConfig(),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) {
			c, err := p.dial(ctx, r, p.to.Port())
			r.mu.Lock()
			defer r.mu.Unlock()
			dialErr, r.requested = err, time.Now()
			return c, err
		}))
	if err != nil {
		return err
	}
	defer c.Close()
	answer, err := health.NewHealthClient(c).Check(ctx, &health.HealthCheckRequest{Service: p.service})
	r.mu.Lock()
	defer r.mu.Unlock()
	if dialErr != nil {
		return dialErr
	}
	if err != nil {
		if r.phase == "request" {
			r.phase = "answer"
		}
		return err
	}
	r.firstByte, r.status = time.Since(r.requested), answer.GetStatus().String()
	if answer.GetStatus() != health.HealthCheckResponse_SERVING {
		r.phase = "answer"
		return fmt.Errorf("status %s", r.status)
	}
	return nil
}

// netHeaders reads "Name: value|Name: value".
func netHeaders(text string) (http.Header, error) {
	headers := http.Header{}
	for part := range strings.SplitSeq(text, "|") {
		if strings.TrimSpace(part) == "" {
			continue
		}
		name, value, ok := strings.Cut(part, ":")
		if !ok {
			return nil, fmt.Errorf("headers: %q is not as Name: value", bytes.TrimSpace([]byte(part)))
		}
		headers.Add(strings.TrimSpace(name), strings.TrimSpace(value))
	}
	return headers, nil
}
