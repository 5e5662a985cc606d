package clustertest_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kernosis/kernosis/diagnose/api/v1alpha1"
	"github.com/kernosis/kernosis/vmtest/testenv"
)

// certificate returns a self-signed certificate, and its key, as PEM.
func certificate(t *testing.T, name string) (cert *x509.Certificate, certPEM, keyPEM []byte) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: name}, NotAfter: time.Now().Add(time.Hour),
		IsCA: true, BasicConstraintsValid: true, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	if cert, err = x509.ParseCertificate(der); err != nil {
		t.Fatal(err)
	}
	raw, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	return cert, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: raw})
}

// An agent presents the certificate of a Secret to a web server if it may read the Secret, and
// otherwise reports that it may not.
func TestAClientCertificateOfASecret(t *testing.T) {
	testenv.OnlyInTestAll(t)
	server := cluster.Server(t)
	a := newAgent(t, server)
	cert, certPEM, keyPEM := certificate(t, "kernosis")
	web := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprintf(w, `{"seen":%q}`, r.TLS.PeerCertificates[0].Subject.CommonName)
	}))
	clients := x509.NewCertPool()
	clients.AddCert(cert)
	web.TLS = &tls.Config{ClientAuth: tls.RequireAndVerifyClientCert, ClientCAs: clients}
	web.StartTLS()
	t.Cleanup(web.Close)
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "pager"}, Type: corev1.SecretTypeTLS, Data: map[string][]byte{
		"tls.crt": certPEM, "tls.key": keyPEM,
		"ca.crt": pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: web.Certificate().Raw}),
	}}
	if _, err := server.Client().CoreV1().Secrets(a.namespace).Create(t.Context(), secret, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	ask := &v1alpha1.Operation{ObjectMeta: metav1.ObjectMeta{Name: "ask-" + a.node}}
	ask.Spec.Effect = v1alpha1.EffectCollect
	ask.Spec.Processor.HTTPServer = &v1alpha1.HTTPServer{
		Scheme: "https", Port: portOf(t, web), ClientCertificateSecret: &v1alpha1.SecretReference{Name: "pager"},
	}
	set := &v1alpha1.OperationSet{ObjectMeta: metav1.ObjectMeta{Name: ask.Name}}
	set.Spec.AdjacencyList = []v1alpha1.Node{{ID: 0, To: []int32{1}}, {ID: 1, Operation: ask.Name}}
	a.apply(ask, set)
	run := func(name string) v1alpha1.Result {
		t.Helper()
		d := &v1alpha1.Diagnosis{ObjectMeta: metav1.ObjectMeta{Namespace: a.namespace, Name: name}}
		d.Spec.OperationSet, d.Spec.NodeName = set.Name, a.node
		a.apply(d)
		d = a.awaitEnd(time.Minute, named(name))
		if len(d.Status.Results) != 1 {
			t.Fatalf("%+v", d.Status)
		}
		return d.Status.Results[0]
	}
	a.Start()
	if refused := run("refused"); refused.State != v1alpha1.ResultFailed || !strings.Contains(refused.Message, `secrets "pager" is forbidden`) {
		t.Errorf("%+v", refused)
	}

	server.Grant(t, "agent-of-"+a.namespace, a.namespace,
		rbacv1.ClusterRole{TypeMeta: metav1.TypeMeta{Kind: "Role"}, Rules: []rbacv1.PolicyRule{
			{APIGroups: []string{""}, Resources: []string{"secrets"}, ResourceNames: []string{"pager"}, Verbs: []string{"get"}},
		}})
	r := run("allowed")
	if r.State != v1alpha1.ResultSucceeded || r.Values["seen"] != "kernosis" {
		t.Errorf("%+v", r)
	}
	a.Stop()
}
