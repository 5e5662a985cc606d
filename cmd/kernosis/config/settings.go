package config

import (
	"errors"
	"fmt"
	"log/slog"
	"net"
	"strconv"

	"github.com/spf13/pflag"

	"github.com/kernosis/kernosis/reporter/web"
)

// ParseLevel reads the value of --log-level.
func ParseLevel(s string) (slog.Level, error) {
	var l slog.Level
	if err := l.UnmarshalText([]byte(s)); err != nil {
		return l, fmt.Errorf("%q: want one of debug, info, warn, error", s)
	}
	return l, nil
}

// CheckListen returns an error unless address is empty, or an address and port to listen at.
func CheckListen(address string) error {
	if address == "" {
		return nil
	}
	_, port, err := net.SplitHostPort(address)
	if _, wrong := strconv.ParseUint(port, 10, 16); err != nil || errors.Is(wrong, strconv.ErrRange) {
		return fmt.Errorf("%q: want ADDRESS:PORT, for example 127.0.0.1:20257", address)
	}
	return nil
}

// LogWarnings logs the warnings that [Load] returned.
func LogWarnings(log *slog.Logger, warnings []string) {
	for _, w := range warnings {
		log.Warn("configuration", "warning", w)
	}
}

// Metrics configures TLS and access for addresses that other machines can reach.
type Metrics struct {
	CertFile string `mapstructure:"metrics-cert-file" yaml:"metrics-cert-file"`
	KeyFile  string `mapstructure:"metrics-key-file" yaml:"metrics-key-file"`
	Plain    bool   `mapstructure:"metrics-plain-http" yaml:"metrics-plain-http"`
}

// MetricsFlags adds the flags of [Metrics].
func MetricsFlags(fs *pflag.FlagSet) {
	fs.String("metrics-cert-file", "", "`file` with the certificate for addresses other than loopback, in PEM, reloaded when it changes; empty: a self-signed one")
	fs.String("metrics-key-file", "", "`file` with its key")
	fs.Bool("metrics-plain-http", false, "serve without TLS or authentication to clients that can reach the address")
}

// Check returns all mistakes in the settings, with the origin of each.
func (s *Metrics) Check(from Origins) error {
	var errs []error
	if (s.CertFile == "") != (s.KeyFile == "") {
		given := "metrics-cert-file"
		if s.CertFile == "" {
			given = "metrics-key-file"
		}
		errs = append(errs, from.Errorf(given, "set both metrics-cert-file and metrics-key-file, or neither"))
	}
	if s.Plain && s.CertFile != "" {
		errs = append(errs, from.Errorf("metrics-plain-http", "can't be combined with metrics-cert-file"))
	}
	return errors.Join(errs...)
}

// Access returns the access control of the endpoints.
func (s *Metrics) Access() *web.AccessConfig {
	return &web.AccessConfig{CertFile: s.CertFile, KeyFile: s.KeyFile, Plain: s.Plain}
}
