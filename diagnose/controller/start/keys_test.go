package start

import (
	"crypto/x509"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"k8s.io/client-go/kubernetes/fake"

	"github.com/kernosis/kernosis/vmtest/testenv"
)

// serial returns the serial number of the server's certificate.
func (s *stand) serial() int64 {
	s.t.Helper()
	c := s.known()
	defer c.CloseIdleConnections()
	r, err := c.Get(s.url(PathReady))
	if err != nil {
		s.t.Fatal(err)
	}
	defer r.Body.Close()
	return r.TLS.PeerCertificates[0].SerialNumber.Int64()
}

func TestCertificatesAreReadAgain(t *testing.T) {
	s := newStand(t, nil)
	path := func(name string) string { return filepath.Join(s.dir, name) }
	if n := s.serial(); n != 2 {
		t.Fatal(n)
	}
	cert, key := s.ca.issue("kernosis-alerts", 3, x509.ExtKeyUsageServerAuth)
	// A certificate without its key can't be used, and the old pair stays.
	write(t, path("tls.crt"), cert)
	testenv.Until(t, "the change is seen", deadline, func() bool { s.serial(); return s.metric("kernosis_alert_certificate_failed_reloads_total") > 0 })
	if n := s.serial(); n != 2 {
		t.Error(n)
	}
	write(t, path("tls.key"), key)
	testenv.Until(t, "the new one is shown", deadline, func() bool { return s.serial() == 3 })
	// The CAs of senders are reloaded too.
	others := newAuthority(t, "others")
	former := s.clients.client("alertmanager")
	write(t, path("ca.crt"), others.PEM)
	testenv.Until(t, "the former authority does not count", deadline, func() bool {
		_, err := s.send(s.client(former), PathV2, strings.NewReader("[]"))
		return err != nil
	})
	if r := s.post(s.client(others.client("alertmanager")), PathV2, "[]"); r.code != 200 {
		t.Errorf("%+v", r)
	}
	if err := os.Remove(path("ca.crt")); err != nil {
		t.Fatal(err)
	}
	failed := s.metric("kernosis_alert_certificate_failed_reloads_total")
	probe := s.client(others.client("alertmanager"))
	testenv.Until(t, "the loss is seen", deadline, func() bool {
		probe.CloseIdleConnections()
		s.post(probe, PathV2, "[]") // still works
		return s.metric("kernosis_alert_certificate_failed_reloads_total") > failed
	})
	if ends := s.metric("kernosis_alert_certificate_expiry_timestamp_seconds"); ends < float64(time.Now().Unix()) {
		t.Error(ends)
	}
}

func TestSettings(t *testing.T) {
	ok := AlertsConfig{Listen: ":20260", CertFile: "c", KeyFile: "k"}
	for name, c := range map[string]struct {
		change  func(*AlertsConfig)
		mistake string
	}{
		"good":             {func(*AlertsConfig) {}, ""},
		"plain":            {func(c *AlertsConfig) { *c = AlertsConfig{Listen: "127.0.0.1:1", Plain: true} }, ""},
		"plain IPv6":       {func(c *AlertsConfig) { *c = AlertsConfig{Listen: "[::1]:1", Plain: true} }, ""},
		"plain everywhere": {func(c *AlertsConfig) { *c = AlertsConfig{Listen: ":1", Plain: true} }, "alerts-plain-http: alerts-listen :1: want a loopback address"},
		"plain elsewhere":  {func(c *AlertsConfig) { *c = AlertsConfig{Listen: "10.0.0.1:1", Plain: true} }, "want a loopback address"},
		"plain and TLS":    {func(c *AlertsConfig) { c.Plain, c.Listen = true, "127.0.0.1:1" }, "can't be combined with alerts-cert-file"},
		"no certificate":   {func(c *AlertsConfig) { c.CertFile, c.KeyFile = "", "" }, "requires alerts-cert-file and alerts-key-file"},
		"no key":           {func(c *AlertsConfig) { c.KeyFile = "" }, "set both alerts-cert-file and alerts-key-file, or neither"},
		"no port":          {func(c *AlertsConfig) { c.Listen = "127.0.0.1" }, "alerts-listen: "},
		"no names":         {func(c *AlertsConfig) { c.ClientCAFile = "ca" }, "set both alerts-client-ca-file and alerts-client-names, or neither"},
		"no authority":     {func(c *AlertsConfig) { c.ClientNames = []string{"a"} }, "or neither"},
		"empty name":       {func(c *AlertsConfig) { c.ClientCAFile, c.ClientNames = "ca", []string{"a", " "} }, "alerts-client-names: a name is empty"},
	} {
		cfg := ok
		c.change(&cfg)
		if err := cfg.Check(keyed); (err == nil) != (c.mistake == "") || err != nil && !strings.Contains(err.Error(), c.mistake) {
			t.Errorf("%s: %v, want %q", name, err, c.mistake)
		}
	}
	cfg := ok
	cfg.CertFile, cfg.KeyFile = filepath.Join(t.TempDir(), "none"), "none"
	if _, err := newServer(cfg, &fakeTaker{}, fake.NewClientset(), nil); err == nil || !strings.Contains(err.Error(), "open ") {
		t.Error(err)
	}
}
