package main

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/kernosis/kernosis/cmd/kernosis/agent"
	"github.com/kernosis/kernosis/collector/logs/journald"
	"github.com/kernosis/kernosis/collector/plugin"
	"github.com/kernosis/kernosis/reporter/journal"
	"github.com/kernosis/kernosis/vmtest/kubetest"
	"github.com/kernosis/kernosis/vmtest/testenv"
)

const (
	npdLogFile = `{
  "plugin": "filelog", "logPath": "%s", "source": "app-monitor",
  "pluginConfig": {"timestamp": "^.{20}", "message": "^.{21}(.*)", "timestampFormat": "2006-01-02T15:04:05Z"},
  "lookback": "0", "bufferSize": 3,
  "conditions": [{"type": "AppBroken", "reason": "AppIsFine", "message": "the app is fine"}],
  "rules": [
    {"type": "temporary", "reason": "AppHiccup", "pattern": "hiccup number \\d+"},
    {"type": "permanent", "condition": "AppBroken", "reason": "AppFellOver", "pattern": "fell over", "clearPattern": "stood up"}
  ]
}`
	npdCheckFile = `{
  "plugin": "custom", "source": "door-monitor",
  "pluginConfig": {"invoke_interval": "1s", "timeout": "1s", "max_output_length": 80, "concurrency": 3},
  "conditions": [{"type": "DoorOpen", "reason": "DoorIsShut", "message": "the door is shut"}],
  "rules": [{"type": "permanent", "condition": "DoorOpen", "reason": "DoorIsOpen", "path": "%s", "args": ["%s"]}]
}`
	npdStatsFile = `{"cpu": {"metricsConfigs": {"cpu/load_1m": {"displayName": "cpu/load_1m"}}}, "host": {"metricsConfigs": {"host/uptime": {"displayName": "host/uptime"}}}, "invokeInterval": "1s"}`
	// One of its metrics is also in the other file.
	npdMoreStatsFile = `{"cpu": {"metricsConfigs": {"cpu/load_1m": {"displayName": "cpu/load_1m"}, "cpu/load_5m": {"displayName": "cpu/load_5m"}}}, "invokeInterval": "1s"}`
)

