package kubetest

import (
	"crypto/x509/pkix"
	"fmt"
	"net"
	"path/filepath"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// Admin returns the configuration of a client with all rights.
func (s *Server) Admin() *rest.Config { return rest.CopyConfig(s.admin) }

// Client returns a client with all rights.
func (s *Server) Client() *kubernetes.Clientset { return s.client }

// Clientset returns a client with a configuration.
func Clientset(tb testing.TB, c *rest.Config) *kubernetes.Clientset {
	tb.Helper()
	client, err := kubernetes.NewForConfig(c)
	if err != nil {
		tb.Fatal(err)
	}
	return client
}

// Config returns the configuration of a user who authenticates with a certificate. The user's
// rights come from RBAC objects, and from the Node authorizer for a "system:node:NAME" in the group
// "system:nodes".
func (s *Server) Config(tb testing.TB, user string, groups ...string) *rest.Config {
	tb.Helper()
	c, err := s.User(user, groups...)
	if err != nil {
		tb.Fatal(err)
	}
	return c
}

// User is [Server.Config] outside of a test.
func (s *Server) User(user string, groups ...string) (*rest.Config, error) {
	cert, key, err := s.ca.client(user, groups)
	if err != nil {
		return nil, fmt.Errorf("certificate of %s: %w", user, err)
	}
	c := s.WithToken("")
	c.CertData, c.KeyData = cert, key
	return c, nil
}

// WithToken returns the configuration of a client that uses a token, or has no credentials if it is
// empty. The client's own rate limits are off.
func (s *Server) WithToken(token string) *rest.Config {
	return &rest.Config{
		Host: "https://" + s.Address(), TLSClientConfig: rest.TLSClientConfig{CAData: s.ca.pem},
		BearerToken: token, QPS: -1, UserAgent: "kubetest",
	}
}

// TokenFor describes a service account's token.
type TokenFor struct {
	Namespace, ServiceAccount string
	// Pod is what the token is bound to, if anything: it expires with the pod, and names its node.
	Pod string
	// Audience is the token's audience; empty means the API server.
	Audience string
}

// Token returns a service account's token, issued by the API server. It is valid for longer than any
// test runs.
func (s *Server) Token(tb testing.TB, of TokenFor) string {
	tb.Helper()
	seconds := int64(24 * time.Hour / time.Second)
	request := &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{ExpirationSeconds: &seconds}}
	if of.Audience != "" {
		request.Spec.Audiences = []string{of.Audience}
	}
	if of.Pod != "" {
		pod, err := s.client.CoreV1().Pods(of.Namespace).Get(tb.Context(), of.Pod, metav1.GetOptions{})
		if err != nil {
			tb.Fatalf("token: %v", err)
		}
		request.Spec.BoundObjectRef = &authenticationv1.BoundObjectReference{APIVersion: "v1", Kind: "Pod", Name: pod.Name, UID: pod.UID}
	}
	answer, err := s.client.CoreV1().ServiceAccounts(of.Namespace).CreateToken(tb.Context(), of.ServiceAccount, request, metav1.CreateOptions{})
	if err != nil {
		tb.Fatalf("token of %s/%s: %v", of.Namespace, of.ServiceAccount, err)
	}
	return answer.Status.Token
}

// KubeletCertificate returns the certificate and key, PEM, with which a node's kubelet serves at an
// address.
func (s *Server) KubeletCertificate(node string, at net.IP) (cert, key []byte, err error) {
	cert, key, err = s.ca.server(pkix.Name{CommonName: "system:node:" + node, Organization: []string{"system:nodes"}}, []string{node}, at)
	if err != nil {
		return nil, nil, fmt.Errorf("certificate of the kubelet of %s: %w", node, err)
	}
	return cert, key, nil
}

// Kubeconfig writes a configuration to a file, which is removed at the end of the test, and returns
// its path.
func (s *Server) Kubeconfig(tb testing.TB, c *rest.Config) string {
	tb.Helper()
	path := filepath.Join(tb.TempDir(), "kubeconfig")
	if err := WriteKubeconfig(path, c); err != nil {
		tb.Fatal(err)
	}
	return path
}

// WriteKubeconfig writes a configuration to a file that only its owner can read.
func WriteKubeconfig(path string, c *rest.Config) error {
	const name = "kubetest"
	config := clientcmdapi.NewConfig()
	config.Clusters[name] = &clientcmdapi.Cluster{Server: c.Host, CertificateAuthorityData: c.CAData}
	config.AuthInfos[name] = &clientcmdapi.AuthInfo{
		ClientCertificateData: c.CertData, ClientKeyData: c.KeyData, Token: c.BearerToken, TokenFile: c.BearerTokenFile,
	}
	config.Contexts[name] = &clientcmdapi.Context{Cluster: name, AuthInfo: name}
	config.CurrentContext = name
	return clientcmd.WriteToFile(*config, path)
}
