package kubetest

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"time"
)

// validFor is longer than any test runs.
const validFor = 48 * time.Hour

// ServiceAddress is that of the service "kubernetes", which pods know the API server by.
const ServiceAddress = "10.96.0.1"

// authority signs the certificates of one server and of its clients.
type authority struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
	pem  []byte
}

func newAuthority() (*authority, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	template, err := certificate(pkix.Name{CommonName: "kubetest"})
	if err != nil {
		return nil, err
	}
	template.IsCA, template.BasicConstraintsValid = true, true
	template.KeyUsage |= x509.KeyUsageCertSign
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return nil, err
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		return nil, err
	}
	return &authority{cert: cert, key: key, pem: encodePEM("CERTIFICATE", der)}, nil
}

// readAuthority reads the one that writeKeys has written.
func readAuthority(certFile, keyFile string) (*authority, error) {
	pair, err := tls.LoadX509KeyPair(certFile, keyFile)
	if err != nil {
		return nil, err
	}
	key, ok := pair.PrivateKey.(*ecdsa.PrivateKey)
	if !ok {
		return nil, fmt.Errorf("%s: want an ECDSA key, not %T", keyFile, pair.PrivateKey)
	}
	return &authority{cert: pair.Leaf, key: key, pem: encodePEM("CERTIFICATE", pair.Certificate[0])}, nil
}

func certificate(subject pkix.Name) (*x509.Certificate, error) {
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 120))
	if err != nil {
		return nil, err
	}
	now := time.Now()
	return &x509.Certificate{
		SerialNumber: serial, Subject: subject, KeyUsage: x509.KeyUsageDigitalSignature,
		NotBefore: now.Add(-time.Hour), NotAfter: now.Add(validFor),
	}, nil
}

// client returns a certificate and its key, PEM, for a user of the API.
func (a *authority) client(user string, groups []string) (cert, key []byte, err error) {
	template, err := certificate(pkix.Name{CommonName: user, Organization: groups})
	if err != nil {
		return nil, nil, err
	}
	template.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}
	return a.sign(template)
}

// server returns the certificate of the API server.
func (a *authority) server() (cert, key []byte, err error) {
	template, err := certificate(pkix.Name{CommonName: "kube-apiserver"})
	if err != nil {
		return nil, nil, err
	}
	template.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}
	template.DNSNames = []string{"localhost", "kubernetes", "kubernetes.default", "kubernetes.default.svc"}
	template.IPAddresses = []net.IP{net.IPv4(127, 0, 0, 1), net.ParseIP(ServiceAddress)}
	return a.sign(template)
}

// kubelet returns the certificate that a node's kubelet serves with.
func (a *authority) kubelet(node string, at net.IP) (cert, key []byte, err error) {
	template, err := certificate(pkix.Name{CommonName: "system:node:" + node, Organization: []string{"system:nodes"}})
	if err != nil {
		return nil, nil, err
	}
	template.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}
	template.DNSNames, template.IPAddresses = []string{node}, []net.IP{at}
	return a.sign(template)
}

func (a *authority) sign(template *x509.Certificate) (cert, key []byte, err error) {
	k, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, nil, err
	}
	der, err := x509.CreateCertificate(rand.Reader, template, a.cert, k.Public(), a.key)
	if err != nil {
		return nil, nil, err
	}
	private, err := x509.MarshalECPrivateKey(k)
	if err != nil {
		return nil, nil, err
	}
	return encodePEM("CERTIFICATE", der), encodePEM("EC PRIVATE KEY", private), nil
}

func encodePEM(kind string, der []byte) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der})
}

// writeKeys writes into a folder what the API server reads, and its own key.
func (a *authority) writeKeys(dir string) error {
	cert, key, err := a.server()
	if err != nil {
		return fmt.Errorf("certificate of the API server: %w", err)
	}
	accounts, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return err
	}
	private, err := x509.MarshalECPrivateKey(accounts)
	if err != nil {
		return err
	}
	public, err := x509.MarshalPKIXPublicKey(accounts.Public())
	if err != nil {
		return err
	}
	own, err := x509.MarshalECPrivateKey(a.key)
	if err != nil {
		return err
	}
	return errors.Join(
		os.WriteFile(filepath.Join(dir, "ca.key"), encodePEM("EC PRIVATE KEY", own), 0o600),
		os.WriteFile(filepath.Join(dir, "ca.crt"), a.pem, 0o600),
		os.WriteFile(filepath.Join(dir, "apiserver.crt"), cert, 0o600),
		os.WriteFile(filepath.Join(dir, "apiserver.key"), key, 0o600),
		os.WriteFile(filepath.Join(dir, "sa.key"), encodePEM("EC PRIVATE KEY", private), 0o600),
		os.WriteFile(filepath.Join(dir, "sa.pub"), encodePEM("PUBLIC KEY", public), 0o600),
	)
}
