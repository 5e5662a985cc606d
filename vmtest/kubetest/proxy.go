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

// Proxy is a proxy between a client and the API server that injects faults.
type Proxy struct {
	*httptest.Server

	through http.Handler

	mu   sync.Mutex
	harm func(http.ResponseWriter, *http.Request) bool // returns true if it has responded
}

// NewProxy starts a proxy that connects to the server as a user, and returns the configuration of
// its clients. Their connections are closed at the end of the test.
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
		FlushInterval: -1, // forwards a watch's events at once
		ErrorHandler:  func(http.ResponseWriter, *http.Request, error) { panic(http.ErrAbortHandler) },
		ErrorLog:      log.New(io.Discard, "", 0), // about a killed server
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
	// Not Close, which would wait for a harm that hangs longer than the test.
	tb.Cleanup(p.CloseClientConnections)
	return p, &rest.Config{Host: p.URL, QPS: -1}
}

// Do injects a fault from now on, or none if harm is nil. harm returns true if it has responded;
// otherwise the request is forwarded.
func (p *Proxy) Do(harm func(http.ResponseWriter, *http.Request) bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.harm = harm
}

// Cut closes all connections and rejects new ones.
func (p *Proxy) Cut() {
	p.Do(func(http.ResponseWriter, *http.Request) bool { panic(http.ErrAbortHandler) })
	p.CloseClientConnections()
}

// LoseAnswer is a harm that forwards the request and closes the connection instead of responding.
func (p *Proxy) LoseAnswer(r *http.Request) bool {
	p.through.ServeHTTP(httptest.NewRecorder(), r)
	panic(http.ErrAbortHandler)
}

// Double is a harm that forwards a request and returns false, so that it is forwarded twice.
func (p *Proxy) Double(r *http.Request) bool {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		panic(http.ErrAbortHandler)
	}
	first := r.Clone(r.Context())
	first.Body, r.Body = io.NopCloser(bytes.NewReader(body)), io.NopCloser(bytes.NewReader(body))
	if r.Method != http.MethodGet { // a watch would last
		p.through.ServeHTTP(httptest.NewRecorder(), first)
	}
	return false
}

// Answer is a harm that responds with an error in the API server's format. It uses the header
// Retry-After of w, if set. It returns true.
func Answer(w http.ResponseWriter, code int, reason string) bool {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	_, _ = fmt.Fprintf(w, `{"kind":"Status","apiVersion":"v1","status":"Failure","message":"as the test says","reason":%q,"code":%d,"details":{"retryAfterSeconds":%s}}`,
		reason, code, cmp.Or(w.Header().Get("Retry-After"), "0"))
	return true
}
