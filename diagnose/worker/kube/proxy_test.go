package kube

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"sync"
	"testing"

	"k8s.io/client-go/rest"

	"github.com/kernosis/kernosis/reporter/kubetest"
)

// proxy is between a Store and the API server, and does harm as told.
type proxy struct {
	*httptest.Server

	mu   sync.Mutex
	harm func(http.ResponseWriter, *http.Request) bool // true: it has answered
}

func newProxy(t testing.TB, server *kubetest.Server, as *rest.Config) (*proxy, *rest.Config) {
	t.Helper()
	target, err := url.Parse("https://" + server.Address())
	if err != nil {
		t.Fatal(err)
	}
	transport, err := rest.TransportFor(as)
	if err != nil {
		t.Fatal(err)
	}
	through := &httputil.ReverseProxy{
		Rewrite:       func(r *httputil.ProxyRequest) { r.SetURL(target) },
		Transport:     transport,
		FlushInterval: -1, // a watch's events pass at once
		ErrorHandler:  func(http.ResponseWriter, *http.Request, error) { panic(http.ErrAbortHandler) },
	}
	p := &proxy{}
	p.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		p.mu.Lock()
		harm := p.harm
		p.mu.Unlock()
		if harm != nil && harm(w, r) {
			return
		}
		through.ServeHTTP(w, r)
	}))
	t.Cleanup(p.CloseClientConnections)
	return p, &rest.Config{Host: p.URL, QPS: -1}
}

// do makes the proxy do harm from now on; nil: none.
func (p *proxy) do(harm func(http.ResponseWriter, *http.Request) bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.harm = harm
}

// cut closes all connections, and lets none through any more.
func (p *proxy) cut() {
	p.do(func(http.ResponseWriter, *http.Request) bool { panic(http.ErrAbortHandler) })
	p.CloseClientConnections()
}

// answer is an error as the API server writes it.
func answer(w http.ResponseWriter, code int, reason string) bool {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	fmt.Fprintf(w, `{"kind":"Status","apiVersion":"v1","status":"Failure","message":"as the test says","reason":%q,"code":%d}`, reason, code)
	return true
}