// TestAgentInPlaceOfNPD starts the agent with the command line of node-problem-detector, and
// reads its endpoints as those of node-problem-detector are read.
func TestAgentInPlaceOfNPD(t *testing.T) {
	testenv.OnlyInTestAll(t)
	dir := t.TempDir()
	file := func(name, content string, mode os.FileMode) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(content), mode); err != nil {
			t.Fatal(err)
		}
		return path
	}
	log := file("app.log", "", 0o600)
	state := file("door", "0 it is shut", 0o600)
	script := file("door.sh", "#!/bin/sh\nread -r code text <\"$1\"\necho \"$text\"\nexit \"$code\"\n", 0o700)
	p := newAgent(t, "--log", "none",
		"--"+agent.FlagSystemLog, file("app-monitor.json", fmt.Sprintf(npdLogFile, log), 0o600),
		"--"+agent.FlagCustomPlugin, file("door-monitor.json", fmt.Sprintf(npdCheckFile, script, state), 0o600),
		"--"+agent.FlagSystemStats, file("stats.json", npdStatsFile, 0o600)+","+file("more-stats.json", npdMoreStatsFile, 0o600),
		"--port", strconv.Itoa(kubetest.FreePort(t)), "--prometheus-port", strconv.Itoa(kubetest.FreePort(t)))
	p.Command = "agent"
	p.Start()
	metricsURL := p.Log.URL(t) + "/metrics"
	status := regexp.MustCompile(`url=(http://\S+)/conditions`)
	text, ok := p.Log.Wait(20*time.Second, status.MatchString)
	if !ok {
		t.Fatalf("the agent doesn't say where /conditions is:\n%s", text)
	}
	statusURL := status.FindStringSubmatch(text)
	want := func(what string, ok func(metrics string, conditions map[string]string) bool) {
		t.Helper()
		conditions := map[string]string{}
		testenv.UntilShown(t, what, 30*time.Second, func() (bool, string) {
			_, body := get(t, metricsURL)
			_, text := get(t, statusURL[1]+"/conditions")
			var list []struct{ Type, Status, Transition, Reason, Message string }
			if err := json.Unmarshal([]byte(text), &list); err != nil {
				t.Fatalf("/conditions: %v: %s", err, text)
			}
			for _, c := range list {
				if _, err := time.Parse(time.RFC3339, c.Transition); err != nil {
					t.Fatalf("/conditions: %v", err)
				}
				conditions[c.Type] = fmt.Sprintf("%s %s: %s", c.Status, c.Reason, c.Message)
			}
			return ok(body, conditions), fmt.Sprintf("conditions %q, metrics\n%s", conditions, body)
		})
	}
	has := func(metrics string, lines ...string) bool {
		return !slices.ContainsFunc(lines, func(l string) bool { return !strings.Contains(metrics, "\n"+l+"\n") })
	}
	want("all well", func(m string, c map[string]string) bool {
		return c["AppBroken"] == "False AppIsFine: the app is fine" && c["DoorOpen"] == "False DoorIsShut: the door is shut" &&
			has(m, `problem_counter{reason="AppHiccup"} 0`, `problem_gauge{reason="DoorIsOpen",type="DoorOpen"} 0`,
				`problem_gauge{reason="AppFellOver",type="AppBroken"} 0`) &&
			strings.Contains(m, "\ncpu_load_1m ") && strings.Contains(m, "\ncpu_load_5m ") && strings.Contains(m, "\nhost_uptime{")
	})
	add := func(lines ...string) {
		t.Helper()
		f, err := os.OpenFile(log, os.O_APPEND|os.O_WRONLY, 0)
		if err != nil {
			t.Fatal(err)
		}
		for _, l := range lines {
			fmt.Fprintf(f, "%s %s\n", time.Now().UTC().Format("2006-01-02T15:04:05Z"), l)
		}
		if err := f.Close(); err != nil {
			t.Fatal(err)
		}
	}
	add("hiccup number 1", "quiet", "hiccup number 2", "the app fell over")
	file("door", "1 the door\tis open", 0o600)
	want("told", func(m string, c map[string]string) bool {
		return c["AppBroken"] == "True AppFellOver: the app fell over" && c["DoorOpen"] == "True DoorIsOpen: the door is open" &&
			has(m, `problem_counter{reason="AppHiccup"} 2`, `problem_counter{reason="AppFellOver"} 1`,
				`problem_gauge{reason="AppFellOver",type="AppBroken"} 1`, `problem_gauge{reason="DoorIsOpen",type="DoorOpen"} 1`)
	})
	add("the app stood up")
	file("door", "0 it is shut", 0o600)
	want("over", func(m string, c map[string]string) bool {
		return strings.HasPrefix(c["AppBroken"], "False AppIsFine") && strings.HasPrefix(c["DoorOpen"], "False DoorIsShut") &&
			has(m, `problem_gauge{reason="AppFellOver",type="AppBroken"} 0`, `problem_gauge{reason="DoorIsOpen",type="DoorOpen"} 0`)
	})
	file("door", "2 no idea", 0o600)
	want("not to be reported", func(_ string, c map[string]string) bool {
		return strings.HasPrefix(c["DoorOpen"], "Unknown ") && strings.Contains(c["DoorOpen"], "no idea")
	})
	if status, _ := get(t, statusURL[1]+"/healthz"); status != http.StatusOK && os.Getuid() == 0 {
		t.Errorf("healthz: %d", status)
	}
	if status, body := get(t, statusURL[1]+"/debug/pprof/goroutine?debug=1"); status != http.StatusOK || !strings.Contains(body, "goroutine profile") {
		t.Errorf("pprof: %d", status)
	}
}

// The shipped counters read the journal of the host that --host-root names.
func TestAgentCountsInHostsJournal(t *testing.T) {
	testenv.OnlyInTestAll(t)
	needUptime(t, 10*time.Minute)
	const waiting = "unregister_netdevice: waiting for eth0 to become free. Usage count = 1"
	root := hostWithJournal(t, journald.Folder, journalEntry{3 * time.Minute, "kernel", "", waiting},
		journalEntry{2 * time.Minute, "kernel", "", waiting}, journalEntry{time.Minute, "kernel", "", waiting},
		journalEntry{time.Minute, "systemd", "init.scope", "Started kubelet.service - Kubernetes kubelet."})
	const files = "../../detector/npd/testdata/config/"
	p := newAgent(t, "--log", "none", "--host-root", root,
		"--"+agent.FlagCustomPlugin, files+"systemd-monitor-counter.json,"+files+"kernel-monitor-counter.json",
		"--port", strconv.Itoa(kubetest.FreePort(t)), "--prometheus-port", "0")
	p.Command = "agent"
	p.Start()
	want := map[string]string{
		"npd-kernel-monitor-counter-unregisternetdevice":        string(plugin.Problem),
		"npd-systemd-monitor-counter-frequentkubeletrestart":    string(plugin.OK),
		"npd-systemd-monitor-counter-frequentdockerrestart":     string(plugin.OK),
		"npd-systemd-monitor-counter-frequentcontainerdrestart": string(plugin.OK),
	}
	got := map[string]string{}
	p.Wait("result of each counter", 30*time.Second, func(entries []journal.Entry) bool {
		for _, e := range entries {
			if e.Event != nil && e.Event.Check != nil && strings.HasPrefix(e.Event.Check.Check, "npd-") {
				got[e.Event.Check.Check] = e.Event.Check.Status
			}
		}
		return len(got) == len(want)
	})
	if !maps.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
}
