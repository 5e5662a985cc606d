package start

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"math/big"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/kernosis/kernosis/diagnose/trigger"
	"github.com/kernosis/kernosis/vmtest/kubetest"
	"github.com/kernosis/kernosis/vmtest/testenv"
	"github.com/kernosis/kernosis/vmtest/testserver"
)

// fakeTaker records the alerts that it receives.
type fakeTaker struct {
	mu     sync.Mutex
	got    []*trigger.Alert
	ready  error
	err    error
	hold   chan struct{} // if not nil, Take waits for it
	inside atomic.Int32
}

func (t *fakeTaker) Take(ctx context.Context, list []*trigger.Alert) error {
	t.inside.Add(1)
	defer t.inside.Add(-1)
	if t.hold != nil {
		select {
		case <-t.hold:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.err == nil {
		t.got = append(t.got, list...)
	}
	return t.err
}

func (t *fakeTaker) Ready() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.ready
}

func (t *fakeTaker) count() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return len(t.got)
}

// authority issues certificates to servers and senders.
type authority struct {
	*testserver.Authority
	t testing.TB
}

func newAuthority(t testing.TB, name string) *authority {
	t.Helper()
	return &authority{Authority: testserver.NewAuthority(t, name), t: t}
}

// issue returns a certificate and its key, in PEM.
func (a *authority) issue(name string, serial int64, use x509.ExtKeyUsage) (cert, key []byte) {
	a.t.Helper()
	return a.Sign(a.t, name, &x509.Certificate{
		SerialNumber: big.NewInt(serial), KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{use},
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
	})
}

// client returns a sender's certificate.
func (a *authority) client(name string) *tls.Certificate {
	a.t.Helper()
	pair, err := tls.X509KeyPair(a.issue(name, 7, x509.ExtKeyUsageClientAuth))
	if err != nil {
		a.t.Fatal(err)
	}
	return &pair
}

func write(t testing.TB, path string, text []byte) string {
	t.Helper()
	// As in a pod's volume: a file is replaced atomically.
	if err := os.WriteFile(path+".new", text, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(path+".new", path); err != nil {
		t.Fatal(err)
	}
	return path
}

// stand is a listening server with senders.
type stand struct {
	*server
	t        testing.TB
	taker    *fakeTaker
	ca       *authority
	clients  *authority
	dir      string
	registry *prometheus.Registry
	asked    *asked
	log      *testenv.LogBuffer
}

// asked counts requests to the API server.
type asked struct {
	tokens, access atomic.Int32
	fail           atomic.Bool
}

func newStand(t testing.TB, change func(*server)) *stand {
	t.Helper()
	s := &stand{
		t: t, taker: &fakeTaker{}, ca: newAuthority(t, "servers"), clients: newAuthority(t, "clients"), dir: t.TempDir(),
		registry: prometheus.NewPedanticRegistry(), asked: &asked{}, log: &testenv.LogBuffer{},
	}
	to := cluster.Server(t).Admin()
	to.Wrap(func(next http.RoundTripper) http.RoundTripper {
		return roundTripper(func(r *http.Request) (*http.Response, error) {
			if s.asked.fail.Load() {
				return nil, fmt.Errorf("the network is cut")
			}
			switch {
			case strings.HasSuffix(r.URL.Path, "/tokenreviews"):
				s.asked.tokens.Add(1)
			case strings.HasSuffix(r.URL.Path, "/subjectaccessreviews"):
				s.asked.access.Add(1)
			}
			return next.RoundTrip(r)
		})
	})
	api, err := kubernetes.NewForConfig(to)
	if err != nil {
		t.Fatal(err)
	}
	cert, key := s.ca.issue("kernosis-alerts", 2, x509.ExtKeyUsageServerAuth)
	s.server, err = newServer(AlertsConfig{
		Listen:   "127.0.0.1:0",
		CertFile: write(t, filepath.Join(s.dir, "tls.crt"), cert), KeyFile: write(t, filepath.Join(s.dir, "tls.key"), key),
		ClientCAFile: write(t, filepath.Join(s.dir, "ca.crt"), s.clients.PEM), ClientNames: []string{"alertmanager"},
	}, s.taker, api, slog.New(slog.NewTextHandler(s.log, nil)))
	if err != nil {
		t.Fatal(err)
	}
	s.registry.MustRegister(s.counts)
	if change != nil {
		change(s.server)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- s.Start(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	testenv.Until(t, "it listens", deadline, func() bool { return s.Address() != "" })
	return s
}

// client returns a client with a certificate, or without one if cert is nil.
func (s *stand) client(cert *tls.Certificate) *http.Client {
	pool := x509.NewCertPool()
	pool.AddCert(s.ca.Cert)
	config := &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS10} //nolint:gosec // the server must reject it
	if cert != nil {
		config.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return cert, nil }
	}
	transport := &http.Transport{TLSClientConfig: config, DisableCompression: true}
	s.t.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Transport: transport, Timeout: testenv.Within(30 * time.Second)}
}

