package kubetest

import (
	"bytes"
	"cmp"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"sync"
	"testing"

	"k8s.io/client-go/rest"
)

// Proxy is between a client and the API server, and does harm as it is reported.
type Proxy struct {
	*httptest.Server

	through http.Handler

	mu   sync.Mutex
	harm func(http.ResponseWriter, *http.Request) bool // true: it has answered
}

// NewProxy starts a proxy that asks the server as a user, and returns the configuration
// of its clients. Their connections are closed at the test's end.
func NewProxy(tb testing.TB, server *Server, as *rest.Config) (*Proxy, *rest.Config) {
	tb.Helper()
	target, err := url.Parse("https://" + server.Address())
	if err != nil {
		tb.Fatal(err)
	}
	transport, err := rest.TransportFor(as)
	if err != nil {
		tb.Fatal(err)
	}
	p := &Proxy{through: &httputil.ReverseProxy{
		Rewrite:       func(r *httputil.ProxyRequest) { r.SetURL(target) },
		Transport:     transport,
		FlushInterval: -1, // a watch's events pass at once
		ErrorHandler:  func(http.ResponseWriter, *http.Request, error) { panic(http.ErrAbortHandler) },
		ErrorLog:      log.New(io.Discard, "", 0), // of a server that was killed
	}}
	p.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		p.mu.Lock()
		harm := p.harm
		p.mu.Unlock()
		if harm != nil && harm(w, r) {
			return
		}
		p.through.ServeHTTP(w, r)
	}))
	// No Close: it would wait for harm that hangs longer than the test.
	tb.Cleanup(p.CloseClientConnections)
	return p, &rest.Config{Host: p.URL, QPS: -1}
}

// Do makes the proxy do harm from now on; nil: none. harm reports whether it has
// answered; other requests pass.
func (p *Proxy) Do(harm func(http.ResponseWriter, *http.Request) bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.harm = harm
}

// Cut closes all connections, and lets none through any more.
func (p *Proxy) Cut() {
	p.Do(func(http.ResponseWriter, *http.Request) bool { panic(http.ErrAbortHandler) })
	p.CloseClientConnections()
}

// LoseAnswer is harm that passes the request on and cuts the connection instead of
// answering.
func (p *Proxy) LoseAnswer(r *http.Request) bool {
	p.through.ServeHTTP(discard{http.Header{}}, r)
	panic(http.ErrAbortHandler)
}

// Double is harm that passes a request on, and lets it pass again. It returns false.
func (p *Proxy) Double(r *http.Request) bool {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		panic(http.ErrAbortHandler)
	}
	first := r.Clone(r.Context())
	first.Body, r.Body = io.NopCloser(bytes.NewReader(body)), io.NopCloser(bytes.NewReader(body))
	if r.Method != http.MethodGet { // a watch would last
		p.through.ServeHTTP(discard{http.Header{}}, first)
	}
	return false
}

// discard is an answer that nobody gets.
type discard struct{ header http.Header }

func (d discard) Header() http.Header          { return d.header }
func (discard) Write(text []byte) (int, error) { return len(text), nil }
func (discard) WriteHeader(int)                {}

// Answer is harm that answers with an error as the API server writes it, and with the
// header Retry-After of w, where it is set. It returns true.
func Answer(w http.ResponseWriter, code int, reason string) bool {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	_, _ = fmt.Fprintf(w, `{"kind":"Status","apiVersion":"v1","status":"Failure","message":"as the test says","reason":%q,"code":%d,"details":{"retryAfterSeconds":%s}}`,
		reason, code, cmp.Or(w.Header().Get("Retry-After"), "0"))
	return true
}
