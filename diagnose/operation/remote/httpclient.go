package remote

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptrace"
	"net/url"
	"strings"
	"sync/atomic"
	"time"

	"github.com/kernosis/kernosis/collector/display"
	"github.com/kernosis/kernosis/diagnose/operation"
)

const (
	// maxHeader bounds the header of a response, in bytes.
	maxHeader = 64 << 10
	// maxStatusBody is how much of a body an error quotes.
	maxStatusBody = 256
	// maxPEM bounds certificate files: a bundle of all public roots has 250 KiB.
	maxPEM = 4 << 20
)

// TLS configures how servers are verified, and the client certificate of the agent. Verification
// can't be disabled.
type TLS struct {
	CA         []byte // CA certificates (PEM) that verify servers; none: the system's
	Cert, Key  []byte // client certificate of the agent (PEM); none: no client certificate
	ServerName string // name that the server's certificate must have; "": the address
}

// Check returns what is wrong with t, as far as that can be determined without a server.
func (t *TLS) Check() error {
	_, err := t.config()
	return err
}

// config returns the configuration for crypto/tls. Errors quote nothing from keys.
func (t *TLS) config() (*tls.Config, error) {
	c := &tls.Config{MinVersion: tls.VersionTLS12, ServerName: t.ServerName}
	if len(t.CA) > 0 {
		c.RootCAs = x509.NewCertPool()
		if !c.RootCAs.AppendCertsFromPEM(t.CA) {
			return nil, errors.New("certificate authorities: want PEM certificates")
		}
	}
	switch {
	case (len(t.Cert) == 0) != (len(t.Key) == 0):
		return nil, errors.New("client certificate: want both certificate and key")
	case len(t.Cert) > 0:
		pair, err := tls.X509KeyPair(t.Cert, t.Key)
		if err != nil {
			return nil, fmt.Errorf("client certificate: %w", err)
		}
		c.Certificates = []tls.Certificate{pair}
	}
	return c, nil
}

// newHTTPClient returns a client for one request. It verifies servers, follows no redirects, uses
// no proxy, and does not decompress responses, so that a small one can't become huge. Close its
// idle connections when done.
func newHTTPClient(t TLS) (*http.Client, error) {
	config, err := t.config()
	if err != nil {
		return nil, err
	}
	return &http.Client{
		Transport: &http.Transport{
			DialContext:            guardedDialer(false).DialContext,
			TLSClientConfig:        config,
			TLSHandshakeTimeout:    dialTimeout,
			MaxResponseHeaderBytes: maxHeader,
			DisableKeepAlives:      true,
			DisableCompression:     true,
			ExpectContinueTimeout:  time.Second,
		},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}, nil
}

// post sends facts as a JSON object. Once connected, its error is an [operation.OutcomeUnknown],
// because the server may have the request.
func post(ctx context.Context, client *http.Client, u *url.URL, facts map[string]string) (*http.Response, error) {
	if facts == nil {
		facts = map[string]string{}
	}
	body, err := json.Marshal(facts)
	if err != nil {
		return nil, err
	}
	var connected atomic.Bool
	ctx = httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{GotConn: func(httptrace.GotConnInfo) { connected.Store(true) }})
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, u.String(), bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Accept", "application/json")
	resp, err := send(client, req)
	if err != nil && connected.Load() {
		err = &operation.OutcomeUnknown{Err: err}
	}
	return resp, err
}

// send sends a request. Its error has no method and address: callers add what may be shown of them.
func send(client *http.Client, req *http.Request) (*http.Response, error) {
	req.Header.Set("User-Agent", "kernosis")
	resp, err := client.Do(req)
	if wrapped, ok := errors.AsType[*url.Error](err); ok {
		err = wrapped.Err
	}
	return resp, err
}

// statusError describes an unsuccessful response: status, redirect target, and the start of its
// body.
func statusError(resp *http.Response) error {
	text := "status " + display.Safe(resp.Status, operation.MaxQuoted)
	if to := resp.Header.Get("Location"); to != "" && resp.StatusCode/100 == 3 {
		text += ", redirected to " + operation.Quoted(to) + ": redirects are not followed"
	}
	body, _ := io.ReadAll(io.LimitReader(resp.Body, maxStatusBody+1)) // as much as can be read
	if s := strings.TrimSpace(string(body)); s != "" {
		text += ": " + display.Safe(s, maxStatusBody)
	}
	return errors.New(text)
}

// readAnswer returns the body of a response. It returns an error if it has more than limit bytes.
func readAnswer(resp *http.Response, limit int64) ([]byte, error) {
	if enc := resp.Header.Get("Content-Encoding"); enc != "" && !strings.EqualFold(enc, "identity") {
		return nil, fmt.Errorf("answer is encoded as %s, which was not requested", operation.Quoted(enc))
	}
	if resp.ContentLength > limit {
		return nil, fmt.Errorf("answer of %d bytes, at most %d", resp.ContentLength, limit)
	}
	b, err := io.ReadAll(io.LimitReader(resp.Body, limit+1))
	switch {
	case err != nil:
		return nil, fmt.Errorf("read answer after %d bytes: %w", len(b), err)
	case int64(len(b)) > limit:
		return nil, fmt.Errorf("answer of more than %d bytes", limit)
	}
	return b, nil
}

// WhyEnded replaces err by the reason why ctx ended, if it has ended.
func WhyEnded(ctx context.Context, err error) error {
	if cause := ctx.Err(); cause != nil && err != nil {
		if errors.Is(cause, context.DeadlineExceeded) {
			return fmt.Errorf("no complete answer in time: %w", cause)
		}
		return cause
	}
	return err
}
