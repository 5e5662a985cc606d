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

	certutil "k8s.io/client-go/util/cert"
	"k8s.io/client-go/util/keyutil"
)

// validFor is longer than any test run.
const validFor = 48 * time.Hour

// ServiceAddress is the address of the service "kubernetes", at which pods reach the API server.
const ServiceAddress = "10.96.0.1"

// authority signs the certificates of one server and of its clients.
type authority struct {
	cert *x509.Certificate
	key  any
	pem  []byte
}

func newAuthority() (*authority, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	cert, err := certutil.NewSelfSignedCACert(certutil.Config{CommonName: "kubetest"}, key)
	if err != nil {
		return nil, err
	}
	text, err := certutil.EncodeCertificates(cert)
	return &authority{cert: cert, key: key, pem: text}, err
}

// readAuthority reads the authority that writeKeys has written to a folder.
func readAuthority(dir string) (*authority, error) {
	pair, err := tls.LoadX509KeyPair(filepath.Join(dir, "ca.crt"), filepath.Join(dir, "ca.key"))
	if err != nil {
		return nil, err
	}
	text, err := certutil.EncodeCertificates(pair.Leaf)
	return &authority{cert: pair.Leaf, key: pair.PrivateKey, pem: text}, err
}

// client returns a certificate and its key, PEM, for a user of the API.
func (a *authority) client(user string, groups []string) (cert, key []byte, err error) {
	return a.sign(&x509.Certificate{
		Subject: pkix.Name{CommonName: user, Organization: groups}, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	})
}

// server returns a certificate and its key, PEM, for a server with the given names and addresses.
func (a *authority) server(subject pkix.Name, names []string, at ...net.IP) (cert, key []byte, err error) {
	return a.sign(&x509.Certificate{
		Subject: subject, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}, DNSNames: names, IPAddresses: at,
	})
}

func (a *authority) sign(template *x509.Certificate) (certPEM, keyPEM []byte, err error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, nil, err
	}
	template.SerialNumber, err = rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 120))
	if err != nil {
		return nil, nil, err
	}
	template.KeyUsage = x509.KeyUsageDigitalSignature
	template.NotBefore, template.NotAfter = time.Now().Add(-time.Hour), time.Now().Add(validFor)
	der, err := x509.CreateCertificate(rand.Reader, template, a.cert, key.Public(), a.key)
	if err != nil {
		return nil, nil, err
	}
	keyPEM, err = keyutil.MarshalPrivateKeyToPEM(key)
	return pem.EncodeToMemory(&pem.Block{Type: certutil.CertificateBlockType, Bytes: der}), keyPEM, err
}

// writeKeys writes the authority's key and the API server's files to a folder.
func (a *authority) writeKeys(dir string) error {
	cert, key, err := a.server(pkix.Name{CommonName: "kube-apiserver"},
		[]string{"localhost", "kubernetes", "kubernetes.default", "kubernetes.default.svc"}, net.IPv4(127, 0, 0, 1), net.ParseIP(ServiceAddress))
	if err != nil {
		return fmt.Errorf("certificate of the API server: %w", err)
	}
	own, err1 := keyutil.MarshalPrivateKeyToPEM(a.key)
	accounts, err2 := keyutil.MakeEllipticPrivateKeyPEM()
	if err := errors.Join(err1, err2); err != nil {
		return err
	}
	for name, text := range map[string][]byte{
		"ca.key": own, "ca.crt": a.pem, "apiserver.crt": cert, "apiserver.key": key, "sa.key": accounts,
	} {
		if err := os.WriteFile(filepath.Join(dir, name), text, 0o600); err != nil {
			return err
		}
	}
	return nil
}
