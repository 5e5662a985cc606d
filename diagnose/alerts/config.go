package alerts

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/client-go/kubernetes"

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

// Taker receives the alerts.
type Taker interface {
	// Take returns once everything that follows from the alerts is done: the Diagnoses are created
	// or withheld. An [Unavailable] asks for a retry of the whole request; what is already done is
	// not done again. It may be called by several goroutines.
	Take(ctx context.Context, alerts []*trigger.Alert) error
	// Ready returns nil if Take can be called, or an [Unavailable].
	Ready() error
}

// Unavailable is the error of a request that may be accepted later.
type Unavailable struct {
	Why   string
	After time.Duration // when to retry
}

func (u *Unavailable) Error() string { return u.Why }

// Config configures a server. Listen, Taker and API are required.
type Config struct {
	Listen string // host:port
	Taker  Taker
	// API is used to review tokens and what their users may do.
	API      kubernetes.Interface
	Audience string // of tokens; empty: [DefaultAudience]

	// CertFile and KeyFile are the server's, in PEM. They and ClientCAFile are reloaded when they
	// change.
	CertFile, KeyFile string
	// Plain serves without TLS. Listen must then be a loopback address.
	Plain bool
	// ClientCAFile has the CAs of senders' certificates, in PEM; empty: only tokens are accepted.
	// ClientNames are the accepted common names, DNS names and URIs.
	ClientCAFile string
	ClientNames  []string

	Metrics prometheus.Registerer // nil: nowhere
	Log     *slog.Logger          // nil: no log
}

// Check returns all mistakes in the settings, with the names of the controller's flags. It reads no
// files.
func (c *Config) Check() error {
	var errs []error
	wrong := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	host, _, err := net.SplitHostPort(c.Listen)
	if err != nil {
		wrong("alerts-listen: %w", err)
	}
	if (c.CertFile == "") != (c.KeyFile == "") {
		wrong("set both alerts-cert-file and alerts-key-file, or neither")
	}
	switch {
	case c.Plain && c.CertFile != "":
		wrong("alerts-plain-http: can't be combined with alerts-cert-file")
	case c.Plain && c.ClientCAFile != "":
		wrong("alerts-plain-http: can't be combined with alerts-client-ca-file")
	case c.Plain && err == nil && !web.Loopback(host):
		wrong("alerts-plain-http: alerts-listen %s: want a loopback address such as 127.0.0.1:20260", c.Listen)
	case !c.Plain && c.CertFile == "":
		wrong("alerts-listen: requires alerts-cert-file and alerts-key-file")
	}
	if (c.ClientCAFile == "") != (len(c.ClientNames) == 0) {
		wrong("set both alerts-client-ca-file and alerts-client-names, or neither")
	}
	for _, n := range c.ClientNames {
		if strings.TrimSpace(n) == "" {
			wrong("alerts-client-names: a name is empty")
		}
	}
	return errors.Join(errs...)
}

// tokens returns the configuration for reviewing tokens.
func (c *Config) tokens() web.TokensConfig {
	return web.TokensConfig{API: c.API, Audience: c.Audience, Verb: "post", Allowed: allowedFor, Rate: reviewRate, Log: c.Log}
}
