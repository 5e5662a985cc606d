// Package degradedtest_test runs the agent as a process that lacks something: capabilities,
// paths of the host, the node's PID namespace. The agent must report what it lacks, and do the
// rest.
package degradedtest_test

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kernosis/kernosis/vmtest/agenttest"
	"github.com/kernosis/kernosis/vmtest/kubetest"
	"github.com/kernosis/kernosis/vmtest/kubetest/process"
	"github.com/kernosis/kernosis/vmtest/testenv"
)

var cluster kubetest.Shared

func TestMain(m *testing.M) {
	if text := os.Getenv(asLacking); text != "" {
		err := become(text, os.Args[1:])
		fmt.Fprintln(os.Stderr, err) // it only returns on an error
		os.Exit(70)
	}
	testenv.HoldKernelForProcess()
	os.Exit(cluster.Run(m))
}

// lacking is what a process has to lack.
type lacking struct {
	Caps     []string // dropped capabilities
	OwnPIDs  bool     // it has a PID namespace, and /proc, of its own
	ReadOnly []string // folders
	NoKmsg   bool     // /dev has the usual devices, but no kmsg
	// NoNewPrivs: programs that it starts have no capability that it lacks.
	NoNewPrivs bool
}

// command returns a command of kernosis that lacks something.
func (l *lacking) command(t testing.TB, args ...string) *exec.Cmd {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root, to have less than it")
	}
	text, err := json.Marshal(l)
	if err != nil {
		t.Fatal(err)
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(self, append([]string{agenttest.Program(t)}, args...)...)
	cmd.Env = append(os.Environ(), asLacking+"="+string(text))
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNS}
	if l.OwnPIDs {
		cmd.SysProcAttr.Cloneflags |= syscall.CLONE_NEWPID
	}
	return cmd
}

// agent is an agent that lacks something.
type agent struct {
	*testing.T
	node                 string
	state, targets, pins string // the agent's folders
	log                  agenttest.Log
	url                  string
	pid                  int
}

// start starts an agent of a new Node; config is the content of its configuration file.
func start(t *testing.T, l lacking, config string, args ...string) *agent {
	t.Helper()
	server := cluster.Server(t)
	dir := t.TempDir()
	a := &agent{
		T: t, node: server.Node(t), state: filepath.Join(dir, "state"), targets: filepath.Join(dir, "targets.d"),
		pins: fmt.Sprintf("/sys/fs/bpf/kernosis-degraded-%d-%d", os.Getpid(), time.Now().UnixNano()),
	}
	file := filepath.Join(dir, "config.yaml")
	if err := os.WriteFile(file, []byte("logs: [{plugin: kmsg, lookback: 0s}]\n"+config), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(a.state, 0o700); err != nil {
		t.Fatal(err)
	}
	for i := range l.ReadOnly {
		l.ReadOnly[i] = strings.ReplaceAll(l.ReadOnly[i], "STATE", a.state)
	}
	cmd := l.command(t, append([]string{
		"agent", "--config", file, "--state-dir", a.state, "--pin-root", a.pins, "--targets-dir", a.targets,
		"--kubeconfig", server.Kubeconfig(t, server.Admin()), "--node-name", a.node, "--namespace", server.Namespace(t),
		"--port", "0", "--prometheus-port", "0", "--report-socket", "", "--listen", "127.0.0.1:0",
	}, args...)...)
	cmd.Stdout = io.Discard
	t.Cleanup(func() { os.RemoveAll(a.pins) })
	process.RunUntilEnd(t, cmd, &a.log.LogBuffer)
	a.url, a.pid = a.log.URL(t), cmd.Process.Pid
	return a
}

func (a *agent) get(path string) (int, string) {
	a.Helper()
	r, err := http.NewRequestWithContext(a.Context(), http.MethodGet, a.url+path, nil)
	if err != nil {
		a.Fatal(err)
	}
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		return 0, err.Error()
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		return 0, err.Error()
	}
	return resp.StatusCode, string(text)
}

// condition waits until the Node's condition has a status and reason ("": any), and returns its
// message.
func (a *agent) condition(conditionType string, status corev1.ConditionStatus, reason string) (message string) {
	a.Helper()
	testenv.UntilShown(a, fmt.Sprintf("condition %s %s %s", conditionType, status, reason), time.Minute, func() (bool, string) {
		n, err := cluster.Server(a.T).Client().CoreV1().Nodes().Get(a.Context(), a.node, metav1.GetOptions{})
		if err != nil {
			return false, err.Error()
		}
		for _, c := range n.Status.Conditions {
			if string(c.Type) == conditionType {
				message = c.Message
				return c.Status == status && (reason == "" || c.Reason == reason), fmt.Sprintf("%s %s: %s", c.Status, c.Reason, c.Message)
			}
		}
		return false, "none"
	})
	return message
}

// degraded checks that a part is reported as degraded everywhere, and that the agent is still ready.
func (a *agent) degraded(part, reason, lacks string) {
	a.Helper()
	metric := fmt.Sprintf("kernosis_degraded{node=%q,part=%q,reason=%q} 1", a.node, part, reason)
	testenv.UntilShown(a, metric, time.Minute, func() (bool, string) {
		_, body := a.get("/metrics")
		var have []string
		for line := range strings.Lines(body) {
			if strings.HasPrefix(line, "kernosis_degraded{") {
				have = append(have, line)
			}
		}
		return strings.Contains(body, metric+"\n"), strings.Join(have, "")
	})
	note := fmt.Sprintf("degraded: %s: %s: lacks %s, not seen: ", part, reason, lacks)
	testenv.UntilShown(a, "ready with "+note, time.Minute, func() (bool, string) {
		code, body := a.get("/readyz")
		return code == http.StatusOK && strings.HasPrefix(body, "ok\n") && strings.Contains(body, note), body
	})
	if text := a.log.String(); !strings.Contains(text, fmt.Sprintf("msg=degraded part=%s reason=%s", part, reason)) {
		a.Errorf("the log does not tell of %s", part)
	}
}

// healthy checks that the agent is still healthy.
func (a *agent) healthy() {
	a.Helper()
	if code, body := a.get("/healthz"); code != http.StatusOK {
		a.Errorf("healthz: %d %s", code, body)
	}
}
