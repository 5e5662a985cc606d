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

// Check returns what is wrong, or nil. It must be fast, because requests wait for it.
type Check func() error

// maxScrapes is how many scrapes may run at the same time. Each needs some hundred KiB.
const maxScrapes = 4

// Handler serves /metrics, /healthz and /readyz.
//
// /healthz responds 200 "ok" while the agent works, or 503 with the reason. /readyz reports
// whether the agent is ready, and below that the lines that notes returns: deficiencies that are no
// reason to restart it. notes may be nil.
//
// With access, /metrics requires a token whose user may get it. kubelet sends no token, so all
// clients may read whether the agent is healthy and ready, but nothing else.
//
// pages are handlers for people, by pattern without a method. They require the same right as
// /metrics.
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
			_, _ = fmt.Fprintln(w, err) // fails only if the client is gone
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

// Serve serves on the listener until ctx ends, then gives running requests at most two seconds
// to finish. It closes the listener. It does not use TLS if access is nil.
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
	protocols.SetHTTP1(true) // one request per connection at a time, so that the limit of connections bounds requests
	srv := &http.Server{
		Handler: bodiless(h), Protocols: &protocols, ConnContext: ConnContext,
		ReadHeaderTimeout: 5 * time.Second,
		ReadTimeout:       10 * time.Second,
		WriteTimeout:      30 * time.Second,
		IdleTimeout:       2 * time.Minute, // Prometheus scrapes each minute
		MaxHeaderBytes:    16 << 10,
		// Any client can cause connection errors; the metrics count closed connections.
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

// bodiless rejects requests with a body: no handler reads one.
func bodiless(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.ContentLength != 0 {
			w.Header().Set("Connection", "close")
			http.Error(w, "requests must not have a body", http.StatusRequestEntityTooLarge)
			return
		}
		h.ServeHTTP(w, r)
	})
}
