package netprobe

import (
	"context"
	"crypto/tls"
	"fmt"
	"net/http"
	"net/netip"
	"time"
)

// Agent begins as kubelet's does, for applications that go by it.
const Agent = "kube-probe/kernosis"

// How a probe is made.
const (
	HTTP  = "http"
	HTTPS = "https"
	TCP   = "tcp"
	GRPC  = "grpc"
)

// How far a probe gets. Those that need no TLS leave PhaseTLS out.
const (
	PhaseConnect = "connect" // no connection stands
	PhaseTLS     = "tls"     // TLS handshake
	PhaseRequest = "request" // the request is not written yet
	PhaseAnswer  = "answer"  // it is, and the answer is waited for or bad
	PhaseDone    = "done"    // success
)

// PhaseText is a phase in words.
func PhaseText(phase string) string {
	switch phase {
	case PhaseConnect:
		return "TCP handshake"
	case PhaseTLS:
		return "TLS handshake"
	}
	return phase
}

// Probe is what is to be probed. It may be run again, also concurrently.
type Probe struct {
	Protocol string // HTTP, HTTPS, TCP or GRPC
	To       netip.AddrPort
	// Name is the host of the URL and of TLS, where that is not the address.
	Name    string
	Path    string      // with a query, of HTTP; begins with /
	Headers http.Header // of HTTP; Host is the request's
	Service string      // that the health service of gRPC is asked for
	// TLS is nil where certificates are not verified, as kubelet doesn't.
	TLS *tls.Config
	// Hold is how long a TCP probe keeps its connection.
	Hold time.Duration
	// From calls a function in the network namespace that connections are made from; nil:
	// this process' own.
	From func(func() error) error
	// Connected is called when a connection stands, before anything is sent on it. Its error
	// ends the probe.
	Connected func(to, local netip.AddrPort) error
}

// Result is how a probe went.
type Result struct {
	Phase string
	// How long each part took; 0: it was not reached. FirstByte is that of the answer, from
	// the end of the request on.
	Connect, TLS, FirstByte, Took time.Duration

	Status   string // "503 Service Unavailable", of gRPC "NOT_SERVING"
	Redirect string // to another host, where a probe doesn't follow
	Body     string // of an answer that is a failure its beginning, as it came
	Conn     Conn   // the latest connection
	Err      error  // nil: success
}

// ErrRedirects: each answer points to the next.
var ErrRedirects = fmt.Errorf("stopped after %d redirects", maxHops)

// StatusError is an answer that is a failure.
type StatusError struct{ Status string }

func (e *StatusError) Error() string { return "status " + e.Status }

// TimeoutError is the end of a probe's time.
type TimeoutError struct {
	Phase string
	After time.Duration
}

func (e *TimeoutError) Error() string {
	return fmt.Sprintf("no end of the %s within %s", PhaseText(e.Phase), e.After)
}

// Timeout is true.
func (e *TimeoutError) Timeout() bool { return true }

// RunWithin probes for at most the time given, after which the error is a *TimeoutError.
func (p *Probe) RunWithin(ctx context.Context, timeout time.Duration) Result {
	bounded, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	r := p.Run(bounded, &Progress{})
	// The socket's deadline may come a moment before the context's end.
	if end, _ := bounded.Deadline(); r.Err != nil && ctx.Err() == nil && !time.Now().Before(end) {
		r.Err = &TimeoutError{Phase: r.Phase, After: timeout}
	}
	return r
}

// Run probes until ctx ends. at is for who wants to know meanwhile how far it is.
func (p *Probe) Run(ctx context.Context, at *Progress) Result {
	began := time.Now()
	at.ctx = ctx
	at.enter(PhaseConnect)
	var err error
	switch p.Protocol {
	case HTTP, HTTPS:
		err = p.http(ctx, at)
	case GRPC:
		err = p.grpc(ctx, at)
	default:
		err = p.tcp(ctx, at)
	}
	return at.end(time.Since(began), err)
}

func (p *Probe) tcp(ctx context.Context, at *Progress) error {
	c, err := p.dial(at, p.To.Port())
	if err != nil {
		return err
	}
	if p.Hold > 0 {
		t := time.NewTimer(p.Hold)
		defer t.Stop()
		select {
		case <-ctx.Done():
		case <-t.C:
		}
	}
	return c.Close()
}
