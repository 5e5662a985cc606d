package web

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"golang.org/x/sync/errgroup"
)

// Check reports what is wrong, or nil. It must be quick: it runs in requests.
type Check func() error

// Handler serves /metrics, /healthz and /readyz.
//
// /healthz answers 200 "ok" or 503 with the reason: whether the agent still
// does its work. /readyz says whether it has begun to, and below that, a line each,
// what notes returns: what is no reason to restart it. notes may be nil.
func Handler(metrics prometheus.Gatherer, healthy, ready Check, notes func() []string) http.Handler {
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", promhttp.HandlerFor(metrics, promhttp.HandlerOpts{}))
	mux.Handle("GET /healthz", checkHandler(healthy, nil))
	mux.Handle("GET /readyz", checkHandler(ready, notes))
	return mux
}

func checkHandler(check Check, notes func() []string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/plain; charset=utf-8")
		w.Header().Set("X-Content-Type-Options", "nosniff")
		if err := check(); err != nil {
			w.WriteHeader(http.StatusServiceUnavailable)
			_, _ = fmt.Fprintln(w, err) // fails only where the client is gone
			return
		}
		_, _ = fmt.Fprintln(w, "ok")
		if notes == nil {
			return
		}
		for _, line := range notes() {
			_, _ = fmt.Fprintln(w, line)
		}
	})
}

// Serve answers on the listener until ctx ends, then lets requests under way
// finish for at most two seconds. It closes the listener.
func Serve(ctx context.Context, l net.Listener, h http.Handler) error {
	srv := &http.Server{
		Handler:           h,
		ReadHeaderTimeout: 5 * time.Second,
		ReadTimeout:       10 * time.Second,
		WriteTimeout:      30 * time.Second,
		IdleTimeout:       time.Minute,
		MaxHeaderBytes:    16 << 10,
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
