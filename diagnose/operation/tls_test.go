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
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// authority signs certificates for a test.
type authority struct {
	dir  string
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
	file string
}

func newAuthority(t *testing.T, name string) *authority {
	t.Helper()
	a := &authority{dir: t.TempDir()}
	a.file, _ = a.sign(t, name, &x509.Certificate{IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign})
	return a
}

// sign makes a certificate and its key, as files.
func (a *authority) sign(t *testing.T, name string, template *x509.Certificate) (certFile, keyFile string) {
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
	certFile, keyFile = filepath.Join(a.dir, name+".crt"), filepath.Join(a.dir, name+".key")
	for path, block := range map[string]*pem.Block{certFile: {Type: "CERTIFICATE", Bytes: der}, keyFile: {Type: "EC PRIVATE KEY", Bytes: secret}} {
		if err := os.WriteFile(path, pem.EncodeToMemory(block), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return certFile, keyFile
}

// server starts a server with this certificate; who asks it needs one of clients.
func (a *authority) server(t *testing.T, template *x509.Certificate, clients *authority) *HTTPServer {
	t.Helper()
	cert, key := a.sign(t, "server", template)
	pair, err := tls.LoadX509KeyPair(cert, key)
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
	client := func(a *authority) (string, string) {
		return a.sign(t, "agent", &x509.Certificate{ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}})
	}
	cert, key := client(ours)
	otherCert, otherKey := client(theirs)
	bytesOf := func(file string) PEM {
		b, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		return PEM{Data: b}
	}
	empty := filepath.Join(t.TempDir(), "empty")
	if err := os.WriteFile(empty, []byte("no certificate"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		name     string
		template *x509.Certificate
		clients  *authority
		tls      TLS
		want     string // of the error, or of who asks
	}{
		{"own authority", loopback(), nil, TLS{CA: PEM{File: ours.file}}, ""},
		{"system's authorities", loopback(), nil, TLS{}, "certificate signed by unknown authority"},
		{"other authority", loopback(), nil, TLS{CA: PEM{File: theirs.file}}, "certificate signed by unknown authority"},
		{"other name", named, nil, TLS{CA: PEM{File: ours.file}}, "doesn't contain any IP SANs"},
		{"server name", named, nil, TLS{CA: PEM{File: ours.file}, ServerName: "processor.example"}, ""},
		{"wrong server name", named, nil, TLS{CA: PEM{File: ours.file}, ServerName: "other.example"}, "certificate is valid for processor.example, not other.example"},
		{"expired", expired, nil, TLS{CA: PEM{File: ours.file}}, "certificate has expired"},
		{"client certificate", loopback(), ours, TLS{CA: PEM{File: ours.file}, Cert: PEM{File: cert}, Key: PEM{File: key}}, "who=agent"},
		{"no client certificate", loopback(), ours, TLS{CA: PEM{File: ours.file}}, "certificate required"},
		{"other client certificate", loopback(), ours, TLS{CA: PEM{File: ours.file}, Cert: PEM{File: otherCert}, Key: PEM{File: otherKey}}, "remote error: tls"},
		{"key alone", loopback(), ours, TLS{CA: PEM{File: ours.file}, Key: PEM{File: key}}, "certificate and key go together"},
		{"key of another", loopback(), ours, TLS{CA: PEM{File: ours.file}, Cert: PEM{File: cert}, Key: PEM{File: otherKey}}, "private key does not match public key"},
		{"no file", loopback(), nil, TLS{CA: PEM{File: "/no/such"}}, "certificate authorities: open /no/such: no such file"},
		{"all as bytes", loopback(), ours, TLS{CA: bytesOf(ours.file), Cert: bytesOf(cert), Key: bytesOf(key)}, "who=agent"},
		{"other authority as bytes", loopback(), nil, TLS{CA: bytesOf(theirs.file)}, "certificate signed by unknown authority"},
		{"key of another as bytes", loopback(), ours, TLS{CA: bytesOf(ours.file), Cert: bytesOf(cert), Key: bytesOf(otherKey)}, "client certificate what is given: tls: private key does not match"},
		{"file and bytes", loopback(), nil, TLS{CA: PEM{File: ours.file, Data: []byte("x")}}, "certificate authorities: file " + ours.file + " and its content are both given"},
		{"no certificates as bytes", loopback(), nil, TLS{CA: PEM{Data: []byte("x")}}, "what is given has no certificate"},
		{"no certificates", loopback(), nil, TLS{CA: PEM{File: empty}}, "has no certificate"},
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
