package podsource

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"sync"
	"time"

	"github.com/kernosis/kernosis/collector/document"
)

// Bounds of the files with token and certificates.
const (
	maxToken = 64 << 10
	maxCerts = 1 << 20
)

// check refuses an address that can't be used as it was meant.
func (c *KubeletConfig) check() (*url.URL, error) {
	u, err := url.Parse(c.URL)
	if err != nil {
		return nil, fmt.Errorf("kubelet's address: %w", err)
	}
	if u.Host == "" || u.User != nil || u.RawQuery != "" || u.Fragment != "" {
		return nil, fmt.Errorf("kubelet's address %q: want https://host:port", c.URL)
	}
	trust := 0
	for _, set := range []bool{c.CAFile != "", c.CertFile != "", c.Insecure} {
		if set {
			trust++
		}
	}
	if trust > 1 {
		return nil, errors.New("kubelet: want only one of a CA, kubelet's own certificate and no verification")
	}
	switch u.Scheme {
	case "https":
	case "http":
		if c.TokenFile != "" || trust > 0 {
			return nil, fmt.Errorf("kubelet's address %q: a token, a certificate or skipping its verification needs https", c.URL)
		}
		if host := u.Hostname(); host != "localhost" {
			if ip, err := netip.ParseAddr(host); err != nil || !ip.IsLoopback() {
				return nil, fmt.Errorf("kubelet's address %q: without TLS only a loopback address is allowed", c.URL)
			}
		}
	default:
		return nil, fmt.Errorf("kubelet's address %q: want https://host:port", c.URL)
	}
	return u, nil
}

// transport keeps the connection to kubelet. It renews it when the file of certificates changes,
// because kubelet renews its certificate. It is safe for concurrent use.
type transport struct {
	cfg *KubeletConfig

	mu    sync.Mutex
	certs []byte // trusted by http
	http  *http.Client
}

func (t *transport) client() (*http.Client, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	path := t.cfg.CAFile + t.cfg.CertFile // one of them
	var certs []byte
	if path != "" {
		var err error
		if certs, err = document.ReadFile(path, maxCerts); err != nil {
			return nil, err
		}
	}
	if t.http != nil && bytes.Equal(certs, t.certs) {
		return t.http, nil
	}
	conf := &tls.Config{MinVersion: tls.VersionTLS12}
	switch {
	case t.cfg.CAFile != "":
		conf.RootCAs = x509.NewCertPool()
		if !conf.RootCAs.AppendCertsFromPEM(certs) {
			return nil, fmt.Errorf("%s has no certificate", path)
		}
	case t.cfg.CertFile != "":
		block, _ := pem.Decode(certs)
		if block == nil || block.Type != "CERTIFICATE" {
			return nil, fmt.Errorf("%s does not begin with a certificate", path)
		}
		// Stricter than the usual check: it must be this very certificate.
		conf.InsecureSkipVerify = true
		conf.VerifyConnection = func(s tls.ConnectionState) error {
			if len(s.PeerCertificates) == 0 || !bytes.Equal(s.PeerCertificates[0].Raw, block.Bytes) {
				return fmt.Errorf("kubelet's certificate is not the one in %s", path)
			}
			return nil
		}
	case t.cfg.Insecure:
		conf.InsecureSkipVerify = true
	}
	dial := (&net.Dialer{}).DialContext
	if t.cfg.Insecure && t.cfg.TokenFile != "" {
		dial = dialThisMachine
	}
	t.giveBack()
	t.certs = certs
	t.http = &http.Client{
		Timeout: askTimeout,
		Transport: &http.Transport{
			DialContext:     dial,
			TLSClientConfig: conf, ForceAttemptHTTP2: true,
			MaxIdleConns: 1, MaxConnsPerHost: 1, IdleConnTimeout: 2 * time.Minute, MaxResponseHeaderBytes: 64 << 10,
		},
		// The token must only be sent to kubelet.
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	return t.http, nil
}

// dialThisMachine connects only to addresses of this machine. Without a verified certificate, any
// server elsewhere that answers would get the token. A connection to an address of this machine
// has that address at both ends.
func dialThisMachine(ctx context.Context, network, address string) (net.Conn, error) {
	c, err := (&net.Dialer{}).DialContext(ctx, network, address)
	if err != nil {
		return nil, err
	}
	to, ok := c.RemoteAddr().(*net.TCPAddr)
	from, also := c.LocalAddr().(*net.TCPAddr)
	if ok && also && (to.IP.IsLoopback() || to.IP.Equal(from.IP)) {
		return c, nil
	}
	_ = c.Close()
	return nil, fmt.Errorf("%s is not an address of this machine: the token is not sent there unless the certificate is verified", address)
}

func (t *transport) close() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.giveBack()
}

// giveBack closes idle connections; mu is held.
func (t *transport) giveBack() {
	if t.http != nil {
		t.http.CloseIdleConnections()
	}
}

// token reads the token from its file, which is renewed in place.
func (t *transport) token() (string, error) {
	if t.cfg.TokenFile == "" {
		return "", nil
	}
	data, err := document.ReadFile(t.cfg.TokenFile, maxToken)
	if err != nil {
		return "", err
	}
	token := string(bytes.TrimSpace(data))
	if token == "" {
		return "", fmt.Errorf("%s is empty", t.cfg.TokenFile)
	}
	for i := range len(token) {
		if token[i] <= ' ' || token[i] > '~' {
			return "", fmt.Errorf("%s holds no token", t.cfg.TokenFile)
		}
	}
	return token, nil
}
