// Package testserver provides servers that the product connects to in tests. Each stops at the end
// of its test. Only tests may import it.
package testserver

import (
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/health"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
)

// HTTP serves on a listener: HTTP/1.1, or with TLS also HTTP/2, with a self-signed certificate.
func HTTP(tb testing.TB, l net.Listener, secure bool, fn http.HandlerFunc) {
	tb.Helper()
	s := &httptest.Server{Listener: l, EnableHTTP2: secure, Config: &http.Server{
		Handler: fn, ErrorLog: log.New(io.Discard, "", 0),
	}}
	if secure {
		s.StartTLS()
	} else {
		s.Start()
	}
	tb.Cleanup(s.Close)
}

// GRPC serves the services that register adds on a listener. stop stops it before the end of the
// test.
func GRPC(tb testing.TB, l net.Listener, register func(*grpc.Server)) (stop func()) {
	tb.Helper()
	s := grpc.NewServer()
	register(s)
	done := make(chan error, 1)
	go func() { done <- s.Serve(l) }()
	stop = sync.OnceFunc(func() {
		s.Stop()
		if err := <-done; err != nil {
			tb.Errorf("gRPC server: %v", err)
		}
	})
	tb.Cleanup(stop)
	return stop
}

// Health serves the gRPC health protocol on a listener. The server itself is serving.
func Health(tb testing.TB, l net.Listener) *health.Server {
	tb.Helper()
	h := health.NewServer()
	GRPC(tb, l, func(s *grpc.Server) { healthpb.RegisterHealthServer(s, h) })
	return h
}
