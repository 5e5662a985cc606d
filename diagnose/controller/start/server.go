package start

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
	"k8s.io/client-go/kubernetes"

	"github.com/kernosis/kernosis/collector/display"
	"github.com/kernosis/kernosis/diagnose/trigger"
	"github.com/kernosis/kernosis/reporter/web"
)

// Paths that accept alerts.
const (
	// PathWebhook is for Alertmanager's webhook.
	PathWebhook = "/api/v1/alerts/webhook"
	// PathV1 and PathV2 are the paths of Alertmanager to which Prometheus posts.
	PathV1 = "/api/v1/alerts"
	PathV2 = "/api/v2/alerts"
	// PathReady returns 200 if alerts are accepted, or 503 with the reason.
	PathReady = "/-/ready"
)

// DefaultAudience is the default audience of senders' tokens.
const DefaultAudience = "kernosis"

// AlertsConfig configures how alerts are received.
type AlertsConfig struct {
	Listen   string `mapstructure:"alerts-listen" yaml:"alerts-listen"`     // host:port; empty: no alerts are received
	Audience string `mapstructure:"alerts-audience" yaml:"alerts-audience"` // of senders' tokens; empty: [DefaultAudience]
	// CertFile and KeyFile are the server's, in PEM. They and ClientCAFile are reloaded when they
	// change.
	CertFile string `mapstructure:"alerts-cert-file" yaml:"alerts-cert-file"`
	KeyFile  string `mapstructure:"alerts-key-file" yaml:"alerts-key-file"`
	// Plain serves without TLS. Listen must then be a loopback address.
	Plain bool `mapstructure:"alerts-plain-http" yaml:"alerts-plain-http"`
	// ClientCAFile has the CAs of senders' certificates, in PEM; empty: only tokens are accepted.
	// ClientNames are the accepted common names, DNS names and URIs.
	ClientCAFile string   `mapstructure:"alerts-client-ca-file" yaml:"alerts-client-ca-file"`
	ClientNames  []string `mapstructure:"alerts-client-names" yaml:"alerts-client-names"`
}

// Check returns all mistakes in the settings, as errors that errorf makes of a key and a message. It
// reads no files.
func (c *AlertsConfig) Check(errorf func(key, format string, args ...any) error) error {
	var errs []error
	wrong := func(key, format string, args ...any) { errs = append(errs, errorf(key, format, args...)) }
	host, _, err := net.SplitHostPort(c.Listen)
	if err != nil {
		wrong("alerts-listen", "%w", err)
	}
	if (c.CertFile == "") != (c.KeyFile == "") {
		given := "alerts-cert-file"
		if c.CertFile == "" {
			given = "alerts-key-file"
		}
		wrong(given, "set both alerts-cert-file and alerts-key-file, or neither")
	}
	switch {
	case c.Plain && c.CertFile != "":
		wrong("alerts-plain-http", "can't be combined with alerts-cert-file")
	case c.Plain && c.ClientCAFile != "":
		wrong("alerts-plain-http", "can't be combined with alerts-client-ca-file")
	case c.Plain && err == nil && !web.Loopback(host):
		wrong("alerts-plain-http", "alerts-listen %s: want a loopback address such as 127.0.0.1:20260", c.Listen)
	case !c.Plain && c.CertFile == "":
		wrong("alerts-listen", "requires alerts-cert-file and alerts-key-file")
	}
	if (c.ClientCAFile == "") != (len(c.ClientNames) == 0) {
		given := "alerts-client-ca-file"
		if c.ClientCAFile == "" {
			given = "alerts-client-names"
		}
		wrong(given, "set both alerts-client-ca-file and alerts-client-names, or neither")
	}
	for _, n := range c.ClientNames {
		if strings.TrimSpace(n) == "" {
			wrong("alerts-client-names", "a name is empty")
		}
	}
	return errors.Join(errs...)
}

// keyed returns an error about a setting.
func keyed(key, format string, args ...any) error {
	return fmt.Errorf("%s: %w", key, fmt.Errorf(format, args...))
}

// taker takes alerts: the [Part].
type taker interface {
	// Take returns once all Diagnoses for the alerts are created or withheld. A [notNow] asks for a
	// retry of the whole request, which skips completed work. It may be called by several
	// goroutines.
	Take(ctx context.Context, alerts []*trigger.Alert) error
	// Ready returns nil if Take can be called, or a [notNow].
	Ready() error
}

