package monitoring_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"go.yaml.in/yaml/v4"

	"github.com/kernosis/kernosis/deploy/monitoring"
	"github.com/kernosis/kernosis/vmtest/kubetest"
	"github.com/kernosis/kernosis/vmtest/kubetest/process"
	"github.com/kernosis/kernosis/vmtest/testenv"
)

// documentedConfig returns the Alertmanager configuration from docs/monitoring.md.
func documentedConfig(t *testing.T) string {
	t.Helper()
	for _, m := range regexp.MustCompile("(?ms)^```yaml\n(.*?)^```$").FindAllStringSubmatch(readFile(t, "docs/monitoring.md"), -1) {
		if strings.Contains(m[1], "inhibit_rules:") {
			return m[1]
		}
	}
	t.Fatal("docs/monitoring.md has no configuration of Alertmanager")
	return ""
}

// The documented configuration refers to existing alerts and labels.
func TestAlertmanagerConfigNamesAlerts(t *testing.T) {
	type matchers []string
	var config struct {
		Inhibit []struct {
			Source matchers `yaml:"source_matchers"`
			Target matchers `yaml:"target_matchers"`
			Equal  []string `yaml:"equal"`
		} `yaml:"inhibit_rules"`
	}
	if err := yaml.Unmarshal([]byte(documentedConfig(t)), &config); err != nil {
		t.Fatal(err)
	}
	known := map[string]bool{}
	each(shipped(t), func(_ string, a *monitoring.Alert) { known[a.Alert] = true })
	if len(config.Inhibit) < 4 {
		t.Errorf("%d inhibitions", len(config.Inhibit))
	}
	for _, r := range config.Inhibit {
		if len(r.Equal) == 0 || r.Equal[0] != "cluster" {
			t.Errorf("%v inhibits in other clusters", r)
		}
		for _, m := range slices.Concat(r.Source, r.Target) {
			names, ok := strings.CutPrefix(m, "alertname")
			if !ok {
				continue
			}
			for name := range strings.SplitSeq(strings.Trim(names, `=~"`), "|") {
				if !known[name] {
					t.Errorf("%s: there is no alert %q", m, name)
				}
			}
		}
	}
}

// Alertmanager accepts the documented configuration, inhibits alerts explained by others, and
// routes the rest by severity.
func TestAlertmanagerGroupsAndInhibits(t *testing.T) {
	program := testenv.FindProgram(t, "alertmanager")
	dir := t.TempDir()
	config := filepath.Join(dir, "alertmanager.yml")
	write(t, config, documentedConfig(t))
	address := startAlertmanager(t, program, config, dir)
	firing := func(name, node, severity string) map[string]any {
		return map[string]any{"labels": map[string]string{"alertname": name, "node": node, "severity": severity, "app": "kernosis"}}
	}
	post(t, address, []map[string]any{
		firing("DiskUnhealthy", "n7", "critical"), firing("DiskIOError", "n7", "warning"), firing("DiskIOError", "n8", "warning"),
		firing("FrequentOOMKilling", "n7", "critical"), firing("FrequentOOMKilling", "n7", "warning"), firing("OOMKilling", "n7", "warning"),
		firing("KernosisAgentDown", "n9", "warning"), firing("KernosisSourceDown", "n9", "warning"), firing("CPUHogged", "n9", "info"),
	})
	want := map[string]bool{
		"DiskUnhealthy n7 critical": false, "DiskIOError n7 warning": true, "DiskIOError n8 warning": false,
		"FrequentOOMKilling n7 critical": false, "FrequentOOMKilling n7 warning": true, "OOMKilling n7 warning": true,
		"KernosisAgentDown n9 warning": false, "KernosisSourceDown n9 warning": true, "CPUHogged n9 info": false,
	}
	receivers := map[string]string{}
	testenv.UntilShown(t, "alerts are inhibited as documented", time.Minute, func() (bool, string) {
		inhibited := map[string]bool{}
		for _, a := range read(t, address) {
			key := a.Labels["alertname"] + " " + a.Labels["node"] + " " + a.Labels["severity"]
			inhibited[key] = len(a.Status.InhibitedBy) > 0
			for _, r := range a.Receivers {
				receivers[key] = r.Name
			}
		}
		return maps.Equal(inhibited, want), fmt.Sprint(inhibited)
	})
	if receivers["DiskUnhealthy n7 critical"] != "on-call" || receivers["DiskIOError n8 warning"] != "nodes" || receivers["CPUHogged n9 info"] != "nobody" {
		t.Errorf("receivers: %v", receivers)
	}
}

// startAlertmanager runs Alertmanager until the test ends and returns its address.
func startAlertmanager(t *testing.T, program, config, dir string) string {
	t.Helper()
	address := kubetest.FreeAddress(t)
	cmd := exec.Command(program, "--config.file="+config, "--storage.path="+dir, "--cluster.listen-address=", "--web.listen-address="+address)
	process.RunUntilEnd(t, cmd, &testenv.LogBuffer{})
	testenv.Until(t, "alertmanager is ready", time.Minute, func() bool {
		answer, err := http.Get("http://" + address + "/-/ready")
		if err != nil {
			return false
		}
		_ = answer.Body.Close()
		return answer.StatusCode == http.StatusOK
	})
	return address
}

func post(t *testing.T, address string, all []map[string]any) {
	t.Helper()
	body, err := json.Marshal(all)
	if err != nil {
		t.Fatal(err)
	}
	answer, err := http.Post("http://"+address+"/api/v2/alerts", "application/json", bytes.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	_ = answer.Body.Close()
	if answer.StatusCode != http.StatusOK {
		t.Fatal(answer.Status)
	}
}

// gettableAlert is an alert as returned by Alertmanager.
type gettableAlert struct {
	Labels    map[string]string       `json:"labels"`
	Receivers []struct{ Name string } `json:"receivers"`
	Status    struct {
		InhibitedBy []string `json:"inhibitedBy"`
	} `json:"status"`
}

func read(t *testing.T, address string) (all []gettableAlert) {
	t.Helper()
	answer, err := http.Get("http://" + address + "/api/v2/alerts")
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	if err := json.NewDecoder(answer.Body).Decode(&all); err != nil {
		t.Fatal(err)
	}
	return all
}
