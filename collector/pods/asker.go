package pods

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"sync"
	"time"

	"github.com/kernosis/kernosis/collector/display"
	"github.com/kernosis/kernosis/collector/document"
)

// Bounds of the files with token and certificates.
const (
	maxToken = 64 << 10
	maxCerts = 1 << 20
)

// Asker requests pods and other pages from kubelet, over one connection. It is safe for concurrent use.
type Asker struct {
	cfg  KubeletConfig
	base *url.URL

	mu    sync.Mutex
	certs []byte // trusted by http
	http  *http.Client
}

// NewAsker checks the configuration and returns an Asker.
func NewAsker(cfg KubeletConfig) (*Asker, error) {
	u, err := cfg.check()
	if err != nil {
		return nil, err
	}
	return &Asker{cfg: cfg, base: u}, nil
}

// check refuses an address that can't be used as intended.
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

// Get requests a page such as "pods". The caller must close the body. A status other than 200 is
// an error with kubelet's message, and [fs.ErrPermission] if the token has no permission.
func (a *Asker) Get(ctx context.Context, page string) (*http.Response, error) {
	client, err := a.client()
	if err != nil {
		return nil, fmt.Errorf("kubelet: %w", err)
	}
	token, err := a.token()
	if err != nil {
		return nil, fmt.Errorf("kubelet: token: %w", err)
	}
	at := a.base.JoinPath(page).String()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, at, http.NoBody)
	if err != nil {
		return nil, fmt.Errorf("kubelet: %w", err)
	}
	if token != "" {
		req.Header.Set("Authorization", "Bearer "+token)
	}
	resp, err := client.Do(req)
	if err != nil {
		if ue := (*url.Error)(nil); errors.As(err, &ue) {
			err = ue.Err // without the address, which is in the error already
		}
		return nil, fmt.Errorf("ask kubelet %s: %w", at, err)
	}
	if resp.StatusCode != http.StatusOK {
		said, _ := io.ReadAll(io.LimitReader(resp.Body, maxSaid)) //nolint:errcheck // of what there is
		_ = resp.Body.Close()
		err := fmt.Errorf("ask kubelet %s: %s: %s", at, display.Safe(resp.Status, 100), display.Safe(string(said), maxSaid))
		if resp.StatusCode == http.StatusUnauthorized || resp.StatusCode == http.StatusForbidden {
			return nil, &refusal{err}
		}
		return nil, err
	}
	return resp, nil
}

// refusal is an error for missing permission: it is [fs.ErrPermission].
type refusal struct{ error }

func (*refusal) Is(target error) bool { return target == fs.ErrPermission }

// Close closes idle connections.
func (a *Asker) Close() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.closeIdle()
}

// closeIdle closes idle connections; mu is held.
func (a *Asker) closeIdle() {
	if a.http != nil {
		a.http.CloseIdleConnections()
	}
}

// client returns the client that keeps the connection to kubelet. It is renewed when the file of
// certificates changes, because kubelet renews its certificate.
func (a *Asker) client() (*http.Client, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	path := a.cfg.CAFile + a.cfg.CertFile // one of them
	var certs []byte
	if path != "" {
		var err error
		if certs, err = document.ReadFile(path, maxCerts); err != nil {
			return nil, err
		}
	}
	if a.http != nil && bytes.Equal(certs, a.certs) {
		return a.http, nil
	}
	conf := &tls.Config{MinVersion: tls.VersionTLS12}
	switch {
	case a.cfg.CAFile != "":
		conf.RootCAs = x509.NewCertPool()
		if !conf.RootCAs.AppendCertsFromPEM(certs) {
			return nil, fmt.Errorf("%s has no certificate", path)
		}
	case a.cfg.CertFile != "":
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
	case a.cfg.Insecure:
		conf.InsecureSkipVerify = true
	}
	dial := (&net.Dialer{}).DialContext
	if a.cfg.Insecure && a.cfg.TokenFile != "" {
		dial = dialThisMachine
	}
	a.closeIdle()
	a.certs = certs
	a.http = &http.Client{
		Timeout: askTimeout,
		Transport: &http.Transport{
			DialContext:     dial,
			TLSClientConfig: conf, ForceAttemptHTTP2: true,
			MaxIdleConns: 1, MaxConnsPerHost: 1, IdleConnTimeout: 2 * time.Minute, MaxResponseHeaderBytes: 64 << 10,
		},
		// The token must only be sent to kubelet.
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	return a.http, nil
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

// token reads the token from its file, which is renewed in place.
func (a *Asker) token() (string, error) {
	if a.cfg.TokenFile == "" {
		return "", nil
	}
	data, err := document.ReadFile(a.cfg.TokenFile, maxToken)
	if err != nil {
		return "", err
	}
	token := string(bytes.TrimSpace(data))
	if token == "" {
		return "", fmt.Errorf("%s is empty", a.cfg.TokenFile)
	}
	for i := range len(token) {
		if token[i] <= ' ' || token[i] > '~' {
			return "", fmt.Errorf("%s holds no token", a.cfg.TokenFile)
		}
	}
	return token, nil
}
