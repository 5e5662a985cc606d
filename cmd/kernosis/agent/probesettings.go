package agent

import (
	"errors"
	"net/netip"
	"os"
	"path/filepath"
	"slices"

	"github.com/spf13/pflag"

	"github.com/kernosis/kernosis/cmd/kernosis/config"
	"github.com/kernosis/kernosis/collector/probe/podsource"
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
	fs.String("probes", ProbesObserve, "what to do with kubelet's probes, a `mode`: observe reports why they fail, where the node's pods are known; off")
	fs.String("pods-from", PodsFromAPI, "`source` of the node's pods: api is the API server, or kubelet where there is none; kubelet is kubelet alone")
	fs.String("pods-file", "", "`file` with the node's pods, where neither the API server nor kubelet is asked; read again when it changes")
	fs.Bool("kubelet-events", true, "read kubelet's Events on pods whose probes fail, where there is an API server: status, TLS, output of a program")
	fs.String("kubelet-url", "", "`address` of kubelet, https://host:port; empty: in a pod of the cluster port 10250 of $NODE_IP, or "+kubeletHere+"; none: it is not asked")
	fs.String("kubelet-ca", "", "`file` of certificates that sign kubelet's")
	fs.String("kubelet-cert", "", "`file` with kubelet's own certificate, where it signs itself")
	fs.Bool("kubelet-insecure", false, "skip verification of kubelet's certificate")
	fs.String("kubelet-token-file", "", "`file` of the token for kubelet; empty: in a pod its own")
	// A thread's name has 15 bytes.
	fs.StringSlice("prober-process", []string{"kubelet", "k3s-server", "k3s-agent", "k3s", "kubelite"}, "`names` that kubelet's process may have")
}

func (s *probeSettings) check(from config.Origins) error {
	var errs []error
	if s.Mode != ProbesOff && s.Mode != ProbesObserve {
		errs = append(errs, from.Errorf("probes", "%q is neither %s nor %s", s.Mode, ProbesObserve, ProbesOff))
	}
	switch {
	case s.PodsFrom != PodsFromAPI && s.PodsFrom != PodsFromKubelet:
		errs = append(errs, from.Errorf("pods-from", "%q is neither %s nor %s", s.PodsFrom, PodsFromAPI, PodsFromKubelet))
	case s.PodsFrom == PodsFromKubelet && s.PodsFile != "":
		errs = append(errs, from.Errorf("pods-from", "%s and pods-file exclude each other", PodsFromKubelet))
	case s.PodsFrom == PodsFromKubelet && s.KubeletURL == none:
		errs = append(errs, from.Errorf("pods-from", "%s, and kubelet-url is %s", PodsFromKubelet, none))
	}
	if n := len(s.Process); s.Mode == ProbesObserve && (n == 0 || n > 8) {
		errs = append(errs, from.Errorf("prober-process", "%d names, want 1 to 8", n))
	}
	for _, name := range s.Process {
		if name == "" || len(name) > 15 {
			errs = append(errs, from.Errorf("prober-process", "%q: names of processes have 1 to 15 bytes", name))
		}
	}
	if s.KubeletURL != "" && s.KubeletURL != none {
		if _, err := podsource.NewAsker(s.source("/")); err != nil {
			errs = append(errs, from.Errorf("kubelet-url", "%w", err))
		}
	}
	return errors.Join(errs...)
}

// source returns how to reach kubelet; root is the root folder of the host.
func (s *probeSettings) source(root string) podsource.KubeletConfig {
	c := podsource.KubeletConfig{
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
		switch cert := filepath.Join(root, kubeletCert); {
		case exists(cert):
			c.CertFile = cert
		case exists(ownCA):
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
	case s.KubeletURL != "":
		return true, ""
	case exists(ownToken):
		return true, ""
	}
	return false, "no kubelet-url, and not a pod of the cluster"
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

// comms returns the process names, sorted and without duplicates.
func (s *probeSettings) comms() []string {
	out := slices.Clone(s.Process)
	slices.Sort(out)
	return slices.Compact(out)
}
