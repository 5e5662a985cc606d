package operation

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"io"
	"log"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"
)

// authority signs certificates for a test.
type authority struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
	pem  []byte
}

func newAuthority(t *testing.T, name string) *authority {
	t.Helper()
	a := &authority{}
	a.pem, _ = a.sign(t, name, &x509.Certificate{IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign})
	return a
}

// sign makes a certificate and its key, as PEM.
func (a *authority) sign(t *testing.T, name string, template *x509.Certificate) (certPEM, keyPEM []byte) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template.SerialNumber = big.NewInt(time.Now().UnixNano())
	template.Subject = pkix.Name{CommonName: name}
	if template.NotAfter.IsZero() {
		template.NotBefore, template.NotAfter = time.Now().Add(-time.Hour), time.Now().Add(time.Hour)
	}
	parent, signer := a.cert, a.key
	if parent == nil {
		parent, signer = template, key
	}
	der, err := x509.CreateCertificate(rand.Reader, template, parent, &key.PublicKey, signer)
	if err != nil {
		t.Fatal(err)
	}
	if a.cert == nil {
		if a.cert, err = x509.ParseCertificate(der); err != nil {
			t.Fatal(err)
		}
		a.key = key
	}
	secret, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: secret})
}

// server starts a server with this certificate; who asks it needs one of clients.
func (a *authority) server(t *testing.T, template *x509.Certificate, clients *authority) *HTTPServer {
	t.Helper()
	cert, key := a.sign(t, "server", template)
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
		s.TLS.ClientCAs.AddCert(clients.cert)
	}
	s.StartTLS()
	t.Cleanup(s.Close)
	h := serverOf(t, s.Listener.Addr().String())
	h.Scheme = "https"
	return h
}

func TestTLS(t *testing.T) {
	ours, theirs := newAuthority(t, "ours"), newAuthority(t, "theirs")
	loopback := func() *x509.Certificate {
		return &x509.Certificate{IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}}
	}
	named := loopback()
	named.IPAddresses, named.DNSNames = nil, []string{"processor.example"}
	expired := loopback()
	expired.NotBefore, expired.NotAfter = time.Now().Add(-2*time.Hour), time.Now().Add(-time.Hour)
	client := func(a *authority) (cert, key []byte) {
		return a.sign(t, "agent", &x509.Certificate{ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}})
	}
	cert, key := client(ours)
	otherCert, otherKey := client(theirs)
	for _, tt := range []struct {
		name     string
		template *x509.Certificate
		clients  *authority
		tls      TLS
		want     string // of the error, or of who asks
	}{
		{"own authority", loopback(), nil, TLS{CA: ours.pem}, ""},
		{"system's authorities", loopback(), nil, TLS{}, "certificate signed by unknown authority"},
		{"other authority", loopback(), nil, TLS{CA: theirs.pem}, "certificate signed by unknown authority"},
		{"other name", named, nil, TLS{CA: ours.pem}, "doesn't contain any IP SANs"},
		{"server name", named, nil, TLS{CA: ours.pem, ServerName: "processor.example"}, ""},
		{"wrong server name", named, nil, TLS{CA: ours.pem, ServerName: "other.example"}, "certificate is valid for processor.example, not other.example"},
		{"expired", expired, nil, TLS{CA: ours.pem}, "certificate has expired"},
		{"client certificate", loopback(), ours, TLS{CA: ours.pem, Cert: cert, Key: key}, "who=agent"},
		{"no client certificate", loopback(), ours, TLS{CA: ours.pem}, "certificate required"},
		{"other client certificate", loopback(), ours, TLS{CA: ours.pem, Cert: otherCert, Key: otherKey}, "remote error: tls"},
		{"key alone", loopback(), ours, TLS{CA: ours.pem, Key: key}, "certificate and key go together"},
		{"key of another", loopback(), ours, TLS{CA: ours.pem, Cert: cert, Key: otherKey}, "private key does not match public key"},
		{"no certificates", loopback(), nil, TLS{CA: []byte("no certificate")}, "no certificate in PEM"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			h := ours.server(t, tt.template, tt.clients)
			h.TLS = tt.tls
			out, err := h.Run(t.Context(), &Call{})
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
		if _, err := h.Run(t.Context(), &Call{}); err == nil || !strings.Contains(err.Error(), "server gave HTTP response to HTTPS client") {
			t.Error(err)
		}
	})
}
