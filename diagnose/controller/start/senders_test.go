package start

import (
	"context"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/client-go/rest"

	"github.com/kernosis/kernosis/diagnose/api/v1alpha1"
	"github.com/kernosis/kernosis/diagnose/trigger"
	"github.com/kernosis/kernosis/vmtest/kubetest"
	"github.com/kernosis/kernosis/vmtest/kubetest/process"
	"github.com/kernosis/kernosis/vmtest/testenv"
)

// blocks returns the manifests in a page of the documentation.
func blocks(t testing.TB, page string) (all []string) {
	t.Helper()
	text, err := os.ReadFile("../../../docs/" + page)
	if err != nil {
		t.Fatal(err)
	}
	for _, block := range regexp.MustCompile("(?s)```yaml\n(.*?)```").FindAllStringSubmatch(string(text), -1) {
		all = append(all, block[1])
	}
	return all
}

// door is a server that receives alerts.
type door struct {
	*server
	dir      string // has ca.crt, and the token of an authorized sender
	registry *prometheus.Registry
}

// gate passes alerts on; while it is shut, it reports that this instance does not lead.
type gate struct {
	taker
	shut chan struct{}
}

func (g *gate) Ready() error {
	select {
	case <-g.shut:
		return g.taker.Ready()
	default:
		return &notNow{why: "does not lead", after: time.Second}
	}
}

// open starts a server of alerts for a part.
func (b *bench) open(r *running, to taker) *door {
	b.t.Helper()
	b.server.ServiceAccount(b.t, b.namespace, "alertmanager", kubetest.Roles(b.t, "../../../docs/triggers.md")...)
	d := &door{dir: b.t.TempDir(), registry: prometheus.NewPedanticRegistry()}
	write := func(name, text string) string {
		path := filepath.Join(d.dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			b.t.Fatal(err)
		}
		return path
	}
	write("token", b.server.Token(b.t, kubetest.TokenFor{Namespace: b.namespace, ServiceAccount: "alertmanager", Audience: DefaultAudience}))
	// A self-signed certificate for 127.0.0.1.
	pair := httptest.NewTLSServer(nil)
	pair.Close()
	key, err := x509.MarshalPKCS8PrivateKey(pair.TLS.Certificates[0].PrivateKey)
	if err != nil {
		b.t.Fatal(err)
	}
	cert := string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: pair.Certificate().Raw}))
	write("ca.crt", cert)
	d.server, err = newServer(AlertsConfig{
		Listen:   "127.0.0.1:0",
		CertFile: write("tls.crt", cert), KeyFile: write("tls.key", string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: key}))),
	}, to, r.api, slog.New(slog.NewTextHandler(r.log, nil)))
	if err != nil {
		b.t.Fatal(err)
	}
	d.registry.MustRegister(d.counts)
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- d.Start(ctx) }()
	b.t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			b.t.Error(err)
		}
	})
	testenv.Until(b.t, "alerts are taken", deadline, func() bool { return d.Address() != "" })
	return d
}

func (d *door) answered(t *testing.T, code string) float64 {
	t.Helper()
	return kubetest.Sum(t, d.registry, "kernosis_alert_requests_total", "code", code)
}

// documented returns a snippet of the documentation, adapted to a server on this machine.
func (d *door) documented(t *testing.T, beginsWith string) string {
	t.Helper()
	for _, block := range blocks(t, "triggers.md") {
		if strings.HasPrefix(block, beginsWith) {
			return strings.NewReplacer("kernosis-alerts.kernosis.svc:20260", d.Address(), "/etc/kernosis/", d.dir+"/").Replace(block)
		}
	}
	t.Fatalf("the documentation has no %q", beginsWith)
	return ""
}

// run runs a program until the test ends, and returns its address.
func run(t *testing.T, path string, args ...string) string {
	t.Helper()
	address := kubetest.FreeAddress(t)
	cmd := exec.Command(path, append(args, "--web.listen-address="+address)...)
	cmd.Dir = t.TempDir()
	process.RunUntilEnd(t, cmd, &testenv.LogBuffer{})
	testenv.Until(t, path+" is ready", deadline, func() bool {
		resp, err := http.Get("http://" + address + "/-/ready")
		if err != nil {
			return false
		}
		defer resp.Body.Close()
		return resp.StatusCode == http.StatusOK
	})
	return address
}

