package remote

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/kernosis/kernosis/diagnose/operation"
	"github.com/kernosis/kernosis/vmtest/testserver"
)

// tlsServer starts a server with a certificate signed by a. Clients need a certificate signed by
// clients.
func tlsServer(t *testing.T, a *testserver.Authority, template *x509.Certificate, clients *testserver.Authority) *httpServer {
	t.Helper()
	cert, key := a.Sign(t, "server", template)
	pair, err := tls.X509KeyPair(cert, key)
	if err != nil {
		t.Fatal(err)
	}
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		who := ""
		if len(r.TLS.PeerCertificates) > 0 {
			who = r.TLS.PeerCertificates[0].Subject.CommonName
		}
		fmt.Fprintf(w, `{"who":%q}`, who)
	}))
	s.Config.ErrorLog = log.New(io.Discard, "", 0)
	s.TLS = &tls.Config{Certificates: []tls.Certificate{pair}}
	if clients != nil {
		s.TLS.ClientAuth, s.TLS.ClientCAs = tls.RequireAndVerifyClientCert, x509.NewCertPool()
		s.TLS.ClientCAs.AddCert(clients.Cert)
	}
	s.StartTLS()
	t.Cleanup(s.Close)
	h := serverOf(t, s.Listener.Addr().String())
	h.Scheme = "https"
	return h
}

func TestTLS(t *testing.T) {
	ours, theirs := testserver.NewAuthority(t, "ours"), testserver.NewAuthority(t, "theirs")
	loopback := func() *x509.Certificate {
		return &x509.Certificate{IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}}
	}
	named := loopback()
	named.IPAddresses, named.DNSNames = nil, []string{"processor.example"}
	expired := loopback()
	expired.NotBefore, expired.NotAfter = time.Now().Add(-2*time.Hour), time.Now().Add(-time.Hour)
	client := func(a *testserver.Authority) (cert, key []byte) {
		return a.Sign(t, "agent", &x509.Certificate{ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}})
	}
	cert, key := client(ours)
	otherCert, otherKey := client(theirs)
	for _, tt := range []struct {
		name     string
		template *x509.Certificate
		clients  *testserver.Authority
		tls      TLS
		want     string // of the error, or of the client's name
	}{
		{"own authority", loopback(), nil, TLS{CA: ours.PEM}, ""},
		{"system's authorities", loopback(), nil, TLS{}, "certificate signed by unknown authority"},
		{"other authority", loopback(), nil, TLS{CA: theirs.PEM}, "certificate signed by unknown authority"},
		{"other name", named, nil, TLS{CA: ours.PEM}, "doesn't contain any IP SANs"},
		{"server name", named, nil, TLS{CA: ours.PEM, ServerName: "processor.example"}, ""},
		{"wrong server name", named, nil, TLS{CA: ours.PEM, ServerName: "other.example"}, "certificate is valid for processor.example, not other.example"},
		{"expired", expired, nil, TLS{CA: ours.PEM}, "certificate has expired"},
		{"client certificate", loopback(), ours, TLS{CA: ours.PEM, Cert: cert, Key: key}, "who=agent"},
		{"no client certificate", loopback(), ours, TLS{CA: ours.PEM}, "certificate required"},
		{"other client certificate", loopback(), ours, TLS{CA: ours.PEM, Cert: otherCert, Key: otherKey}, "remote error: tls"},
		{"key alone", loopback(), ours, TLS{CA: ours.PEM, Key: key}, "want both certificate and key"},
		{"key of another", loopback(), ours, TLS{CA: ours.PEM, Cert: cert, Key: otherKey}, "private key does not match public key"},
		{"no certificates", loopback(), nil, TLS{CA: []byte("no certificate")}, "want PEM certificates"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			h := tlsServer(t, ours, tt.template, tt.clients)
			h.TLS = tt.tls
			out, err := h.Run(t.Context(), &operation.Call{})
			who, works := strings.CutPrefix(tt.want, "who=")
			if works = works || tt.want == ""; works {
				if err != nil || out.Results["who"] != who {
					t.Errorf("%+v, %v", out, err)
				}
			} else if err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("%v, want %s", err, tt.want)
			}
		})
	}
	t.Run("no TLS", func(t *testing.T) {
		h := serve(t, func(http.ResponseWriter, *http.Request) {})
		h.Scheme = "https"
		if _, err := h.Run(t.Context(), &operation.Call{}); err == nil || !strings.Contains(err.Error(), "server gave HTTP response to HTTPS client") {
			t.Error(err)
		}
	})
}