// notNow is the error of a request that may be accepted later.
type notNow struct {
	why   string
	after time.Duration // when to retry
}

func (n *notNow) Error() string { return n.why }

// server receives alerts. Its methods may be called by several goroutines.
type server struct {
	cfg     AlertsConfig
	log     *slog.Logger
	taker   taker
	keys    *web.Keys // nil: plain
	tokens  *web.Tokens
	senders *web.Limiters
	slots   *semaphore.Weighted
	counts  *alertCounts
	address atomic.Pointer[string]
	body    time.Duration // how long reading a request may take
	report  struct{ malformed, partial, unknown, connection rate.Sometimes }
}

// newServer returns a server that does not listen yet. It asks api about tokens and what their
// users may do.
func newServer(c AlertsConfig, to taker, api kubernetes.Interface, log *slog.Logger) (*server, error) {
	if err := c.Check(keyed); err != nil {
		return nil, err
	}
	c.Audience = cmp.Or(c.Audience, DefaultAudience)
	s := &server{cfg: c, log: log, taker: to, slots: semaphore.NewWeighted(maxRequests), body: readWithin}
	// A sender's repeated mistakes are logged only occasionally; the metrics count all.
	for _, t := range []*rate.Sometimes{&s.report.malformed, &s.report.partial, &s.report.unknown, &s.report.connection} {
		*t = rate.Sometimes{First: 1, Interval: 10 * time.Second}
	}
	s.senders = web.NewLimiters(maxSenders, requestRate, requestBurst)
	s.tokens = web.NewTokens(web.TokensConfig{API: api, Audience: c.Audience, Verb: "post", Allowed: allowedFor, Rate: reviewRate, Log: log})
	if !c.Plain {
		var err error
		if s.keys, err = web.NewKeys(c.CertFile, c.KeyFile, c.ClientCAFile, log); err != nil {
			return nil, err
		}
	}
	s.counts = newAlertCounts(s.keys)
	return s, nil
}

// connectionLog logs failed connections, for example of a sender that does not trust the
// certificate. It logs only occasionally, because anybody can cause them.
type connectionLog server

func (l *connectionLog) Write(line []byte) (int, error) {
	l.report.connection.Do(func() {
		l.log.Warn("alerts: a connection has failed", "error", display.Safe(strings.TrimSpace(string(line)), 512))
	})
	return len(line), nil
}

// NeedLeaderElection makes the controller's manager run the server in every process. One that does
// not lead says so to senders.
func (s *server) NeedLeaderElection() bool { return false }

// Address returns where the server listens; empty: not yet.
func (s *server) Address() string {
	if a := s.address.Load(); a != nil {
		return *a
	}
	return ""
}

// Start serves until the context ends, and then leaves running requests some seconds to finish.
func (s *server) Start(ctx context.Context) error {
	if err := s.serve(ctx); err != nil {
		return fmt.Errorf("alerts: %w", err)
	}
	return nil
}

func (s *server) serve(ctx context.Context) error {
	var lc net.ListenConfig
	l, err := lc.Listen(ctx, "tcp", s.cfg.Listen)
	if err != nil {
		return err
	}
	address := l.Addr().String()
	s.address.Store(&address)
	defer s.address.Store(nil)
	l = web.Bound(l, s.counts.closed)
	if s.keys != nil {
		l = tls.NewListener(l, s.keys.Server())
	}
	var protocols http.Protocols
	protocols.SetHTTP1(true) // one request at a time per connection, so that the limit on connections limits requests
	server := &http.Server{
		Handler: s.handler(), Protocols: &protocols, ConnContext: web.ConnContext,
		ReadHeaderTimeout: headerWithin, ReadTimeout: s.body, WriteTimeout: writeWithin, IdleTimeout: idleWithin,
		MaxHeaderBytes: maxHeader,
		ErrorLog:       log.New((*connectionLog)(s), "", 0),
	}
	s.log.Info("accepting alerts", "address", address, "tls", s.keys != nil, "client_certificates", s.cfg.ClientCAFile != "", "audience", s.cfg.Audience)
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
