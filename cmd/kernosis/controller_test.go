package main

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kernosis/kernosis/reporter/kube/lease"
	"github.com/kernosis/kernosis/vmtest/kubetest"
	"github.com/kernosis/kernosis/vmtest/testenv"
)

func TestControllerConfiguration(t *testing.T) {
	write := func(text string) string {
		path := filepath.Join(t.TempDir(), "c.yaml")
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	for name, c := range map[string]struct {
		args    []string
		env     string
		mistake string
		check   func(controllerConfig) bool
	}{
		"defaults": {check: func(c controllerConfig) bool {
			return c.MaxEnded == 2000 && c.PodWait == 5*time.Minute && c.PendingSilent == 10*time.Minute && c.RunningSilent == time.Hour && c.SilentAfter == 50*time.Second && c.DrainingGrace == 5*time.Minute && c.StartUpGrace == 2*time.Minute && c.Namespace == "kube-system" && c.LeaderElect
		}},
		"file": {args: []string{"--config", write("silent-after: 70s\ncondition-types: [A, B]\nleader-elect: false\n")}, check: func(c controllerConfig) bool {
			return c.SilentAfter == 70*time.Second && len(c.ConditionTypes) == 2 && !c.LeaderElect
		}},
		"environment":    {env: "61s", args: []string{"--config", write("silent-after: 70s\n")}, check: func(c controllerConfig) bool { return c.SilentAfter == 61*time.Second }},
		"flag":           {env: "61s", args: []string{"--silent-after", "62s"}, check: func(c controllerConfig) bool { return c.SilentAfter == 62*time.Second }},
		"unknown key":    {args: []string{"--config", write("namespace: x\nsilent: 70s\n")}, mistake: "c.yaml:2: unknown key silent"},
		"kubelet's type": {args: []string{"--condition-types", "A,Ready"}, mistake: "condition-types: condition type Ready is reserved by Kubernetes"},
		"selector":       {args: []string{"--agent-pods", "a in"}, mistake: "agent-pods: "},
		"all pods":       {args: []string{"--agent-pods", ""}, mistake: "agent-pods: want a selector"},
		"period":         {args: []string{"--silent-after", "0s"}, mistake: "silent-after: 0s"},
		"rate":           {args: []string{"--slow-writes", "NaN"}, mistake: "slow-writes: NaN"},
		"namespace":      {args: []string{"--namespace", "No"}, mistake: "namespace: \"No\""},
		"diagnoses": {args: []string{"--pod-wait", "1m", "--pending-silent", "2m", "--running-silent", "3m", "--max-ended-diagnoses", "5"}, check: func(c controllerConfig) bool {
			return c.PodWait == time.Minute && c.PendingSilent == 2*time.Minute && c.RunningSilent == 3*time.Minute && c.MaxEnded == 5
		}},
		"diagnoses' time":  {args: []string{"--running-silent", "-1s"}, mistake: "running-silent: -1s"},
		"metrics' address": {args: []string{"--config", write("repairs: false\nmetrics-listen: 20258\n")}, mistake: `c.yaml:2: metrics-listen: "20258": want ADDRESS:PORT`},
		"health's address": {args: []string{"--health-listen", "20259"}, mistake: `--health-listen: "20259": want ADDRESS:PORT`},
		"metrics and TLS":  {args: []string{"--config", write("metrics-cert-file: c\nmetrics-key-file: k\nmetrics-plain-http: true\n")}, mistake: "c.yaml:3: metrics-plain-http: can't be combined"},
		"ended diagnoses":  {args: []string{"--max-ended-diagnoses", "0"}, mistake: "max-ended-diagnoses: 0"},
		"election":         {args: []string{"--leader-elect-lease-duration", "5s"}, mistake: "leader-elect-lease-duration: 5s"},
		"election's tries": {args: []string{"--leader-elect-retry-period", "9s"}, mistake: "leader-elect-renew-deadline: 10s"},
	} {
		t.Run(name, func(t *testing.T) {
			if c.env != "" {
				t.Setenv("KERNOSIS_SILENT_AFTER", c.env)
			}
			cmd := newController()
			if err := cmd.ParseFlags(c.args); err != nil {
				t.Fatal(err)
			}
			cfg, err := loadController(cmd)
			switch {
			case c.mistake == "" && (err != nil || !c.check(cfg)):
				t.Errorf("got %+v, %v", cfg, err)
			case c.mistake != "" && (err == nil || !strings.Contains(err.Error(), c.mistake)):
				t.Errorf("got %v, want %q", err, c.mistake)
			}
		})
	}
}

// controllerProcess is a controller that runs with the rights that the documentation names.
type controllerProcess struct {
	*exec.Cmd
	metrics, health string
	log             testenv.LogBuffer
}

func startController(t *testing.T, kubeconfig, namespace string, more ...string) *controllerProcess {
	t.Helper()
	return startProgram(t, os.Args[0], kubeconfig, namespace, more...)
}

// startProgram is like startController, for a program other than this test binary.
func startProgram(t *testing.T, program, kubeconfig, namespace string, more ...string) *controllerProcess {
	t.Helper()
	p := &controllerProcess{metrics: kubetest.FreeAddress(t), health: kubetest.FreeAddress(t)}
	p.Cmd = exec.Command(program, "controller", "--kubeconfig", kubeconfig, "--namespace", namespace,
		// Long enough that a stall of the API server for seconds neither makes an agent silent nor
		// costs leadership.
		"--silent-after", "6s", "--metrics-listen", p.metrics, "--health-listen", p.health,
		"--leader-elect-lease-duration", "15s", "--leader-elect-renew-deadline", "12s", "--leader-elect-retry-period", "300ms")
	p.Args = append(p.Args, more...)
	p.Env = append(os.Environ(), beKernosis+"=1")
	p.Stderr = &p.log
	if err := p.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = p.Process.Kill()
		_ = p.Wait()
		if t.Failed() {
			t.Log(&p.log)
		}
	})
	return p
}

