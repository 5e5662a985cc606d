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

// Paths at which alerts are taken.
const (
	// PathWebhook is for Alertmanager's webhook.
	PathWebhook = "/api/v1/alerts/webhook"
	// PathV1 and PathV2 are those at which Prometheus posts to an Alertmanager.
	PathV1 = "/api/v1/alerts"
	PathV2 = "/api/v2/alerts"
	// PathReady answers 200 where alerts are taken, and 503 with the reason where not.
	PathReady = "/-/ready"
)

// DefaultAudience is that of the tokens that senders show.
const DefaultAudience = "kernosis"

// Taker is what alerts are for.
type Taker interface {
	// Take returns when all is done that follows from the alerts: the Diagnoses are made
	// or are not to be. An [Unavailable] asks for another try of the whole request; what
	// was done by then is not done again. Several goroutines may call it.
	Take(ctx context.Context, alerts []*trigger.Alert) error
	// Ready is nil where Take can be called, and an [Unavailable] where not.
	Ready() error
}

// Unavailable says that the same request may be taken later.
type Unavailable struct {
	Why   string
	After time.Duration // when to try again
}

func (u *Unavailable) Error() string { return u.Why }

// Config configures a server. Listen, Taker and API are required.
type Config struct {
	Listen string // host:port
	Taker  Taker
	// API is asked whose tokens are, and what these may do.
	API      kubernetes.Interface
	Audience string // of tokens; empty: [DefaultAudience]

	// CertFile and KeyFile are the server's, in PEM. They, and ClientCAFile, are read
	// again when they change.
	CertFile, KeyFile string
	// Plain serves without TLS. Listen must be a loopback address then.
	Plain bool
	// ClientCAFile has the authorities of senders' certificates, in PEM; empty: only
	// tokens count. ClientNames are the common names, DNS names and URIs that are let in.
	ClientCAFile string
	ClientNames  []string

	Metrics prometheus.Registerer // nil: nowhere
	Log     *slog.Logger          // nil: none
}

// Check returns everything that is wrong with the settings, by the names of the
// controller's flags. Files are not read.
func (c *Config) Check() error {
	var errs []error
	wrong := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	host, _, err := net.SplitHostPort(c.Listen)
	if err != nil {
		wrong("alerts-listen: %w", err)
	}
	if (c.CertFile == "") != (c.KeyFile == "") {
		wrong("alerts-cert-file and alerts-key-file go together")
	}
	switch {
	case c.Plain && c.CertFile != "":
		wrong("alerts-plain-http: excludes alerts-cert-file")
	case c.Plain && c.ClientCAFile != "":
		wrong("alerts-plain-http: excludes alerts-client-ca-file")
	case c.Plain && err == nil && !web.Loopback(host):
		wrong("alerts-plain-http: alerts-listen %s is no loopback address, as 127.0.0.1:20260 is", c.Listen)
	case !c.Plain && c.CertFile == "":
		wrong("alerts-listen: needs alerts-cert-file and alerts-key-file")
	}
	if (c.ClientCAFile == "") != (len(c.ClientNames) == 0) {
		wrong("alerts-client-ca-file and alerts-client-names go together")
	}
	for _, n := range c.ClientNames {
		if strings.TrimSpace(n) == "" {
			wrong("alerts-client-names: one is empty")
		}
	}
	return errors.Join(errs...)
}

// tokens says how the API server is asked about tokens.
func (c *Config) tokens() web.TokensConfig {
	return web.TokensConfig{API: c.API, Audience: c.Audience, Verb: "post", Allowed: allowedFor, Rate: reviewRate, Log: c.Log}
}
