package chart_test

import (
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/yaml"

	"github.com/kernosis/kernosis/deploy/monitoring"
	"github.com/kernosis/kernosis/detector"
)

// alertsWith returns the committed alerts with other base URLs; dashboards may be empty.
func alertsWith(t *testing.T, runbooks, dashboards string) map[string]any {
	t.Helper()
	text, err := os.ReadFile("kernosis/files/alerts.yaml")
	if err != nil {
		t.Fatal(err)
	}
	replaced := strings.NewReplacer(monitoring.Docs, runbooks, monitoring.DashboardMark, dashboards).Replace(string(text))
	var out map[string]any
	if err := yaml.Unmarshal([]byte(replaced), &out); err != nil {
		t.Fatal(err)
	}
	if dashboards == "" {
		for _, a := range alertsOf(t, out) {
			unstructured.RemoveNestedField(a, "annotations", monitoring.DashboardURL)
		}
	}
	return out
}

// alertsOf returns the alerts in a PrometheusRule's spec; the caller may change them.
func alertsOf(t *testing.T, spec any) []map[string]any {
	t.Helper()
	var out []map[string]any
	groups, _ := spec.(map[string]any)["groups"].([]any)
	for _, g := range groups {
		list, _ := g.(map[string]any)["rules"].([]any)
		for _, a := range list {
			out = append(out, a.(map[string]any))
		}
	}
	if len(out) == 0 {
		t.Fatal("no alerts")
	}
	return out
}

// ruleOf returns the spec of the PrometheusRule rendered from values.
func ruleOf(t *testing.T, values string) any {
	t.Helper()
	o := object(rendered(t, parse(t, values)), "PrometheusRule", "kernosis")
	if o == nil {
		t.Fatal("no PrometheusRule")
	}
	return o.Object["spec"]
}

func named(all []map[string]any, name string) (out []map[string]any) {
	for _, a := range all {
		if a["alert"] == name {
			out = append(out, a)
		}
	}
	return out
}

func text(a map[string]any, fields ...string) string {
	s, _, _ := unstructured.NestedString(a, fields...)
	return s
}

// The chart's alert templates are up to date with their generator.
func TestTheChartsTemplatesOfAlertsAreGenerated(t *testing.T) {
	want, err := monitoring.AlertTemplates()
	if err != nil {
		t.Fatal(err)
	}
	if got, err := os.ReadFile("kernosis/files/own-alerts.yaml"); err != nil || string(got) != string(want) {
		t.Errorf("files/own-alerts.yaml is out of date (make generate-deploy): %v", err)
	}
}

// An alert can be removed, and its severity, duration and labels changed; links use the base URLs
// from the values, and commands use the namespace of the release.
func TestAlertsCanBeChanged(t *testing.T) {
	r := renderer(t)
	r.Namespace = "watch"
	all := objectsOf(t, r, parse(t, `
monitoring:
  rules:
    enabled: true
    dashboardBaseURL: https://grafana.example.com/
    alerts:
      OOMKilling: {enabled: false}
      FrequentOOMKilling: {enabled: true}
      DiskStalled: {severity: warning, for: 7m, labels: {team: storage}}
      KernosisAgentRestarts: {for: 2m}
  dashboards: {enabled: true}
`))
	got := alertsOf(t, object(all, "PrometheusRule", "kernosis").Object["spec"])
	want := alertsOf(t, alertsWith(t, monitoring.Docs, "https://grafana.example.com"))
	if len(got) != len(want)-1 || len(named(got, "OOMKilling")) != 0 || len(named(got, "FrequentOOMKilling")) != 2 {
		t.Errorf("%d alerts of %d", len(got), len(want))
	}
	a := named(got, "DiskStalled")[0]
	labels, _, _ := unstructured.NestedStringMap(a, "labels")
	if a["for"] != "7m" || !maps.Equal(labels, map[string]string{"app": "kernosis", "severity": "warning", "team": "storage"}) {
		t.Errorf("%v", a)
	}
	before := named(want, "DiskStalled")[0]
	if a["expr"] != before["expr"] || text(a, "annotations", monitoring.Description) != text(before, "annotations", monitoring.Description) {
		t.Errorf("more than requested has changed: %v", a)
	}
	if url := text(a, "annotations", monitoring.DashboardURL); !strings.HasPrefix(url, "https://grafana.example.com/d/kernosis-node?var-node=") {
		t.Errorf("dashboard_url %q", url)
	}
	restarts := named(got, "KernosisAgentRestarts")[0]
	if command := text(restarts, "annotations", monitoring.Command); restarts["for"] != "2m" || strings.Count(command, "kubectl -n watch ") != 2 {
		t.Errorf("%v", restarts)
	}
	commands := map[string]string{}
	for _, a := range got {
		commands[text(a, "alert")] = text(a, "annotations", monitoring.Command)
	}
	for _, o := range all {
		if o.GetKind() == "ConfigMap" && strings.HasPrefix(o.GetName(), "kernosis-dashboard-") {
			data, _, _ := unstructured.NestedStringMap(o.Object, "data")
			commands[o.GetName()] = strings.Join(slices.Collect(maps.Values(data)), "")
		}
	}
	found := 0
	for name, command := range commands {
		why := strings.Count(command, "kubectl kernosis why ")
		found += why
		if strings.Count(command, " --agent-namespace watch ") != why || strings.Contains(command, "-n kernosis ") {
			t.Errorf("%s: commands for another namespace: %s", name, command)
		}
	}
	if found < 100 {
		t.Errorf("%d commands kubectl kernosis why", found)
	}
}

