package main

import (
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/kernosis/kernosis/cmd/kernosis/agent"
	"github.com/kernosis/kernosis/vmtest/testenv"
)

// checkExposition checks a metrics page with promtool. Metrics named kernosis_ must cause no
// findings. The names of node-problem-detector's metrics and of those of libraries are given: these
// only have to be parsed.
func checkExposition(t *testing.T, program, text string) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), program, "check", "metrics")
	cmd.Stdin = strings.NewReader(text)
	out, err := cmd.CombinedOutput()
	// 3: findings. 1: the text can't be parsed.
	if exit := (*exec.ExitError)(nil); err != nil && (!errors.As(err, &exit) || exit.ExitCode() != 3) {
		t.Fatalf("%v: %s", err, out)
	}
	for line := range strings.Lines(string(out)) {
		if strings.HasPrefix(line, "kernosis_") {
			t.Errorf("promtool: %s", line)
		} else {
			t.Logf("promtool, of a name that is given: %s", line)
		}
	}
}

// awaitMetrics returns a page once it has all families.
func awaitMetrics(t *testing.T, url string, families ...string) (text string) {
	t.Helper()
	testenv.UntilShown(t, "metrics", 30*time.Second, func() (bool, string) {
		_, text = getIfUp(t, url)
		missing := slices.DeleteFunc(slices.Clone(families), func(name string) bool {
			return strings.Contains(text, "\n"+name+"{") || strings.Contains(text, "\n"+name+" ")
		})
		return len(missing) == 0, fmt.Sprintf("no %v in\n%s", missing, text)
	})
	return text
}

// TestExposition checks with promtool the metrics of an agent that has sources of every
// kind and a cluster, and those of the controller.
func TestExposition(t *testing.T) {
	program, server := testenv.FindProgram(t, "promtool"), apiServer.Server(t)
	dir, err := os.MkdirTemp("/tmp", "kernosis-metrics-") //nolint:usetesting // t.TempDir's may be too long for a socket
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(dir)
	file := func(name, content string, mode os.FileMode) string {
		t.Helper()
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(content), mode); err != nil {
			t.Fatal(err)
		}
		return path
	}
	log, add := appLog(t)
	script := file("door.sh", "#!/bin/sh\nread -r code text <\"$1\"\necho \"$text\"\nexit \"$code\"\n", 0o700)
	socket := filepath.Join(dir, "run", "report.sock")
	a := newClusterAgent(t, server, "--rules-dir", writeRules(t, clusterRules), "--log", "app=file:"+log,
		"--config", file("kernosis.yaml", fmt.Sprintf(`
report-socket: %s
reports:
- {name: gpu-monitor, uid: [%d], heartbeat: 10s, conditions: [{type: GPUUnhealthy, healthyReason: GPUIsHealthy, healthyMessage: all GPUs answer}]}
`, socket, os.Getuid()), 0o600),
		"--"+agent.FlagCustomPlugin, file("door-monitor.json", fmt.Sprintf(npdCheckFile, script, file("door", "1 it is open", 0o600)), 0o600),
		"--"+agent.FlagSystemStats, file("stats.json", `{"net": {"metricsConfigs": {"net/rx_bytes": {"displayName": "net/rx_bytes"}}}, "disk": {"metricsConfigs": {"disk/io_time": {"displayName": "disk/io_time"}}}, "cpu": {"metricsConfigs": {"cpu/load_1m": {"displayName": "cpu/load_1m"}}}, "invokeInterval": "5s"}`, 0o600))
	a.Start()
	url := a.Log.URL(t) + "/metrics"
	a.awaitCondition("AppBroken", "False AppIsFine: the app is fine")
	add("it fell over", "hiccup")
	a.awaitCondition("AppBroken", "True AppFellOver: the app fell over")
	a.awaitEvents("AppHiccup", 1, 30*time.Second)
	if code, answer := postReport(t, socket, `{"source":"gpu-monitor","conditions":[{"type":"GPUUnhealthy","status":true,"reason":"XidError","message":"Xid 79"}]}`); code != http.StatusOK {
		t.Fatalf("report: %d %s", code, answer)
	}
	checkExposition(t, program, awaitMetrics(t, url,
		"kernosis_events_total", "kernosis_problem_transitions_total", "kernosis_condition", "kernosis_source_up", "kernosis_journal_bytes",
		"kernosis_log_lines_total", "kernosis_check_runs_total", "kernosis_report_events_total", "kernosis_system_stats_left_out",
		"kernosis_api_writes_total", "kernosis_api_last_acknowledged_timestamp_seconds",
		"kernosis_conditions_pending", "kernosis_events_occurred_total", "kernosis_event_series", "problem_counter", "problem_gauge", "cpu_load_1m"))

	c := startController(t, server.Kubeconfig(t, server.Admin()), server.Namespace(t))
	checkExposition(t, program, awaitMetrics(t, "http://"+c.metrics+"/metrics", "kernosis_controller_nodes", "kernosis_controller_halted"))
}
