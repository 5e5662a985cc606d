package main

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/kernosis/kernosis/collector/ingest/client"
	"github.com/kernosis/kernosis/detector/problem"
	"github.com/kernosis/kernosis/reporter/journal"
	"github.com/kernosis/kernosis/vmtest/agenttest"
	"github.com/kernosis/kernosis/vmtest/testenv"
)

// reported returns the reports of a condition, as "True Reason: message".
func reported(entries []journal.Entry, conditionType string) (lines []string) {
	for _, e := range entries {
		for _, tr := range e.Transitions {
			if c := tr.Condition; c != nil && c.Type == conditionType {
				lines = append(lines, fmt.Sprintf("%s %s: %s", c.Status, c.Reason, c.Message))
			}
		}
	}
	return lines
}

// postReport posts a text to the agent's socket.
func postReport(t *testing.T, socket, text string) (int, string) {
	t.Helper()
	tr := &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "unix", socket)
	}}
	defer tr.CloseIdleConnections()
	resp, err := (&http.Client{Transport: tr}).Post("http://x"+client.Path, "", strings.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	var b strings.Builder
	if err := resp.Write(&b); err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, b.String()
}

// TestProblemDaemon follows the life of a third-party problem daemon, with a kill -9 of the agent in
// between.
func TestProblemDaemon(t *testing.T) {
	testenv.OnlyInTestAll(t)
	t.Parallel()
	dir, err := os.MkdirTemp("/tmp", "kernosis-reports-") //nolint:usetesting // t.TempDir's may be too long for a socket
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(dir)
	socket, file := filepath.Join(dir, "run", "report.sock"), filepath.Join(dir, "kernosis.yaml")
	if err := os.WriteFile(file, fmt.Appendf(nil, `
log: [none]
report-socket: %s
reports:
- name: gpu-monitor
  uid: [%d]
  heartbeat: 10s
  conditions:
  - {type: GPUUnhealthy, healthyReason: GPUIsHealthy, healthyMessage: all GPUs answer, severity: critical}
`, socket, os.Getuid()), 0o600); err != nil {
		t.Fatal(err)
	}
	p := newAgent(t, "--log", "none", "--config", file, "--listen", "127.0.0.1:0", "--port", "0", "--prometheus-port", "0", "--enable-k8s-exporter=false")
	p.Command = "agent"
	p.Start()
	url := p.Log.URL(t)
	c, err := client.New(socket, client.Source{
		Name: "gpu-monitor", Heartbeat: time.Second, ValidFor: testenv.Within(5 * time.Second), Gather: 10 * time.Millisecond,
		Conditions: []client.Condition{{Type: "GPUUnhealthy", Status: client.False}},
	})
	if err != nil {
		t.Fatal(err)
	}
	daemon, stopDaemon := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() { defer close(ended); _ = c.Run(daemon) }()
	last := func(what, line string) []journal.Entry {
		t.Helper()
		return p.Wait(what, 30*time.Second, func(entries []journal.Entry) bool {
			all := reported(entries, "GPUUnhealthy")
			return len(all) > 0 && strings.HasPrefix(all[len(all)-1], line)
		})
	}
	set := func(status client.ConditionStatus, reason, message string) {
		t.Helper()
		if err := c.SetCondition(client.Condition{Type: "GPUUnhealthy", Status: status, Reason: reason, Message: message}); err != nil {
			t.Fatal(err)
		}
	}
	last("False", "False GPUIsHealthy: all GPUs answer")
	set(client.True, "XidError", "Xid 79 on 0000:3b:00.0\x1b[31m")
	last("True", `True XidError: Xid 79 on 0000:3b:00.0\x1b[31m`)
	set(client.True, "FellOffBus", "0000:3b:00.0 is gone")
	last("another reason", "True FellOffBus: 0000:3b:00.0 is gone")
	for i := range 3 {
		if err := c.Event(client.Event{Severity: client.Warn, Reason: "XidSeen", Message: fmt.Sprintf("Xid %d", i)}); err != nil {
			t.Fatal(err)
		}
	}
	entries := p.Wait("three events", 30*time.Second, func(entries []journal.Entry) bool {
		return len(agenttest.States(entries, "report-gpu-monitor-warn", func(*problem.Problem) bool { return true })) == 3
	})
	if states := agenttest.States(entries, "report-gpu-monitor-gpuunhealthy", func(p *problem.Problem) bool { return p.Severity == problem.Critical }); !slices.Equal(states, []problem.State{problem.Firing}) {
		t.Errorf("one fault is reported as %v", states)
	}

	// Invalid reports are refused and have no effect.
	for text, want := range map[string]int{
		`{`: 400, `{"source":"gpu-monitor","conditions":[{"type":"KernelDeadlock","status":true,"reason":"Me"}]}`: 409,
		`{"source":"gpu-monitor","conditions":[{"type":"Ready","status":false}]}`: 400, `{"source":"nobody"}`: 403,
		strings.Repeat("x", 1<<20): 413,
	} {
		if got, answer := postReport(t, socket, text); got != want {
			t.Errorf("%.40s: %d, want %d: %s", text, got, want, answer)
		}
	}
	_, body := get(t, url+"/metrics")
	for _, want := range []string{
		`kernosis_reports_total{outcome="conflict",source="gpu-monitor"} 1`, `kernosis_reports_total{outcome="too-large",source=""} 1`,
		`kernosis_report_events_total{source="gpu-monitor"} 3`, `kernosis_source_up{stem="check/gpu-monitor/GPUUnhealthy"} 1`,
		`kernosis_condition{status="True",type="GPUUnhealthy"} 1`, `kernosis_condition{status="True",type="KernelDeadlock"} 0`,
	} {
		if !strings.Contains(body, want) {
			t.Errorf("metrics lack %s", want)
		}
	}

	// The agent is killed and restarted: the socket is replaced, the condition stays,
	// and the daemon continues to report.
	before := len(reported(p.Entries(), "GPUUnhealthy"))
	taken := c.Stats().Reports
	p.Kill()
	p.Start()
	testenv.UntilShown(t, "the daemon reports again", 30*time.Second, func() (bool, string) {
		s := c.Stats()
		return s.Reports >= taken+2, fmt.Sprintf("%+v", s)
	})
	if all := reported(p.Entries(), "GPUUnhealthy"); len(all) != before {
		t.Errorf("reported after the restart: %q", all[before:])
	}
	set(client.False, "", "")
	last("False again", "False GPUIsHealthy")
	set(client.True, "XidError", "Xid 80")
	last("True again", "True XidError: Xid 80")

	stopDaemon() // as if it hung
	<-ended
	last("Unknown", "Unknown SourceUnavailable: check/gpu-monitor/GPUUnhealthy: gpu-monitor has not reported it since ")
	if err := c.Close(); err != nil {
		t.Error(err)
	}
	p.Stop()
	if _, err := os.Lstat(socket); err == nil {
		t.Error("the socket is left")
	}
}