func (s *stand) url(path string) string { return "https://" + s.Address() + path }

// reply is a response that was read.
type reply struct {
	code   int
	header http.Header
	close  bool
	body
}

// post sends a body. headers are names and values.
func (s *stand) post(c *http.Client, path, text string, headers ...string) reply {
	s.t.Helper()
	r, err := s.send(c, path, strings.NewReader(text), headers...)
	if err != nil {
		s.t.Fatal(err)
	}
	return r
}

func (s *stand) send(c *http.Client, path string, text io.Reader, headers ...string) (reply, error) {
	s.t.Helper()
	req, err := http.NewRequestWithContext(s.t.Context(), http.MethodPost, s.url(path), text)
	if err != nil {
		s.t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	for i := 0; i < len(headers); i += 2 {
		req.Header.Set(headers[i], headers[i+1])
	}
	resp, err := c.Do(req)
	if err != nil {
		return reply{}, err
	}
	defer resp.Body.Close()
	out := reply{code: resp.StatusCode, header: resp.Header, close: resp.Close}
	if err := json.NewDecoder(resp.Body).Decode(&out.body); err != nil {
		return out, fmt.Errorf("%s: %w", resp.Status, err)
	}
	return out, nil
}

// known returns a client that is authorized to send.
func (s *stand) known() *http.Client { return s.client(s.clients.client("alertmanager")) }

// metric returns the sum of a family over the given labels.
func (s *stand) metric(name string, labels ...string) float64 {
	s.t.Helper()
	return kubetest.Sum(s.t, s.registry, name, labels...)
}

// sender creates a service account, with or without the documented role.
func sender(t testing.TB, role bool) kubetest.TokenFor {
	t.Helper()
	server := cluster.Server(t)
	ns := server.Namespace(t)
	var roles []rbacv1.ClusterRole
	if role {
		roles = kubetest.Roles(t, "../../../docs/triggers.md")
	}
	server.ServiceAccount(t, ns, "sender", roles...)
	return kubetest.TokenFor{Namespace: ns, ServiceAccount: "sender"}
}

func token(t testing.TB, of kubetest.TokenFor, audience string) string {
	t.Helper()
	of.Audience = audience
	return cluster.Server(t).Token(t, of)
}

// alertsJSON returns a list of n alerts, as Prometheus posts it.
func alertsJSON(n int) string {
	var b strings.Builder
	for i := range n {
		if i > 0 {
			b.WriteByte(',')
		}
		fmt.Fprintf(&b, `{"labels":{"alertname":"A","i":"%d"},"startsAt":"2026-03-01T12:00:00Z"}`, i)
	}
	return "[" + b.String() + "]"
}

func webhookJSON(n int) string {
	return `{"version":"4","alerts":` + strings.ReplaceAll(alertsJSON(n), `{"labels"`, `{"status":"firing","labels"`) + `}`
}
