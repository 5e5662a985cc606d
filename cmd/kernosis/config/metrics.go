package config

import (
	"github.com/spf13/pflag"

	"github.com/kernosis/kernosis/reporter/web"
)

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

// Access returns the access control of the endpoints.
func (s *Metrics) Access() *web.AccessConfig {
	return &web.AccessConfig{CertFile: s.CertFile, KeyFile: s.KeyFile, Plain: s.Plain}
}