// The real Alertmanager, with the documented configuration: it retries until somebody leads, and
// its repetitions create nothing.
func TestAlertmanager(t *testing.T) {
	path := testenv.FindProgram(t, "alertmanager")
	b := newBench(t)
	node := b.server.Node(t)
	b.trigger("disk", onNode)
	r := b.control(nil)
	r.inForce(1)
	g := &gate{taker: r.Part, shut: make(chan struct{})}
	d := b.open(r, g)
	config := filepath.Join(d.dir, "alertmanager.yml")
	text := strings.Replace(d.documented(t, "route:"), "  receiver: kernosis", "  receiver: kernosis\n  group_wait: 10ms\n  group_interval: 1s\n  repeat_interval: 1s", 1)
	if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	address := run(t, path, "--config.file="+config, "--storage.path="+t.TempDir(), "--cluster.listen-address=")
	alert := fmt.Sprintf(`[{"labels":{"alertname":"A","node":%q},"annotations":{"summary":"full"}}]`, node)
	resp, err := http.Post("http://"+address+"/api/v2/alerts", "application/json", strings.NewReader(alert))
	if err != nil {
		t.Fatal(err)
	}
	_ = resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		t.Fatal(resp.Status)
	}
	testenv.Until(t, "it tries several times", deadline, func() bool { return d.answered(t, "503") >= 3 })
	if n := len(b.diagnoses()); n != 0 {
		t.Errorf("%d Diagnoses while nobody leads", n)
	}
	close(g.shut)
	testenv.Until(t, "it sends, and sends again", deadline, func() bool { return d.answered(t, "200") >= 2 })
	if dx := b.only(); dx.Spec.NodeName != node || !strings.Contains(dx.Annotations[trigger.AnnotationTriggeredBy], "alert A with fingerprint") {
		t.Errorf("%+v", dx)
	}
	// It reports that the alert lasts, and when it ended.
	testenv.Until(t, "it lasts", deadline, func() bool {
		p := b.only().Status.Problem
		return p != nil && p.State == v1alpha1.ProblemLasts && p.Seen != nil
	})
	ends := time.Now().Add(-time.Second).UTC()
	over := fmt.Sprintf(`[{"labels":{"alertname":"A","node":%q},"annotations":{"summary":"full"},"endsAt":%q}]`, node, ends.Format(time.RFC3339Nano))
	resp, err = http.Post("http://"+address+"/api/v2/alerts", "application/json", strings.NewReader(over))
	if err != nil {
		t.Fatal(err)
	}
	_ = resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		t.Fatal(resp.Status)
	}
	testenv.Until(t, "it is gone", deadline, func() bool { return b.only().Status.Problem.State == v1alpha1.ProblemGone })
	if p := b.only().Status.Problem; p.Since.Sub(ends).Abs() > time.Second || p.Seen != nil {
		t.Errorf("%+v, it ended %s", p, ends)
	}
}

// The real Prometheus, which sends as if to an Alertmanager.
func TestPrometheus(t *testing.T) {
	testenv.OnlyInTestAll(t)
	path := testenv.FindProgram(t, "prometheus")
	b := newBench(t)
	node := b.server.Node(t)
	b.trigger("disk", onNode)
	r := b.control(nil)
	r.inForce(1)
	d := b.open(r, r.Part)
	files := map[string]string{
		"prometheus.yml": "global: {evaluation_interval: 200ms}\nrule_files: [rules.yml]\n" + d.documented(t, "alerting:"),
		"rules.yml":      "groups: [{name: g, rules: [{alert: A, expr: vector(1), labels: {node: " + node + "}}]}]\n",
	}
	for name, text := range files {
		if err := os.WriteFile(filepath.Join(d.dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	run(t, path, "--config.file="+filepath.Join(d.dir, "prometheus.yml"), "--storage.tsdb.path="+t.TempDir(), "--rules.alert.resend-delay=300ms")
	testenv.Until(t, "it sends, and sends again", deadline, func() bool { return d.answered(t, "200") >= 3 })
	if dx := b.only(); dx.Spec.NodeName != node {
		t.Errorf("%+v", dx)
	}
}

// Everything works with the documented rights.
func TestTheDocumentedRightsSuffice(t *testing.T) {
	b := newBench(t)
	node := b.server.Node(t)
	pod := b.server.Pod(t, b.namespace, "db-0", node)
	b.server.ServiceAccount(t, b.namespace, "controller", kubetest.ControllerRoles(t, "../../..")...)
	token := b.server.Token(t, kubetest.TokenFor{Namespace: b.namespace, ServiceAccount: "controller"})
	b.trigger("failed-mount", b.mounts())
	b.trigger("disk", onNode)
	b.trigger("often", `{operationSet: s, nodeName: `+node+`, rateLimit: {count: 1}, sourceTemplate: {cronTemplate: {schedule: "@every 1s"}}}`)
	r := b.controlBy(b.server.WithToken(token))
	d := b.open(r, r.Part)
	b.event(pod, "FailedMount", node)
	request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "https://"+d.Address()+PathV2, strings.NewReader(fmt.Sprintf(`[{"labels":{"alertname":"A","node":%q}}]`, node)))
	if err != nil {
		t.Fatal(err)
	}
	sender, err := os.ReadFile(filepath.Join(d.dir, "token"))
	if err != nil {
		t.Fatal(err)
	}
	transport, err := rest.TransportFor(&rest.Config{BearerToken: string(sender), TLSClientConfig: rest.TLSClientConfig{CAFile: filepath.Join(d.dir, "ca.crt")}})
	if err != nil {
		t.Fatal(err)
	}
	request.Header.Set("Content-Type", "application/json")
	resp, err := (&http.Client{Transport: transport}).Do(request)
	if err != nil {
		t.Fatal(err)
	}
	_ = resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		t.Error(resp.Status)
	}
	testenv.Until(t, "three Diagnoses are made", deadline, func() bool { return len(b.diagnoses()) == 3 })
	testenv.Until(t, "the state is saved", deadline, func() bool { return r.metric("kernosis_trigger_state_saves_total", "outcome", "saved") > 0 })
	if err := r.stop(); err != nil {
		t.Fatal(err)
	}
	if r.metric("kernosis_trigger_schedule_status_failures_total") > 0 || strings.Contains(r.log.String(), "forbidden") {
		t.Error("a right is missing")
	}
}
