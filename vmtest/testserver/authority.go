package testserver

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"testing"
	"time"
)

// Authority signs certificates for a test.
type Authority struct {
	Cert *x509.Certificate
	PEM  []byte // of Cert

	key *ecdsa.PrivateKey
}

// NewAuthority creates an authority that is its own root.
func NewAuthority(tb testing.TB, name string) *Authority {
	tb.Helper()
	a := &Authority{}
	a.PEM, _ = a.Sign(tb, name, &x509.Certificate{IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign})
	return a
}

// Sign creates a certificate and its key, as PEM. It is valid from one hour ago until one hour from
// now, unless the template says otherwise.
func (a *Authority) Sign(tb testing.TB, name string, template *x509.Certificate) (certPEM, keyPEM []byte) {
	tb.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		tb.Fatal(err)
	}
	if template.SerialNumber == nil {
		template.SerialNumber = big.NewInt(time.Now().UnixNano())
	}
	template.Subject = pkix.Name{CommonName: name}
	if template.NotAfter.IsZero() {
		template.NotBefore, template.NotAfter = time.Now().Add(-time.Hour), time.Now().Add(time.Hour)
	}
	parent, signer := a.Cert, a.key
	if parent == nil {
		parent, signer = template, key
	}
	der, err := x509.CreateCertificate(rand.Reader, template, parent, &key.PublicKey, signer)
	if err != nil {
		tb.Fatal(err)
	}
	if a.Cert == nil {
		if a.Cert, err = x509.ParseCertificate(der); err != nil {
			tb.Fatal(err)
		}
		a.key = key
	}
	raw, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		tb.Fatal(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: raw})
}
