package web

import (
	"cmp"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"fmt"
	"log/slog"
	"math/big"
	"net"
	"net/http"
	"net/netip"
	"strconv"
	"strings"
	"time"

	"golang.org/x/time/rate"
	"k8s.io/client-go/kubernetes"

	"github.com/kernosis/kernosis/collector/display"
)

const (
	// tokenAllowed is how long a reader's right is cached: each agent asks once per period and reader.
	tokenAllowed = 5 * time.Minute
	// tokenKept is how long it is used while the API server is down: metrics are needed just then.
	tokenKept = 24 * time.Hour
	// tokenRate is how many unknown tokens per second an agent asks about.
	tokenRate = 10
)

// AccessConfig configures access from other machines.
type AccessConfig struct {
	// CertFile and KeyFile are PEM. If they are empty, a self-signed certificate is created at
	// the start.
	CertFile, KeyFile string
	// Plain serves all clients without TLS or tokens.
	Plain bool
	// API reviews tokens. It is nil without an API server.
	API    kubernetes.Interface
	Counts *Counts
	Log    *slog.Logger
}

// Access controls who may read pages and metrics at addresses that other machines can reach. It is nil
// for an address that only this machine can reach.
type Access struct {
	tls               *tls.Config // nil for plain HTTP
	tokens            *Tokens     // nil if all clients are allowed
	counts            *Counts
	log               *slog.Logger
	report, unhealthy rate.Sometimes
}

// For returns the access control of an address, host:port. It is nil for a loopback address,
// which only processes on this machine can reach.
func (c *AccessConfig) For(address string) (*Access, error) {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return nil, fmt.Errorf("listen: %w", err)
	}
	if Loopback(host) {
		return nil, nil
	}
	a := &Access{counts: c.Counts, log: c.Log, report: rate.Sometimes{First: 1, Interval: time.Minute}, unhealthy: rate.Sometimes{First: 1, Interval: time.Minute}}
	if c.Plain {
		c.Log.Warn("metrics-plain-http is set: all clients that can reach the address may read", "address", address)
		return a, nil
	}
	if c.API == nil {
		return nil, fmt.Errorf("listen: other machines can reach %s, but tokens can't be checked without an API server: use a loopback address such as 127.0.0.1, or set metrics-plain-http to allow all clients to read", address)
	}
	a.tokens = NewTokens(TokensConfig{API: c.API, Verb: "get", Allowed: tokenAllowed, Kept: tokenKept, Rate: tokenRate, Log: c.Log})
	if c.CertFile != "" {
		keys, err := NewKeys(c.CertFile, c.KeyFile, "", c.Log)
		if err != nil {
			return nil, err
		}
		a.tls = keys.Server()
		return a, nil
	}
	if a.tls, err = selfSigned(); err != nil {
		return nil, fmt.Errorf("certificate: %w", err)
	}
	return a, nil
}

// selfSigned returns a certificate that no client trusts: it prevents eavesdropping but does not
// authenticate the server.
func selfSigned() (*tls.Config, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	now := time.Now()
	template := &x509.Certificate{
		SerialNumber: big.NewInt(now.UnixNano()), Subject: pkix.Name{CommonName: "kernosis"}, DNSNames: []string{"kernosis"},
		NotBefore: now.AddDate(-1, 0, 0), NotAfter: now.AddDate(10, 0, 0), // allows for clock differences
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}, BasicConstraintsValid: true,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return nil, err
	}
	pair := tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}
	return &tls.Config{MinVersion: tls.VersionTLS12, Certificates: []tls.Certificate{pair}, NextProtos: []string{"http/1.1"}}, nil
}

// Loopback reports whether a host is reachable from this machine only.
func Loopback(host string) bool {
	if host == "localhost" {
		return true
	}
	a, err := netip.ParseAddr(host)
	return err == nil && a.Unmap().IsLoopback()
}

// Scheme returns the scheme of URLs.
func (a *Access) Scheme() string {
	if a == nil || a.tls == nil {
		return "http"
	}
	return "https"
}

// Challenges to a request without a token. A browser asks its user for a password.
const (
	bearerChallenge = `Bearer realm="kernosis"`
	basicChallenge  = `Basic realm="kernosis: any user, a token as password", charset="UTF-8"`
)

// tokenSource returns the token of a request.
type tokenSource func(*http.Request) (token string, given bool)

// guard lets requests through if their token may get the requested path.
func (a *Access) guard(h http.Handler) http.Handler {
	return a.guardBy(h, "", Bearer, bearerChallenge)
}

// guardPage lets requests through if their token may get /metrics.
func (a *Access) guardPage(h http.Handler) http.Handler {
	return a.guardBy(h, "/metrics", bearerOrPassword, bearerChallenge, basicChallenge)
}

// bearerOrPassword returns the token of a request that may come from a browser, which can't send
// bearer tokens: the token may also be the password of basic authentication.
func bearerOrPassword(r *http.Request) (token string, given bool) {
	if _, password, basic := r.BasicAuth(); basic {
		return password, password != "" && len(password) <= MaxToken
	}
	return Bearer(r)
}

// localNames rejects requests to names other than this machine's own. It prevents DNS rebinding:
// a site that resolves its name to a loopback address could otherwise read what is served there through
// a browser on this machine.
func localNames(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		host := r.Host
		if name, _, err := net.SplitHostPort(host); err == nil {
			host = name
		}
		if !Loopback(strings.Trim(host, "[]")) {
			http.Error(w, "only served as localhost or 127.0.0.1", http.StatusMisdirectedRequest)
			return
		}
		h.ServeHTTP(w, r)
	})
}

// guardBy lets requests through if their token may get path; an empty path means the request's own.
func (a *Access) guardBy(h http.Handler, path string, of tokenSource, challenges ...string) http.Handler {
	if a == nil || a.tokens == nil {
		return h
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		code, why := a.check(r, cmp.Or(path, r.URL.Path), of)
		if code == http.StatusOK {
			KeepConn(r.Context())
			h.ServeHTTP(w, r)
			return
		}
		a.counts.requests.WithLabelValues(strconv.Itoa(code)).Inc()
		a.report.Do(func() {
			a.log.Warn("request rejected", "address", Address(r), "path", display.Safe(r.URL.Path, 128), "code", code, "reason", why)
		})
		switch code {
		case http.StatusUnauthorized:
			w.Header()["Www-Authenticate"] = challenges
		case http.StatusTooManyRequests, http.StatusServiceUnavailable:
			w.Header().Set("Retry-After", strconv.Itoa(int(RetrySoon/time.Second)))
		}
		w.Header().Set("Connection", "close") // a rejected client must not hold a connection
		http.Error(w, why, code)
	})
}

func (a *Access) check(r *http.Request, path string, of tokenSource) (code int, why string) {
	token, given := of(r)
	if !given {
		return http.StatusUnauthorized, "no bearer token"
	}
	v, _ := a.tokens.Verdict(r.Context(), token, path, Address(r))
	switch v.Outcome {
	case OutcomeAllowed:
		return http.StatusOK, ""
	case OutcomeForbidden:
		return http.StatusForbidden, v.Why
	case OutcomeLimited:
		return http.StatusTooManyRequests, "too many unknown tokens"
	case OutcomeUnavailable:
		return http.StatusServiceUnavailable, "can't check the token with the API server"
	}
	return http.StatusUnauthorized, v.Why
}
