package clustertest_test

import (
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/kernosis/kernosis/collector/event"
	"github.com/kernosis/kernosis/reporter/journal"
	"github.com/kernosis/kernosis/vmtest/agenttest"
	"github.com/kernosis/kernosis/vmtest/netlab"
	"github.com/kernosis/kernosis/vmtest/testenv"
)

// A pod whose listener does not accept connections: its Event says why the probe fails, and how
// close it is to a restart; when the probe succeeds again, that is recorded.
func TestProbeOfAPodReportsItsCause(t *testing.T) {
	testenv.OnlyInTestAll(t)
	server := cluster.Server(t)
	a := newAgent(t, server)
	ns := server.Namespace(t)
	from, to := netlab.Pair(t)
	const at = "10.97.31.2:80"
	listener := to.Listen(at, 0)
	waiting := from.Dial(at) // takes the only place in the queue
	pod := server.ProbedPod(t, ns, a.node, "10.97.31.2", corev1.ProbeHandler{HTTPGet: &corev1.HTTPGetAction{Port: intstr.FromString("web"), Path: "/healthz"}})
	agenttest.Prober(t, from, "http://"+at+"/healthz")
	a.Start()

	var seen string
	a.await("the Event on the pod", time.Minute, func(ctx context.Context) (bool, string, error) {
		list, err := server.Client().CoreV1().Events(ns).List(ctx, metav1.ListOptions{})
		if err != nil {
			return false, "", err
		}
		for i := range list.Items {
			e := &list.Items[i]
			seen = fmt.Sprintf("%s %s ×%d on %s", e.Reason, e.Message, e.Count, e.InvolvedObject.Name)
			if e.Reason == "ProbeTargetAcceptQueueFull" && e.InvolvedObject.UID == pod.UID && e.Count >= 2 {
				return true, seen, nil
			}
		}
		return false, seen, nil
	})
	t.Log(seen)
	for _, want := range []string{"liveness ", " of 30 towards restart: accept queue full 1/0 on :80", "(" + ns + "/web-1 app)"} {
		if !strings.Contains(seen, want) {
			t.Errorf("the Event says %q, want %q", seen, want)
		}
	}
	failed := agentProbes(a.Entries(), event.Probe)
	first := failed[0]
	if first.Feed != event.ProbeObserved || first.Endpoint != at+"/healthz" || first.Failures != 1 || first.Container != "app" {
		t.Errorf("%+v", first)
	}
	// From the kernel's record to the journal, without waiting.
	for _, e := range a.Entries() {
		if e.Event != nil && e.Event.Kind == event.Probe {
			t.Logf("reported %s after the failure", e.Now.Sub(e.Event.Time))
			if late := e.Now.Sub(e.Event.Time); late > testenv.Within(time.Second) {
				t.Errorf("reported %s after the failure", late)
			}
		}
	}

	_ = waiting.Close()
	to.Accept(listener, netlabHTTP)
	a.Wait("the probe succeeds", time.Minute, func(entries []journal.Entry) bool {
		return len(agentProbes(entries, event.ProbeRecovered)) > 0
	})
	for _, e := range a.Entries() {
		if e.Event != nil && e.Event.SockFail != nil {
			t.Errorf("reported twice: %+v", e.Event.SockFail)
		}
	}
}

// agentProbes returns the journal's probe events of a kind.
func agentProbes(entries []journal.Entry, kind event.Kind) (out []*event.ProbeData) {
	for _, e := range entries {
		if e.Event != nil && e.Event.Kind == kind {
			out = append(out, e.Event.Probe)
		}
	}
	return out
}

// netlabHTTP answers one request.
func netlabHTTP(c net.Conn) {
	_, _ = c.Read(make([]byte, 4096))
	_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\nok")
}

// Without a cluster, pods come from a file: liveness and readiness probes use one port, where
// nothing listens, and each is counted separately.
func TestProbesOfAFileOfPods(t *testing.T) {
	testenv.OnlyInTestAll(t)
	if os.Geteuid() != 0 {
		t.Skip("needs root: loads programs")
	}
	path := agenttest.Program(t)
	testenv.HoldKernel(t)
	from, to := netlab.Pair(t)
	to.Listen("10.97.31.2:81", 5)
	file := filepath.Join(t.TempDir(), "pods.yaml")
	const manifest = `apiVersion: v1
kind: Pod
metadata: {name: web-1, namespace: shop, uid: 0f1e2d3c-4b5a-6978-8796-a5b4c3d2e1f0}
spec:
  containers:
  - name: app
    image: none
    livenessProbe: {httpGet: {path: /healthz, port: 80}, periodSeconds: 1, failureThreshold: 3}
    readinessProbe: {httpGet: {path: /ready, port: 80}, periodSeconds: 1, failureThreshold: 3}
status: {podIP: 10.97.31.2}
`
	if err := os.WriteFile(file, []byte(manifest), 0o600); err != nil {
		t.Fatal(err)
	}
	agenttest.Prober(t, from, "http://10.97.31.2:80/healthz")
	agenttest.Prober(t, from, "http://10.97.31.2:80/ready")
	a := agenttest.New(t, path, "--pods-file", file, "--listen", "127.0.0.1:0")
	a.Start()
	entries := a.Wait("both probes fail three times", time.Minute, func(entries []journal.Entry) bool {
		most := map[string]uint32{}
		for _, p := range agentProbes(entries, event.Probe) {
			most[p.Probe] = max(most[p.Probe], p.Failures)
		}
		return most["liveness"] >= 3 && most["readiness"] >= 3
	})
	first := agentProbes(entries, event.Probe)[0]
	// It ends with processes that other tests have stopped, if they are in the control group of this one.
	cause := strings.HasPrefix(first.Cause, "RST: nothing listens on :80 (container listens on :81)")
	if first.Name != "shop/web-1 app" || !cause || first.Threshold != 3 {
		t.Errorf("%+v", first)
	}
	if status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", a.PID())); err == nil {
		_, rss, _ := strings.Cut(string(status), "VmRSS:")
		rss, _, _ = strings.Cut(rss, "\n")
		t.Logf("the agent's memory: %s", strings.TrimSpace(rss))
	}
}
