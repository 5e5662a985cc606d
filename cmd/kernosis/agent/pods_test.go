package agent

import (
	"context"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kernosis/kernosis/detector"
	"github.com/kernosis/kernosis/diagnose/api/v1alpha1"
	"github.com/kernosis/kernosis/diagnose/tenancy"
	"github.com/kernosis/kernosis/diagnose/worker"
	"github.com/kernosis/kernosis/reporter/metrics"
	"github.com/kernosis/kernosis/vmtest/testenv"
)

// kubeletOf starts a server that answers with a list of pods as kubelet does, with its certificate
// in a file.
func kubeletOf(t *testing.T) (url, cert string, answer *atomic.Value) {
	t.Helper()
	answer = &atomic.Value{}
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		text, ok := answer.Load().(string)
		if !ok || r.URL.Path != "/pods" {
			http.Error(w, "Forbidden (resource=nodes, subresource(s)=[pods proxy])", http.StatusForbidden)
			return
		}
		_, _ = w.Write([]byte(text)) //nolint:errcheck // the client's concern
	}))
	t.Cleanup(server.Close)
	cert = filepath.Join(t.TempDir(), "kubelet.crt")
	if err := os.WriteFile(cert, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw}), 0o600); err != nil {
		t.Fatal(err)
	}
	return server.URL, cert, answer
}

func podList(pods ...string) string {
	return `{"kind":"PodList","items":[` + strings.Join(pods, ",") + `]}`
}

func podText(namespace, name, uid, source string) string {
	return fmt.Sprintf(`{"metadata":{"namespace":%q,"name":%q,"uid":%q,"labels":{"app":%q},"annotations":{"kubernetes.io/config.source":%q}},`+
		`"spec":{"nodeName":"n7","containers":[{"name":"main"}]}}`, namespace, name, uid, name, source)
}

func openTestPods(t *testing.T, s probeSettings) (*podSource, error) {
	t.Helper()
	quiet, m := slog.New(slog.DiscardHandler), metrics.New("test", "n7")
	p := &parts{cfg: Config{Probes: s, HostRoot: "/"}, log: quiet, rules: &detector.RuleSet{}, metrics: m, agent: &pipeline{metrics: m, log: quiet}}
	err := p.openPods()
	return p.pods, err
}

// If the list lacks a pod, kubelet is polled at once, and the pod is known a moment later.
func TestKubeletIsAskedForAPodThatIsNew(t *testing.T) {
	url, cert, answer := kubeletOf(t)
	s, err := openTestPods(t, probeSettings{PodsFrom: PodsFromKubelet, KubeletURL: url, KubeletCert: cert})
	if err != nil || s.doubt != nil {
		t.Fatal(err, s)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- s.run(ctx) }()
	t.Cleanup(func() { cancel(); <-ended })
	testenv.Until(t, "kubelet refuses", 5*time.Second, func() bool { return errors.Is(s.failure(), fs.ErrPermission) })
	answer.Store(podList(podText("shop", "db-0", "u-0", "api")))
	s.Named("shop", "db-0") // makes the agent poll sooner
	s.Await(t.Context())
	if err := s.failure(); err != nil {
		t.Error(err)
	}
	if p, ok := s.Pod("u-0"); !ok || p.Name != "db-0" || p.Labels["app"] != "db-0" {
		t.Errorf("%+v, %v", p, ok)
	}
	began := time.Now()
	if s.Known(began) {
		t.Error("the list of before is of now")
	}
	answer.Store(podList(podText("shop", "db-1", "u-1", "api")))
	testenv.Until(t, "the new pod is known", 5*time.Second, func() bool {
		p, ok := s.Pod("u-1")
		return ok && p.Name == "db-1"
	})
	if p, ok := s.Pod("u-0"); !s.Known(began) || !ok || p.Name != "db-0" {
		t.Errorf("of the pod that is gone: %+v, %v", p, ok)
	}
	if p, ok := s.Named("shop", "db-1"); !ok || p.UID != "u-1" {
		t.Errorf("%+v, %v", p, ok)
	}
}

// Kubelet's list decides what a tenant may look at only if kubelet's certificate is verified.
func TestATenantsPodOfKubelet(t *testing.T) {
	url, cert, answer := kubeletOf(t)
	of := func(name string) *v1alpha1.Diagnosis {
		return &v1alpha1.Diagnosis{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "d"}, Spec: v1alpha1.DiagnosisSpec{PodReference: &v1alpha1.PodReference{Name: name}}}
	}
	s, err := openTestPods(t, probeSettings{PodsFrom: PodsFromKubelet, KubeletURL: url, KubeletCert: cert})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.tenantPod(t.Context(), nil, of("db-0")); !errors.Is(err, worker.ErrLater) || errors.Is(err, worker.ErrGone) || !strings.Contains(err.Error(), "403 Forbidden: Forbidden (resource=nodes") {
		t.Errorf("refused: %v", err)
	}
	answer.Store(podList(podText("shop", "db-0", "u-0", "api"), podText("other", "db-1", "u-1", "api"), podText("shop", "etcd-n7", "u-2", "file")))
	if p, err := s.tenantPod(t.Context(), nil, of("db-0")); err != nil || p.UID != "u-0" || p.Node != "n7" {
		t.Errorf("%+v, %v", p, err)
	}
	if _, err := s.tenantPod(t.Context(), nil, of("db-1")); !errors.Is(err, worker.ErrLater) || !errors.Is(err, worker.ErrGone) {
		t.Errorf("another namespace's: %v", err)
	}
	if _, err := s.tenantPod(t.Context(), nil, of("etcd-n7")); !isRefusal(err) || !strings.Contains(err.Error(), "static pod") {
		t.Errorf("a static pod: %v", err)
	}
	if s, err = openTestPods(t, probeSettings{PodsFrom: PodsFromKubelet, KubeletURL: url, KubeletInsecure: true}); err != nil {
		t.Fatal(err)
	}
	if _, err := s.tenantPod(t.Context(), nil, of("db-0")); !isRefusal(err) || !strings.Contains(err.Error(), "certificate is not verified") {
		t.Errorf("of somebody who answers in kubelet's place: %v", err)
	}
	// Outside of tenancy, kubelet's answer is used.
	if p, err := s.whole.Pod(t.Context(), "shop", "db-0"); err != nil || p.UID != "u-0" {
		t.Errorf("%+v, %v", p, err)
	}
}

func isRefusal(err error) bool {
	_, ok := errors.AsType[tenancy.Refusals](err)
	return ok
}

func TestWhoSaysWhichPodsThereAre(t *testing.T) {
	if s, err := openTestPods(t, probeSettings{PodsFrom: PodsFromAPI}); s != nil || err != nil {
		t.Errorf("nobody does: %+v, %v", s, err)
	}
	if _, err := openTestPods(t, probeSettings{PodsFrom: PodsFromKubelet}); !exists(ownToken) && (err == nil || !strings.Contains(err.Error(), "pods-from: can't get pods from kubelet: no kubelet-url")) {
		t.Error(err)
	}
}
