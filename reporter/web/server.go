package web

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"golang.org/x/sync/errgroup"
)

// Check reports what is wrong, or nil. It must be quick: it runs in requests.
type Check func() error

// maxScrapes are answered at once. Each gathers some hundred KiB.
const maxScrapes = 4

// Handler serves /metrics, /healthz and /readyz.
//
// /healthz answers 200 "ok" or 503 with the reason: whether the agent still
// does its work. /readyz says whether it has begun to, and below that, a line each,
// what notes returns: what is no reason to restart it. notes may be nil.
//
// With access, who gets /metrics needs a token that may. kubelet shows none: everybody learns
// whether the agent is healthy and ready, and nothing else.
//
// pages are handlers for people by pattern, without a method. Whoever may get /metrics may get them.
func Handler(metrics prometheus.Gatherer, healthy, ready Check, notes func() []string, pages map[string]http.Handler, access *Access) http.Handler {
	mux := MetricsHandler(metrics, pages, access)
	mux.Handle("GET /healthz", access.checkHandler(healthy, nil))
	mux.Handle("GET /readyz", access.checkHandler(ready, notes))
	return mux
}

// MetricsHandler serves /metrics and pages, as [Handler] does.
func MetricsHandler(metrics prometheus.Gatherer, pages map[string]http.Handler, access *Access) *http.ServeMux {
	mux := http.NewServeMux()
	for pattern, h := range pages {
		mux.Handle(pattern, access.guardPage(h))
	}
	mux.Handle("GET /metrics", access.guard(promhttp.HandlerFor(metrics, promhttp.HandlerOpts{MaxRequestsInFlight: maxScrapes})))
	return mux
}

func (a *Access) checkHandler(check Check, notes func() []string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/plain; charset=utf-8")
		w.Header().Set("X-Content-Type-Options", "nosniff")
		if err := check(); err != nil {
			w.WriteHeader(http.StatusServiceUnavailable)
			if a != nil {
				a.unhealthy.Do(func() { a.log.Warn("not healthy", "path", r.URL.Path, "reason", err) })
				err = errors.New("not ok")
			}
			_, _ = fmt.Fprintln(w, err) // fails only where the client is gone
			return
		}
		_, _ = fmt.Fprintln(w, "ok")
		if notes == nil || a != nil {
			return
		}
		for _, line := range notes() {
			_, _ = fmt.Fprintln(w, line)
		}
	})
}

// Serve answers on the listener until ctx ends, then lets requests under way
// finish for at most two seconds. It closes the listener. A nil access is without TLS.
func Serve(ctx context.Context, l net.Listener, h http.Handler, access *Access, counts *Counts) error {
	bounded, err := Bound(l, counts.closed)
	if err != nil {
		return err
	}
	l = bounded
	if access != nil && access.tls != nil {
		l = tls.NewListener(l, access.tls)
	}
	var protocols http.Protocols
	protocols.SetHTTP1(true) // one request a connection at a time, so that connections bound them
	srv := &http.Server{
		Handler: bodiless(h), Protocols: &protocols, ConnContext: ConnContext,
		ReadHeaderTimeout: 5 * time.Second,
		ReadTimeout:       10 * time.Second,
		WriteTimeout:      30 * time.Second,
		IdleTimeout:       2 * time.Minute, // Prometheus comes each minute
		MaxHeaderBytes:    16 << 10,
		// Anybody can have connections fail; the counts say how many are closed.
		ErrorLog: log.New(io.Discard, "", 0),
	}
	g, gctx := errgroup.WithContext(ctx)
	g.Go(func() error {
		if err := srv.Serve(l); !errors.Is(err, http.ErrServerClosed) {
			return fmt.Errorf("serve http: %w", err)
		}
		return nil
	})
	g.Go(func() error {
		<-gctx.Done()
		stop, cancel := context.WithTimeout(context.Background(), 2*time.Second)
		defer cancel()
		return srv.Shutdown(stop)
	})
	return g.Wait()
}

// bodiless refuses requests with a body: nothing here reads one.
func bodiless(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.ContentLength != 0 {
			w.Header().Set("Connection", "close")
			http.Error(w, "no body is read here", http.StatusRequestEntityTooLarge)
			return
		}
		h.ServeHTTP(w, r)
	})
}