// Without a controller there is no alert on its absence, but its name is known.
func TestNoControllerIsNotAbsent(t *testing.T) {
	spec := ruleOf(t, `
controller: {enabled: false}
monitoring:
  rules:
    enabled: true
    alerts:
      KernosisControllerAbsent: {severity: warning}
`)
	all := alertsOf(t, spec)
	if len(named(all, "KernosisControllerAbsent")) != 0 || len(named(all, "KernosisAgentsAbsent")) != 1 {
		t.Errorf("%v", spec)
	}
}

// ownRules are rules of each form that the values may contain.
const ownRules = `apiVersion: rules.kernosis.io/v1
conditions:
  Broken: {healthyReason: Whole, healthyMessage: whole}
  Checked: {healthyReason: Fine, healthyMessage: fine}
  Leaky: {healthyReason: Tight, healthyMessage: tight}
rules:
- {name: bent, events: [oomkill], condition: Broken, reason: Bent, message: m, latched: true, severity: critical, doc: "https://wiki.example/bent"}
- {name: torn, events: [oomkill], condition: Broken, reason: Torn, message: m, latched: true, severity: critical}
- {name: worn, events: [oomkill], condition: Broken, reason: Worn, message: m, latched: true}
- {name: checked, events: [check], condition: Checked, reason: Failed, message: m, latched: true}
- {name: checked-badly, events: [oomkill], condition: Checked, reason: Worse, message: m, latched: true, severity: critical}
- {name: noticed, events: [check], reason: Noticed, message: m}
- {name: leaks, events: [oomkill], condition: Leaky, reason: Leaks, message: m, latched: true, severityWhen: {info: event.scope == "memcg", critical: event.scope == "global"}}
- {name: leaks-too, events: [oomkill], condition: Leaky, reason: Holed, message: m, latched: true, severity: critical}
- {name: killed, events: [oomkill], reason: Killed, message: m, severity: critical, severityWhen: {warning: event.scope == "memcg"}}
- {name: task-hung, extends: task-hung, severityWhen: {critical: 'task.comm == "etcd"'}}
- {name: creaks, events: [oomkill], reason: Creaks, message: m, severity: info, doc: runbooks/Creaks}
- {name: creaks-too, events: [diskio], reason: Creaks, message: m, severity: critical, doc: runbooks/Creaks}
- {name: broken, events: [diskio], reason: Broken, message: m, severity: critical}
- {name: disk-io-error, extends: disk-io-error, severity: critical}
- {name: oom-kill-of-database, extends: oom-kill, reason: DatabaseKilled, when: 'task.comm == "postgres"'}
`

// Rules in the values get the same alerts as from "kernosis rules alerts", and no other alert
// covers their conditions.
func TestOwnRulesHaveAlerts(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "own.yaml"), []byte(ownRules), 0o600); err != nil {
		t.Fatal(err)
	}
	set, err := detector.Load(detector.Shipped(), os.DirFS(dir))
	if err != nil {
		t.Fatal(err)
	}
	file, err := monitoring.AlertsOf(set, monitoring.AlertConfig{RunbookBase: "https://wiki.example.com/k", AgentJob: monitoring.DefaultAgentJob})
	if err != nil {
		t.Fatal(err)
	}
	values, err := yaml.Marshal(map[string]any{
		"rules":      map[string]any{"own.yaml": ownRules},
		"monitoring": map[string]any{"rules": map[string]any{"enabled": true, "runbookBaseURL": "https://wiki.example.com/k/", "alerts": map[string]any{"DatabaseKilled": map[string]any{"for": "1m"}}}},
	})
	if err != nil {
		t.Fatal(err)
	}
	got := alertsOf(t, ruleOf(t, string(values)))
	of := func(name, severity string) map[string]any {
		for _, a := range named(got, name) {
			if text(a, "labels", "severity") == severity {
				return a
			}
		}
		return nil
	}
	wanted := []string{"Broken critical", "Broken warning", "Checked warning", "Checked critical", "Noticed warning", "Leaky info", "Leaky warning", "Leaky critical", "Killed warning", "Killed critical", "TaskHung critical", "Creaks critical", "BrokenRepeated critical", "DatabaseKilled warning"}
	for _, g := range file.Groups {
		for i := range g.Rules {
			want, err := runtime.DefaultUnstructuredConverter.ToUnstructured(&g.Rules[i])
			if err != nil {
				t.Fatal(err)
			}
			name, severity := g.Rules[i].Alert, g.Rules[i].Labels["severity"]
			i := slices.Index(wanted, name+" "+severity)
			if i < 0 {
				continue
			}
			wanted = slices.Delete(wanted, i, i+1)
			a := of(name, severity)
			if a == nil {
				t.Errorf("%s: no alert", name)
				continue
			}
			if a["alert"] != name || a["expr"] != text(want, "Expr") || !reflect.DeepEqual(a["annotations"], want["Annotations"]) || !reflect.DeepEqual(a["labels"], want["Labels"]) {
				t.Errorf("%s:\n%v\nwant\n%v", name, a, want)
			}
		}
	}
	if len(wanted) > 0 {
		t.Errorf("monitoring.AlertsOf does not make %v", wanted)
	}
	if a := named(got, "DatabaseKilled"); len(a) != 1 || a[0]["for"] != "1m" {
		t.Errorf("DatabaseKilled: %v", a)
	}
	if a := named(got, "DiskIOError"); len(a) != 1 || len(named(got, "Creaks")) != 1 {
		t.Errorf("DiskIOError: %v", a)
	}
	if a := named(got, "KernosisOtherCondition"); len(a) != 1 || !strings.Contains(text(a[0], "expr"), `type!~"Broken|Checked|Leaky|APIServerUnreachable|`) {
		t.Errorf("KernosisOtherCondition: %v", a)
	}
}
