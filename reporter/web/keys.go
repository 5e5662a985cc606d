package web

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"sync"
	"time"

	"golang.org/x/time/rate"
)

// checkEvery is how often the files are checked, when connections arrive.
const checkEvery = time.Second

// Keys holds the server's certificate and the CAs of its clients, and reloads them when their
// files change. controller-runtime's certwatcher does not support CAs. If new files are invalid,
// Keys logs that and keeps the previous ones: files are written one after the other.
type Keys struct {
	cert, key, ca string
	log           *slog.Logger
	report        rate.Sometimes

	mu      sync.Mutex
	looked  time.Time
	read    [3][]byte // contents of the files
	config  *tls.Config
	expires time.Time
	failed  uint64 // changes that were invalid
}

// NewKeys reads the PEM files of a certificate, its key and the CAs of clients; ca may be empty.
func NewKeys(cert, key, ca string, log *slog.Logger) (*Keys, error) {
	k := &Keys{
		cert: cert, key: key, ca: ca, log: log, report: rate.Sometimes{First: 1, Interval: time.Minute}, looked: time.Now(),
	}
	return k, k.load()
}

// Server returns the TLS configuration of a listener.
func (k *Keys) Server() *tls.Config {
	return &tls.Config{MinVersion: tls.VersionTLS12, GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) { return k.current(time.Now()), nil }}
}

// current returns the configuration for new connections, reloaded if the files have changed.
func (k *Keys) current(now time.Time) *tls.Config {
	k.mu.Lock()
	defer k.mu.Unlock()
	if now.Sub(k.looked).Abs() >= checkEvery {
		k.looked = now
		if err := k.load(); err != nil {
			k.failed++
			k.report.Do(func() { k.log.Error("certificates not reloaded; the previous ones stay in use", "error", err) })
		}
	}
	return k.config
}

// State returns when the certificate expires and how many changes were invalid.
func (k *Keys) State() (expires time.Time, failed uint64) {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.expires, k.failed
}

// load reads the files and applies them if they have changed.
func (k *Keys) load() error {
	var read [3][]byte
	for i, name := range []string{k.cert, k.key, k.ca} {
		if name == "" {
			continue
		}
		text, err := os.ReadFile(name)
		if err != nil {
			return err
		}
		read[i] = text
	}
	if k.config != nil && slices.EqualFunc(read[:], k.read[:], bytes.Equal) {
		return nil
	}
	pair, err := tls.X509KeyPair(read[0], read[1])
	if err != nil {
		return fmt.Errorf("%s, %s: %w", k.cert, k.key, err)
	}
	config := &tls.Config{MinVersion: tls.VersionTLS12, Certificates: []tls.Certificate{pair}, NextProtos: []string{"http/1.1"}}
	if k.ca != "" {
		pool := x509.NewCertPool()
		if !pool.AppendCertsFromPEM(read[2]) {
			return fmt.Errorf("%s: no certificate in PEM", k.ca)
		}
		// Clients without a certificate may use a token.
		config.ClientCAs, config.ClientAuth = pool, tls.VerifyClientCertIfGiven
	}
	if k.config != nil {
		k.log.Info("certificates reloaded", "expires", pair.Leaf.NotAfter)
	}
	k.read, k.config, k.expires = read, config, pair.Leaf.NotAfter
	return nil
}
