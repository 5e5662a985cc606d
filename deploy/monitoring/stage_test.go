package monitoring_test

import (
	"context"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	rbacv1 "k8s.io/api/rbac/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kernosis/kernosis/diagnose/api/apitest"
	"github.com/kernosis/kernosis/vmtest/agenttest"
	"github.com/kernosis/kernosis/vmtest/kubetest"
	"github.com/kernosis/kernosis/vmtest/kubetest/process"
	"github.com/kernosis/kernosis/vmtest/testenv"
)

// stage runs an agent, a controller, and a Prometheus that scrapes both as in a cluster.
type stage struct {
	t      testing.TB
	server *kubetest.Server
	people client.Client // with all rights
	dir    string        // for files
	path   string        // of the kernosis program

	node, namespace string
	agent           *agenttest.Agent
	controller      string // address of its metrics
	agentURL        string // URL of its metrics
	controllerURL   string
	token           string // with the right to read the metrics
	alerts          string // where it receives alerts
	prometheus      string // its address
	began           time.Time
	broken          atomic.Bool // state of the service that the agent probes
}

// agentConfig enables every feature of an agent: a check, a problem daemon, a service, an existing
// log and a missing one.
const agentConfig = `
report-socket: %[1]s/run/report.sock
reports:
- {name: gpu-monitor, uid: [0], heartbeat: 10s, conditions: [{type: GPUUnhealthy, healthyReason: GPUIsHealthy, healthyMessage: all GPUs answer}]}
services:
  known: []
  probes:
  - {name: mirror, handler: http, address: %[2]q, condition: MirrorUnhealthy, period: 1s, timeout: 1s}
logs:
- {plugin: kmsg, lookback: 0s}
- {name: app, plugin: file, path: %[1]s/app.log}
- {name: gone, plugin: file, path: %[1]s/there/is/none.log}
`

const check = `{
  "plugin": "custom", "source": "door-monitor",
  "pluginConfig": {"invoke_interval": "1s", "timeout": "1s", "max_output_length": 80, "concurrency": 3},
  "conditions": [{"type": "DoorOpen", "reason": "DoorIsShut", "message": "the door is shut"}],
  "rules": [{"type": "permanent", "condition": "DoorOpen", "reason": "DoorIsOpen", "path": "/bin/false"}]
}`

// stageRules are a rule whose expression fails, one with too few groups, one that exceeds its rate
// limit, and one whose problem ends soon, so that a repair can be seen to have helped.
const stageRules = `apiVersion: rules.kernosis.io/v1
conditions:
  KillsHere: {healthyReason: NoKillsHere, healthyMessage: none}
rules:
- {name: divides, events: [oomkill], when: 1 / (event.anonRSS - event.anonRSS) > 0, reason: Divides, message: m}
- {name: narrow, events: [oomkill], groupBy: [task.pid], maxGroups: 1, reason: Narrow, message: m, severity: info}
- {name: chatty, events: [log], logs: [app], pattern: '^chatty', reason: Chatty, message: m, severity: info, rateLimit: {count: 1, within: 1h}}
- {name: kills-here, events: [oomkill], when: 'cgroup.path.endsWith("kernosis-inject-%d-oom")', condition: KillsHere, reason: KilledHere, message: killed, clearAfter: 10s}
`

func newStage(t *testing.T) *stage {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root: loads programs and provokes real faults")
	}
	server := cluster.Server(t)
	server.CRDs(t)
	dir, err := os.MkdirTemp("/tmp", "kernosis-monitoring-") //nolint:usetesting // t.TempDir's may be too long for a socket
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	s := &stage{t: t, server: server, dir: dir, node: server.Node(t), namespace: server.Namespace(t), began: time.Now()}
	s.path = agenttest.Program(t)
	s.people = apitest.Client(t, server.Admin())
	testenv.HoldKernel(t)
	s.startController()
	return s
}

// file writes a file and returns its path.
func (s *stage) file(name, text string) string {
	s.t.Helper()
	path := filepath.Join(s.dir, name)
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		s.t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		s.t.Fatal(err)
	}
	return path
}

func (s *stage) startAgent() {
	mirror := httptest.NewServer(http.NotFoundHandler())
	mirror.Config.Handler = http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		if s.broken.Load() {
			w.WriteHeader(http.StatusServiceUnavailable)
		}
	})
	s.t.Cleanup(mirror.Close)
	s.file("app.log", "begins\n")
	s.file("rules/own.yaml", fmt.Sprintf(stageRules, os.Getpid()))
	a := agenttest.New(s.t, s.path,
		"--kubeconfig", s.server.Kubeconfig(s.t, s.server.Admin()), "--node-name", s.node, "--namespace", s.namespace,
		"--config", s.file("agent.yaml", fmt.Sprintf(agentConfig, s.dir, mirror.Listener.Addr())),
		"--rules-dir", filepath.Join(s.dir, "rules"), "--config.custom-plugin-monitor", s.file("door-monitor.json", check),
		"--hung-task-after", "2s", "--port", "0", "--prometheus-port", "0", "--listen", "0.0.0.0:0")
	a.Command = "agent"
	s.agent = a
	a.Start()
	a.WaitSources(0)
}

