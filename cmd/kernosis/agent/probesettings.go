package agent

import (
	"errors"
	"net/netip"
	"os"
	"slices"

	"github.com/spf13/pflag"

	"github.com/kernosis/kernosis/cmd/kernosis/config"
	"github.com/kernosis/kernosis/collector/hostfs"
	"github.com/kernosis/kernosis/collector/pods"
)

// Values of the setting probes.
const (
	ProbesOff     = "off"
	ProbesObserve = "observe"
)

const (
	// ownToken and ownCA are the files of a pod's service account.
	ownToken = "/var/run/secrets/kubernetes.io/serviceaccount/token"
	ownCA    = "/var/run/secrets/kubernetes.io/serviceaccount/ca.crt"
	// kubeletHere is kubelet's address unless $NODE_IP is set, which is better: a certificate
	// signed by a CA has the node's address. kubeletCert is kubelet's self-signed certificate.
	kubeletHere = "https://127.0.0.1:10250"
	kubeletCert = "/var/lib/kubelet/pki/kubelet.crt"
	none        = "none"
)

// Values of the setting pods-from.
const (
	PodsFromAPI     = "api"
	PodsFromKubelet = "kubelet"
)

// probeSettings configure how run and agent treat kubelet's probes.
type probeSettings struct {
	Mode            string   `mapstructure:"probes" yaml:"probes"`
	PodsFrom        string   `mapstructure:"pods-from" yaml:"pods-from"`
	PodsFile        string   `mapstructure:"pods-file" yaml:"pods-file"`
	KubeletEvents   bool     `mapstructure:"kubelet-events" yaml:"kubelet-events"`
	KubeletURL      string   `mapstructure:"kubelet-url" yaml:"kubelet-url"`
	KubeletCA       string   `mapstructure:"kubelet-ca" yaml:"kubelet-ca"`
	KubeletCert     string   `mapstructure:"kubelet-cert" yaml:"kubelet-cert"`
	KubeletInsecure bool     `mapstructure:"kubelet-insecure" yaml:"kubelet-insecure"`
	KubeletToken    string   `mapstructure:"kubelet-token-file" yaml:"kubelet-token-file"`
	Process         []string `mapstructure:"prober-process" yaml:"prober-process"`
}

func probeFlags(fs *pflag.FlagSet) {
	fs.String("probes", ProbesObserve, "`mode`: observe reports why kubelet's probes fail, if the node's pods are known; or off")
	fs.String("pods-from", PodsFromAPI, "`source` of the node's pods: api (the API server, or kubelet without one) or kubelet (kubelet alone)")
	fs.String("pods-file", "", "`file` with the node's pods, used if neither the API server nor kubelet is asked; reloaded when it changes")
	fs.Bool("kubelet-events", true, "read kubelet's Events on failing probes from the API server, if there is one: HTTP status, TLS errors, command output")
	fs.String("kubelet-url", "", "`address` of kubelet, https://host:port; empty: in a pod of the cluster port 10250 of $NODE_IP, or "+kubeletHere+"; none: don't ask it")
	fs.String("kubelet-ca", "", "`file` with the CAs of kubelet's certificate")
	fs.String("kubelet-cert", "", "`file` with kubelet's certificate, if it is self-signed")
	fs.Bool("kubelet-insecure", false, "skip verification of kubelet's certificate")
	fs.String("kubelet-token-file", "", "`file` with the token for kubelet; empty: the pod's own")
	// A thread's name has 15 bytes.
	fs.StringSlice("prober-process", []string{"kubelet", "k3s-server", "k3s-agent", "k3s", "kubelite"}, "`names` that kubelet's process may have")
}

func (s *probeSettings) check(from config.Origins) error {
	var errs []error
	if s.Mode != ProbesOff && s.Mode != ProbesObserve {
		errs = append(errs, from.Errorf("probes", "%q: want %s or %s", s.Mode, ProbesObserve, ProbesOff))
	}
	switch {
	case s.PodsFrom != PodsFromAPI && s.PodsFrom != PodsFromKubelet:
		errs = append(errs, from.Errorf("pods-from", "%q: want %s or %s", s.PodsFrom, PodsFromAPI, PodsFromKubelet))
	case s.PodsFrom == PodsFromKubelet && s.PodsFile != "":
		errs = append(errs, from.Errorf("pods-from", "%s can't be used with pods-file", PodsFromKubelet))
	case s.PodsFrom == PodsFromKubelet && s.KubeletURL == none:
		errs = append(errs, from.Errorf("pods-from", "%s needs a kubelet-url, which is %s", PodsFromKubelet, none))
	}
	if n := len(s.Process); s.Mode == ProbesObserve && (n == 0 || n > 8) {
		errs = append(errs, from.Errorf("prober-process", "%d names, want 1 to 8", n))
	}
	for _, name := range s.Process {
		if name == "" || len(name) > 15 {
			errs = append(errs, from.Errorf("prober-process", "%q: want a process name of 1 to 15 bytes", name))
		}
	}
	if s.KubeletURL != "" && s.KubeletURL != none {
		if _, err := pods.NewAsker(s.source("/")); err != nil {
			errs = append(errs, from.Errorf("kubelet-url", "%w", err))
		}
	}
	return errors.Join(errs...)
}

// source returns how to reach kubelet; root is the root folder of the host.
func (s *probeSettings) source(root string) pods.KubeletConfig {
	c := pods.KubeletConfig{
		URL: s.KubeletURL, CAFile: s.KubeletCA, CertFile: s.KubeletCert, Insecure: s.KubeletInsecure, TokenFile: s.KubeletToken,
	}
	if c.URL != "" && c.TokenFile == "" && c.URL[:min(len(c.URL), 5)] != "https" {
		return c
	}
	if c.TokenFile == "" && exists(ownToken) {
		c.TokenFile = ownToken
	}
	if c.URL == "" {
		c.URL = kubeletHere
		if ip, err := netip.ParseAddr(os.Getenv("NODE_IP")); err == nil {
			c.URL = "https://" + netip.AddrPortFrom(ip, 10250).String()
		}
	}
	if c.CAFile == "" && c.CertFile == "" && !c.Insecure {
		if cert, err := hostfs.New(root).RealPath(kubeletCert); err == nil {
			c.CertFile = cert
		} else if exists(ownCA) {
			c.CAFile = ownCA
		}
	}
	return c
}

// asksKubelet reports whether kubelet is asked, and if not, why.
func (s *probeSettings) asksKubelet() (bool, string) {
	switch {
	case s.KubeletURL == none:
		return false, "kubelet-url is none"
	case s.KubeletURL != "" || exists(ownToken):
		return true, ""
	}
	return false, "no kubelet-url, and not in a pod of a cluster"
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

// comms returns the process names, sorted and without duplicates.
func (s *probeSettings) comms() []string {
	return slices.Compact(slices.Sorted(slices.Values(s.Process)))
}