// Two processes, with only the rights that the documentation names: one works; when it is killed, the
// other takes over, and later shuts down cleanly.
func TestControllerProcesses(t *testing.T) {
	testenv.OnlyInTestAll(t)
	server := kubetest.New(t, kubetest.Options{})
	client, namespace, node := server.Client(), server.Namespace(t), server.Node(t)
	server.ServiceAccount(t, namespace, "controller", kubetest.ControllerRoles(t, repository)...)
	kubeconfig := server.Kubeconfig(t, server.WithToken(server.Token(t, kubetest.TokenFor{Namespace: namespace, ServiceAccount: "controller"})))
	const broken = `{"status":{"conditions":[{"type":"A","status":"True","reason":"Broken"}]}}`
	set := func() {
		if _, err := client.CoreV1().Nodes().Patch(t.Context(), node, types.StrategicMergePatchType, []byte(broken), metav1.PatchOptions{}, "status"); err != nil {
			t.Fatal(err)
		}
	}
	reason := func() (reason string) {
		n, err := client.CoreV1().Nodes().Get(t.Context(), node, metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		for _, c := range n.Status.Conditions {
			if c.Type == "A" {
				reason = c.Reason
			}
		}
		return reason
	}
	waitFor := func(what string, ok func() bool) {
		t.Helper()
		testenv.Until(t, what, time.Minute, ok)
	}
	scrape := func(p *controllerProcess, path string) string {
		address := p.metrics
		if path != "metrics" {
			address = p.health
		}
		_, body := getIfUp(t, fmt.Sprintf("http://%s/%s", address, path))
		return body
	}
	set()
	keep := func() (stop func()) {
		k, err := lease.New(lease.Config{
			Client: client, Namespace: namespace, Node: node, Interval: 200 * time.Millisecond, Duration: time.Second, StartJitter: -1,
			DrainTimeout: time.Nanosecond, Types: func() []string { return []string{"A"} },
		})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(context.Background())
		var ended sync.WaitGroup
		ended.Go(func() { _ = k.Run(ctx) })
		stop = func() { cancel(); ended.Wait() }
		t.Cleanup(stop)
		waitFor("the Lease is there", func() bool { return !k.Stats().LastRenewed.IsZero() })
		return stop
	}
	stop := keep()
	first := startController(t, kubeconfig, namespace)
	waitFor("the first sees the agent", func() bool {
		return strings.Contains(scrape(first, "metrics"), `kernosis_controller_nodes{state="reporting"} 1`)
	})
	second := startController(t, kubeconfig, namespace)
	waitFor("both are ready", func() bool {
		return scrape(first, "readyz") == "ok" && scrape(second, "readyz") == "ok" && scrape(second, "healthz") == "ok"
	})
	// Both serve the page of nodes. The CRDs for Diagnoses are not installed in this cluster.
	shows := func(p *controllerProcess, want ...string) {
		t.Helper()
		testenv.UntilShown(t, fmt.Sprintf("a page with %q", want), time.Minute, func() (bool, string) {
			_, body := getIfUp(t, "http://"+p.metrics+"/state")
			return !slices.ContainsFunc(want, func(w string) bool { return !strings.Contains(body, w) }), body
		})
	}
	shows(first, ">"+node+"<", ">reporting</span>", ">A True</span>", "Broken", "has no Diagnoses")
	shows(second, ">"+node+"<", ">reporting</span>", ">A True</span>", "Broken", "has no Diagnoses")
	stop()
	waitFor("the first speaks", func() bool { return reason() == lease.ReasonUnknown })
	shows(first, ">silent</span>", ">A Unknown</span>", lease.ReasonUnknown)
	set()
	if err := first.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	waitFor("the second speaks", func() bool { return reason() == lease.ReasonUnknown })
	// It counts a write when the answer arrives.
	testenv.UntilShown(t, "the second counts one write", time.Minute, func() (bool, string) {
		m := scrape(second, "metrics")
		return strings.Contains(m, "kernosis_controller_writes_total{outcome=\"written\"} 1\n") && strings.Contains(m, "workqueue_depth"), m
	})
	if err := second.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	if err := second.Wait(); err != nil {
		t.Errorf("the second ended with %v", err)
	}
	if log := second.log.String(); strings.Count(log, "kubectl apply -f diagnose/api/crds") != 1 {
		t.Error("that the kinds of diagnoses are missing is not reported once")
	}
	if log := second.log.String(); !strings.Contains(log, "controller ends") || strings.Contains(log, "forbidden") {
		t.Error("the log does not tell of an end in order, or that a right is missing")
	}
}

// getIfUp is like get, for a server that may not listen yet.
func getIfUp(t *testing.T, url string) (status int, body string) {
	t.Helper()
	resp, err := http.Get(url)
	if err != nil {
		return 0, ""
	}
	defer resp.Body.Close()
	raw, err := io.ReadAll(resp.Body)
	if err != nil {
		return 0, ""
	}
	return resp.StatusCode, string(raw)
}
