package alerts

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"time"

	"golang.org/x/sync/semaphore"
	"golang.org/x/time/rate"

	"github.com/kernosis/kernosis/collector/display"
	"github.com/kernosis/kernosis/reporter/web"
)

// Server receives alerts. Its methods may be called by several goroutines.
type Server struct {
	cfg     Config
	keys    *web.Keys // nil: plain
	tokens  *web.Tokens
	senders *web.Limiters
	slots   *semaphore.Weighted
	counts  *counts
	address atomic.Pointer[string]
	body    time.Duration // how long reading a request may take
	report  struct{ malformed, partial, unknown, connection rate.Sometimes }
}

// New returns a server that does not listen yet. Its metrics are registered until Close.
func New(c Config) (*Server, error) {
	s, err := newServer(c)
	if err != nil {
		return nil, fmt.Errorf("alerts: %w", err)
	}
	return s, nil
}

func newServer(c Config) (*Server, error) {
	if c.Taker == nil || c.API == nil {
		return nil, errors.New("no taker, or no API server")
	}
	if err := c.Check(); err != nil {
		return nil, err
	}
	c.Audience = cmp.Or(c.Audience, DefaultAudience)
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	s := &Server{cfg: c, slots: semaphore.NewWeighted(maxRequests), body: readWithin}
	// A sender's repeated mistakes are logged only occasionally; the metrics count all.
	for _, t := range []*rate.Sometimes{&s.report.malformed, &s.report.partial, &s.report.unknown, &s.report.connection} {
		*t = rate.Sometimes{First: 1, Interval: 10 * time.Second}
	}
	var err error
	if s.senders, err = web.NewLimiters(maxSenders, requestRate, requestBurst); err != nil {
		return nil, err
	}
	if s.tokens, err = web.NewTokens(c.tokens()); err != nil {
		return nil, err
	}
	if !c.Plain {
		if s.keys, err = web.NewKeys(c.CertFile, c.KeyFile, c.ClientCAFile, c.Log); err != nil {
			return nil, err
		}
	}
	s.counts = newCounts(s.keys)
	if c.Metrics != nil {
		if err := c.Metrics.Register(s.counts); err != nil {
			return nil, err
		}
	}
	return s, nil
}

// Close unregisters the metrics. It does not end Start.
func (s *Server) Close() {
	if s.cfg.Metrics != nil {
		s.cfg.Metrics.Unregister(s.counts)
	}
}

// connectionLog logs failed connections, for example of a sender that does not trust the
// certificate. It logs only occasionally, because anybody can cause them.
type connectionLog Server

func (l *connectionLog) Write(line []byte) (int, error) {
	l.report.connection.Do(func() {
		l.cfg.Log.Warn("alerts: a connection has failed", "error", display.Safe(strings.TrimSpace(string(line)), 512))
	})
	return len(line), nil
}

// NeedLeaderElection makes the controller's manager run the server in every process. One that does
// not lead says so to senders.
func (s *Server) NeedLeaderElection() bool { return false }

// Address returns where the server listens; empty: not yet.
func (s *Server) Address() string {
	if a := s.address.Load(); a != nil {
		return *a
	}
	return ""
}

// Start serves until the context ends, and then leaves running requests some seconds to finish.
func (s *Server) Start(ctx context.Context) error {
	if err := s.serve(ctx); err != nil {
		return fmt.Errorf("alerts: %w", err)
	}
	return nil
}

func (s *Server) serve(ctx context.Context) error {
	var lc net.ListenConfig
	l, err := lc.Listen(ctx, "tcp", s.cfg.Listen)
	if err != nil {
		return err
	}
	address := l.Addr().String()
	s.address.Store(&address)
	defer s.address.Store(nil)
	if l, err = web.Bound(l, s.counts.closed); err != nil {
		return err
	}
	if s.keys != nil {
		l = tls.NewListener(l, s.keys.Server())
	}
	var protocols http.Protocols
	protocols.SetHTTP1(true) // one request at a time per connection, so that the limit on connections limits requests
	server := &http.Server{
		Handler: s.Handler(), Protocols: &protocols, ConnContext: web.ConnContext,
		ReadHeaderTimeout: headerWithin, ReadTimeout: s.body, WriteTimeout: writeWithin, IdleTimeout: idleWithin,
		MaxHeaderBytes: maxHeader,
		ErrorLog:       log.New((*connectionLog)(s), "", 0),
	}
	s.cfg.Log.Info("accepting alerts", "address", address, "tls", s.keys != nil, "client_certificates", s.cfg.ClientCAFile != "", "audience", s.cfg.Audience)
	ended := make(chan error, 1)
	go func() { ended <- server.Serve(l) }()
	select {
	case err := <-ended:
		return err
	case <-ctx.Done():
	}
	stop, cancel := context.WithTimeout(context.WithoutCancel(ctx), takeWithin)
	defer cancel()
	if err := server.Shutdown(stop); err != nil {
		_ = server.Close()
	}
	if err := <-ended; !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}
