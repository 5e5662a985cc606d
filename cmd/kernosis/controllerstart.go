package main

import (
	"errors"
	"log/slog"

	"github.com/spf13/pflag"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	ctrlmetrics "sigs.k8s.io/controller-runtime/pkg/metrics"

	"github.com/kernosis/kernosis/diagnose/controller/start"
)

// alertsConfig configures how the controller receives alerts.
type alertsConfig struct {
	Listen       string   `mapstructure:"alerts-listen" yaml:"alerts-listen"`
	CertFile     string   `mapstructure:"alerts-cert-file" yaml:"alerts-cert-file"`
	KeyFile      string   `mapstructure:"alerts-key-file" yaml:"alerts-key-file"`
	Audience     string   `mapstructure:"alerts-audience" yaml:"alerts-audience"`
	ClientCAFile string   `mapstructure:"alerts-client-ca-file" yaml:"alerts-client-ca-file"`
	ClientNames  []string `mapstructure:"alerts-client-names" yaml:"alerts-client-names"`
	PlainHTTP    bool     `mapstructure:"alerts-plain-http" yaml:"alerts-plain-http"`
}

func alertsFlags(fs *pflag.FlagSet) {
	fs.String("alerts-listen", "", "`address` that receives alerts from Alertmanager and Prometheus, such as :20260; empty: none")
	fs.String("alerts-cert-file", "", "`file` with the certificate for alerts-listen, in PEM; reloaded when it changes")
	fs.String("alerts-key-file", "", "`file` with its key")
	fs.String("alerts-audience", start.DefaultAudience, "`audience` that senders' tokens must have")
	fs.String("alerts-client-ca-file", "", "`file` with the CAs of senders' client certificates; empty: only tokens are accepted")
	fs.StringSlice("alerts-client-names", nil, "accepted `names` in client certificates: common name, DNS name or URI")
	fs.Bool("alerts-plain-http", false, "receive alerts without TLS, on a loopback address only")
}

func (c *alertsConfig) check() error {
	if c.Listen == "" {
		if c.CertFile != "" || c.KeyFile != "" || c.ClientCAFile != "" || len(c.ClientNames) > 0 || c.PlainHTTP {
			return errors.New("alerts-listen: must not be empty if other alerts settings are given")
		}
		return nil
	}
	var errs []error
	if c.Audience == "" {
		errs = append(errs, errors.New("alerts-audience: must not be empty"))
	}
	server := c.server()
	return errors.Join(append(errs, server.Check())...)
}

func (c *alertsConfig) server() start.AlertsConfig {
	return start.AlertsConfig{
		Listen: c.Listen, Audience: c.Audience, CertFile: c.CertFile, KeyFile: c.KeyFile, Plain: c.PlainHTTP,
		ClientCAFile: c.ClientCAFile, ClientNames: c.ClientNames,
	}
}

// addStarts adds the parts that create Diagnoses from alerts, Events and schedules once their CRDs
// are installed, and the server that receives alerts.
func addStarts(m manager.Manager, cfg controllerConfig, installed <-chan struct{}, log *slog.Logger) (func(), error) {
	_, remove, err := start.Add(m, start.Config{
		Namespace: cfg.Namespace, Alerts: cfg.Alerts.server(), Installed: installed, Metrics: ctrlmetrics.Registry, Log: log,
	})
	return remove, err
}
