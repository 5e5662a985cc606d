package web

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"log/slog"
	"net"
	"net/http"
	"net/http/pprof"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"golang.org/x/sync/errgroup"

	"github.com/kernosis/kernosis/detector/problem"
)

// maxScrapes is how many scrapes may run at the same time. Each needs some hundred KiB.
const maxScrapes = 4

// Handler serves /metrics, /healthz and /readyz. healthy and ready return what is wrong, or nil. They
// must be fast, because requests wait for them.
//
// /healthz responds 200 "ok" while the agent works, or 503 with the reason. /readyz reports
// whether the agent is ready, and below that the lines that notes returns: deficiencies that are no
// reason to restart it. notes may be nil.
//
// With access, /metrics requires a token whose user may get it. kubelet sends no token, so all
// clients may read whether the agent is healthy and ready, but nothing else.
//
// pages are handlers for people, by pattern without a method. They require the same right as /metrics.
func Handler(metrics prometheus.Gatherer, healthy, ready func() error, notes func() []string, pages map[string]http.Handler, access *Access) http.Handler {
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

// nodeCondition is a condition in node-problem-detector's form.
type nodeCondition struct {
	Type       string         `json:"type"`
	Status     problem.Status `json:"status"`
	Transition time.Time      `json:"transition"`
	Reason     string         `json:"reason"`
	Message    string         `json:"message"`
}

// StatusHandler serves the endpoints that node-problem-detector has at its port: /healthz,
// /conditions (a JSON list of type, status, transition, reason, message) and /debug/pprof/. With
// access, /conditions requires a token and /debug/pprof/ is not served, because a profile takes CPU
// and exposes memory; it remains available on the machine itself.
func StatusHandler(healthy func() error, conditions func() []problem.Condition, access *Access) http.Handler {
	mux := http.NewServeMux()
	mux.Handle("GET /healthz", access.checkHandler(healthy, nil))
	mux.Handle("GET /conditions", access.guard(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		list := []nodeCondition{}
		for _, c := range conditions() {
			list = append(list, nodeCondition{c.Type, c.Status, c.LastTransition, c.Reason, c.Message})
		}
		w.Header().Set("Content-Type", "application/json")
		w.Header().Set("X-Content-Type-Options", "nosniff")
		_ = json.NewEncoder(w).Encode(list) // fails only if the client is gone
	})))
	if access != nil {
		return mux
	}
	mux.HandleFunc("GET /debug/pprof/", pprof.Index)
	mux.HandleFunc("GET /debug/pprof/cmdline", pprof.Cmdline)
	mux.HandleFunc("GET /debug/pprof/profile", pprof.Profile)
	mux.HandleFunc("GET /debug/pprof/symbol", pprof.Symbol)
	mux.HandleFunc("GET /debug/pprof/trace", pprof.Trace)
	return mux
}

func (a *Access) checkHandler(check func() error, notes func() []string) http.Handler {
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

// ListenAndServe serves at an address until ctx ends. It does nothing if the address is empty.
// It logs the URL with path, which is the start page.
func ListenAndServe(ctx context.Context, g *errgroup.Group, log *slog.Logger, address, path string, to *AccessConfig, h func(*Access) http.Handler) error {
	if address == "" {
		return nil
	}
	access, err := to.For(address)
	if err != nil {
		return err
	}
	l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", address)
	if err != nil {
		return fmt.Errorf("listen: %w", err)
	}
	log.Info("serving", "url", access.Scheme()+"://"+l.Addr().String()+path)
	g.Go(func() error { return Serve(ctx, l, h(access), access, to.Counts) })
	return nil
}

// Serve serves on the listener until ctx ends, then gives running requests at most two seconds
// to finish. It closes the listener. If access is nil it does not use TLS, and serves only requests to
// this machine's own names.
func Serve(ctx context.Context, l net.Listener, h http.Handler, access *Access, counts *Counts) error {
	l = Bound(l, counts.closed)
	if access == nil {
		h = localNames(h)
	}
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

// Reasons for closing a connection.
const (
	ClosedRate = "rate" // its address connects too often
	ClosedFull = "full" // there are too many connections
)

// Counts holds the metrics of all servers of a process.
type Counts struct {
	connections, requests *prometheus.CounterVec
}

// NewCounts returns an agent's metrics. The caller must register them.
func NewCounts() *Counts {
	return newCounts("kernosis_http_connections_closed_total", "kernosis_http_requests_refused_total")
}

// NewControllerCounts returns a controller's metrics. The caller must register them.
func NewControllerCounts() *Counts {
	return newCounts("kernosis_controller_http_connections_closed_total", "kernosis_controller_http_requests_refused_total")
}

func newCounts(connections, requests string) *Counts {
	c := &Counts{
		connections: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: connections, Help: "Connections to /metrics, /healthz and the like that were closed. rate: the client's address connects too often; full: too many connections, and the client's address has the most.",
		}, []string{"reason"}),
		requests: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: requests, Help: "Requests for metrics and conditions that were refused, by response code.",
		}, []string{"code"}),
	}
	c.connections.WithLabelValues(ClosedRate)
	c.connections.WithLabelValues(ClosedFull)
	c.requests.WithLabelValues(strconv.Itoa(http.StatusUnauthorized))
	return c
}

func (c *Counts) closed(reason string) { c.connections.WithLabelValues(reason).Inc() }

// Describe implements [prometheus.Collector].
func (c *Counts) Describe(out chan<- *prometheus.Desc) {
	c.connections.Describe(out)
	c.requests.Describe(out)
}

// Collect implements [prometheus.Collector].
func (c *Counts) Collect(out chan<- prometheus.Metric) {
	c.connections.Collect(out)
	c.requests.Collect(out)
}
