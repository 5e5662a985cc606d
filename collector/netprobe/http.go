package netprobe

import (
	"cmp"
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
	"strconv"
	"time"
)

const (
	// maxBody is how many bytes of an answer kubelet reads.
	maxBody = 10 << 10
	// maxHops is how many redirects kubelet follows.
	maxHops = 10
	// maxSaid is how many bytes of a failure's body are kept.
	maxSaid = 512
)

func (p *Probe) http(ctx context.Context, at *Progress) error {
	req, err := p.request(at.trace(ctx))
	if err != nil {
		return err
	}
	transport := p.transport(at, req.URL.Hostname())
	defer transport.CloseIdleConnections()
	client := &http.Client{Transport: transport, CheckRedirect: func(to *http.Request, via []*http.Request) error {
		if to.URL.Hostname() != via[0].URL.Hostname() {
			at.note(func(r *Result) { r.Redirect = to.URL.Redacted() })
			return http.ErrUseLastResponse
		}
		if len(via) >= maxHops {
			return ErrRedirects
		}
		return nil
	}}
	answer, err := client.Do(req)
	if err != nil {
		return errors.Unwrap(err) // without the URL, which is long
	}
	defer answer.Body.Close()
	// The TLS close notification of the probe's end can make a server answer, and that answer be
	// read.
	if err := ctx.Err(); err != nil {
		return err
	}
	at.note(func(r *Result) { r.Status = answer.Status })
	body, err := io.ReadAll(io.LimitReader(answer.Body, maxBody))
	if err = cmp.Or(err, ctx.Err()); err != nil {
		return fmt.Errorf("read the answer: %w", err)
	}
	if answer.StatusCode < http.StatusOK || answer.StatusCode >= http.StatusBadRequest {
		at.note(func(r *Result) { r.Body = string(body[:min(len(body), maxSaid)]) })
		return &StatusError{Status: answer.Status}
	}
	return nil
}

func (p *Probe) request(ctx context.Context) (*http.Request, error) {
	u, err := url.Parse(p.Path)
	if err != nil {
		return nil, fmt.Errorf("path: %w", err)
	}
	u.Scheme, u.Host = p.Protocol, p.To.String()
	if p.Name != "" {
		u.Host = net.JoinHostPort(p.Name, strconv.Itoa(int(p.To.Port())))
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, u.String(), nil)
	if err != nil {
		return nil, err
	}
	req.Header = http.Header{}
	for name, values := range p.Headers {
		if name = http.CanonicalHeaderKey(name); name == "Host" {
			req.Host = p.Headers.Get("Host")
			continue
		}
		req.Header[name] = append(req.Header[name], values...)
	}
	for name, value := range map[string]string{"User-Agent": Agent, "Accept": "*/*"} {
		if req.Header.Values(name) == nil {
			req.Header.Set(name, value)
		}
	}
	if req.Header.Get("Accept") == "" { // as kubelet: an empty value removes the header
		req.Header.Del("Accept")
	}
	return req, nil
}

// transport connects only to the probe's address, whatever a redirect says.
func (p *Probe) transport(at *Progress, host string) *http.Transport {
	config := p.TLS
	if config == nil {
		config = &tls.Config{InsecureSkipVerify: true} // as kubelet: a pod's certificate is rarely for its address
	}
	return &http.Transport{
		DialContext: func(_ context.Context, _, address string) (net.Conn, error) {
			to, port, err := net.SplitHostPort(address)
			if err != nil {
				return nil, err
			}
			if a, err := netip.ParseAddr(to); to != host && (err != nil || a.Unmap() != p.To.Addr().Unmap()) {
				return nil, fmt.Errorf("the probe connects to %s only", p.To.Addr())
			}
			n, err := strconv.ParseUint(port, 10, 16)
			if err != nil {
				return nil, fmt.Errorf("port %q: %w", port, err)
			}
			return p.dial(at, uint16(n)) // not ctx: the transport would continue after the probe's end
		},
		TLSClientConfig:    config.Clone(),
		DisableKeepAlives:  true,
		ForceAttemptHTTP2:  true, // if TLS negotiates it
		DisableCompression: true,
	}
}

// trace returns a context that records the probe's progress.
func (p *Progress) trace(ctx context.Context) context.Context {
	return httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{
		TLSHandshakeStart: func() {
			p.note(func(r *Result) { r.Phase, p.handshake = PhaseTLS, time.Now() })
		},
		TLSHandshakeDone: func(_ tls.ConnectionState, err error) {
			if err == nil {
				p.note(func(r *Result) { r.TLS, r.Phase = time.Since(p.handshake), PhaseRequest })
			}
		},
		WroteRequest: func(w httptrace.WroteRequestInfo) {
			if w.Err == nil {
				p.note(func(r *Result) { p.requested, r.Phase = time.Now(), PhaseAnswer })
			}
		},
		GotFirstResponseByte: func() {
			// A response caused by the end of the probe is not an answer.
			if end, ok := p.ctx.Deadline(); p.ctx.Err() == nil && (!ok || time.Now().Before(end)) {
				p.note(func(r *Result) { r.FirstByte = time.Since(p.requested) })
			}
		},
	})
}
