package netprobe

import (
	"context"
	"crypto/tls"
	"fmt"
	"net/http"
	"net/netip"
	"sync"
	"time"
)

// Agent is the user agent. It begins like kubelet's, for applications that check it.
const Agent = "kube-probe/kernosis"

// The protocols of a probe.
const (
	HTTP  = "http"
	HTTPS = "https"
	TCP   = "tcp"
	GRPC  = "grpc"
)

// The phases of a probe. Probes without TLS skip PhaseTLS.
const (
	PhaseConnect = "connect" // there is no connection yet
	PhaseTLS     = "tls"     // TLS handshake
	PhaseRequest = "request" // the request has not been written yet
	PhaseAnswer  = "answer"  // the request was written, and the answer is awaited or bad
	PhaseDone    = "done"    // success
)

// PhaseText describes a phase.
func PhaseText(phase string) string {
	switch phase {
	case PhaseConnect:
		return "TCP handshake"
	case PhaseTLS:
		return "TLS handshake"
	}
	return phase
}

// Probe defines a probe. It may be run several times, also concurrently.
type Probe struct {
	Protocol string // HTTP, HTTPS, TCP or GRPC
	To       netip.AddrPort
	// Name is the host in the URL and for TLS, if that is not the address.
	Name    string
	Path    string      // of HTTP, with a query; begins with /
	Headers http.Header // of HTTP; Host is the request's host
	Service string      // the service for gRPC's health check
	// TLS is nil if certificates are not verified; kubelet does not verify them.
	TLS *tls.Config
	// Hold is how long a TCP probe keeps its connection.
	Hold time.Duration
	// From calls a function in the network namespace from which connections are made; nil: this
	// process's own.
	From func(func() error) error
	// Connected is called after a connection was made, before anything is sent on it. If it
	// returns an error, the probe ends.
	Connected func(to, local netip.AddrPort) error
}

// Result is the outcome of a probe.
type Result struct {
	Phase string
	// The duration of each part; 0 if it was not reached. FirstByte is the time from the end of
	// the request to the answer's first byte.
	Connect, TLS, FirstByte, Took time.Duration

	Status   string // "503 Service Unavailable"; for gRPC "NOT_SERVING"
	Redirect string // to another host, which the probe doesn't follow
	Body     string // the unchanged beginning of an answer that is a failure
	Conn     Conn   // the latest connection
	Err      error  // nil: success
}

// ErrRedirects: there were too many redirects.
var ErrRedirects = fmt.Errorf("stopped after %d redirects", maxHops)

// StatusError is the error for an answer with a failure status.
type StatusError struct{ Status string }

func (e *StatusError) Error() string { return "status " + e.Status }

// TimeoutError is the error for a probe that timed out.
type TimeoutError struct {
	Phase string
	After time.Duration
}

func (e *TimeoutError) Error() string {
	return fmt.Sprintf("the %s did not end within %s", PhaseText(e.Phase), e.After)
}

// Timeout is true.
func (e *TimeoutError) Timeout() bool { return true }

// RunWithin probes for at most timeout, after which the error is a *TimeoutError.
func (p *Probe) RunWithin(ctx context.Context, timeout time.Duration) Result {
	bounded, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	r := p.Run(bounded, &Progress{})
	// The socket's deadline may pass a moment before the context ends.
	if end, _ := bounded.Deadline(); r.Err != nil && ctx.Err() == nil && !time.Now().Before(end) {
		r.Err = &TimeoutError{Phase: r.Phase, After: timeout}
	}
	return r
}

// Run probes until ctx ends. at shows the progress in the meantime.
func (p *Probe) Run(ctx context.Context, at *Progress) Result {
	began := time.Now()
	at.ctx = ctx
	at.note(func(r *Result) { r.Phase = PhaseConnect })
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

// Progress is the progress of a running probe. Its zero value is ready for one run.
type Progress struct {
	ctx context.Context // of the run

	mu                   sync.Mutex
	r                    Result
	handshake, requested time.Time
	conns                []*conn // all connections; redirects cause more than one
	ended                bool    // connections made later are closed at once
}

// Phase returns the probe's current phase.
func (p *Progress) Phase() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.r.Phase
}

// note records progress.
func (p *Progress) note(fn func(*Result)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	fn(&p.r)
}

// end returns the probe's result. It reads what the kernel knows about the connection before
// closing it, unless the connection is closed already.
func (p *Progress) end(took time.Duration, err error) Result {
	p.mu.Lock()
	conns := p.conns
	p.ended = true
	p.mu.Unlock()
	for i, c := range conns {
		if i == len(conns)-1 {
			facts := c.facts()
			p.note(func(r *Result) { r.Conn = facts })
		}
		_ = c.Close() // nothing that was sent matters any more
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.r.Took, p.r.Err = took, err
	if err == nil {
		p.r.Phase = PhaseDone
	}
	return p.r
}