// startController starts a controller that receives alerts, with a certificate.
func (s *stage) startController() {
	pair := httptest.NewTLSServer(nil)
	pair.Close()
	key, err := x509.MarshalPKCS8PrivateKey(pair.TLS.Certificates[0].PrivateKey)
	if err != nil {
		s.t.Fatal(err)
	}
	// On all addresses, which other machines can reach: with TLS and authorization.
	s.controller, s.alerts = kubetest.FreeAddress(s.t), kubetest.FreeAddress(s.t)
	everywhere := strings.Replace(s.controller, "127.0.0.1", "0.0.0.0", 1)
	s.process(s.path, "controller", "--kubeconfig", s.server.Kubeconfig(s.t, s.server.Admin()), "--namespace", s.namespace,
		"--metrics-listen", everywhere, "--health-listen", "", "--silent-after", "2s",
		"--alerts-listen", s.alerts,
		"--alerts-cert-file", s.file("tls.crt", string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: pair.Certificate().Raw}))),
		"--alerts-key-file", s.file("tls.key", string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: key}))))
}

// startPrometheus starts a Prometheus that scrapes like the chart's PodMonitors: labels of the
// metric take precedence over those of the target, and both get the label node.
func (s *stage) startPrometheus(program string) {
	_, port, err := net.SplitHostPort(strings.TrimPrefix(s.agent.Log.URL(s.t), "https://"))
	if err != nil {
		s.t.Fatal(err)
	}
	s.server.ServiceAccount(s.t, s.namespace, "prometheus",
		rbacv1.ClusterRole{Rules: []rbacv1.PolicyRule{{NonResourceURLs: []string{"/metrics"}, Verbs: []string{"get"}}}})
	s.token = s.server.Token(s.t, kubetest.TokenFor{Namespace: s.namespace, ServiceAccount: "prometheus"})
	s.agentURL, s.controllerURL = "https://127.0.0.1:"+port+"/metrics", "https://"+s.controller+"/metrics"
	config := fmt.Sprintf(`
global: {scrape_interval: 1s, evaluation_interval: 1s}
rule_files: [%[1]s]
scrape_configs:
- job_name: kernosis/kernosis-agent
  honor_labels: true
  scheme: https
  tls_config: &tls {insecure_skip_verify: true}
  authorization: &who {credentials_file: %[6]s}
  static_configs: [{targets: [%[2]q], labels: {node: %[3]s, namespace: %[4]s, pod: kernosis-agent-x, container: agent}}]
- job_name: kernosis/kernosis-controller
  honor_labels: true
  scheme: https
  tls_config: *tls
  authorization: *who
  static_configs: [{targets: [%[5]q], labels: {node: other, namespace: %[4]s, pod: kernosis-controller-x, container: controller}}]
`, s.file("rules.yml", quickened(s.t)), "127.0.0.1:"+port, s.node, s.namespace, s.controller, s.file("token", s.token))
	s.prometheus = kubetest.FreeAddress(s.t)
	s.process(program, "--config.file="+s.file("prometheus.yml", config), "--storage.tsdb.path="+filepath.Join(s.dir, "tsdb"),
		"--web.listen-address="+s.prometheus)
	s.await(s.t, "look of Prometheus at both", time.Minute, func(ctx context.Context) (bool, string) {
		up, err := s.query(ctx, "up == 1", false)
		return len(up) == 2, fmt.Sprintf("%v, %v", up, err)
	})
}

// process runs a program until the test ends.
func (s *stage) process(path string, args ...string) {
	s.t.Helper()
	cmd := exec.Command(path, args...)
	cmd.Dir = s.dir
	process.RunUntilEnd(s.t, cmd, &testenv.LogBuffer{})
}

// await waits until ok returns true; at the timeout the test fails with what ok returned last.
func (s *stage) await(t testing.TB, what string, within time.Duration, ok func(ctx context.Context) (bool, string)) {
	t.Helper()
	within = testenv.Within(within)
	ctx, cancel := context.WithTimeout(t.Context(), within)
	defer cancel()
	tick := time.NewTicker(200 * time.Millisecond)
	defer tick.Stop()
	last := "nothing"
	for {
		is, seen := ok(ctx)
		if is {
			return
		}
		if ctx.Err() == nil {
			last = seen
		}
		select {
		case <-ctx.Done():
			t.Fatalf("no %s within %v; last: %s", what, within, last)
		case <-tick.C:
		}
	}
}
