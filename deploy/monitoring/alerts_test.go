package monitoring_test

import (
	"bytes"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"go.yaml.in/yaml/v4"

	"github.com/kernosis/kernosis/deploy/monitoring"
	"github.com/kernosis/kernosis/detector"
	"github.com/kernosis/kernosis/vmtest/testenv"
)

var update = flag.Bool("update", false, "write the table of docs/monitoring.md")

const committed = "deploy/chart/kernosis/files/alerts.yaml"

// shipped returns the committed alerts, without the links that the chart replaces.
func shipped(t testing.TB) *monitoring.AlertFile {
	t.Helper()
	var f monitoring.AlertFile
	dec := yaml.NewDecoder(strings.NewReader(readFile(t, committed)))
	dec.KnownFields(true)
	if err := dec.Decode(&f); err != nil {
		t.Fatal(err)
	}
	each(&f, func(_ string, a *monitoring.Alert) { delete(a.Annotations, monitoring.DashboardURL) })
	return &f
}

func each(f *monitoring.AlertFile, do func(group string, a *monitoring.Alert)) {
	for i := range f.Groups {
		for j := range f.Groups[i].Rules {
			do(f.Groups[i].Name, &f.Groups[i].Rules[j])
		}
	}
}

// Each alert has all required fields, uses existing metrics and labels, and links to an existing
// page.
func TestAlerts(t *testing.T) {
	catalog := readCatalog(t)
	seen := map[string]bool{}
	each(shipped(t), func(group string, a *monitoring.Alert) {
		key := a.Alert + " " + a.Labels["severity"]
		if seen[key] {
			t.Errorf("%s: twice", key)
		}
		seen[key] = true
		if !slices.Contains([]string{"info", "warning", "critical"}, a.Labels["severity"]) || a.Labels["app"] != "kernosis" || len(a.Labels) != 2 {
			t.Errorf("%s: labels %v", a.Alert, a.Labels)
		}
		if !regexp.MustCompile(`^[A-Z][A-Za-z0-9]+$`).MatchString(a.Alert) || !strings.HasPrefix(group, "kernosis-") {
			t.Errorf("group %s, alert %s", group, a.Alert)
		}
		labels := checkUses(t, catalog, a.Alert, a.Expr)
		if regexp.MustCompile(`[\w}] offset`).MatchString(a.Expr) {
			t.Errorf("%s: a single earlier sample may be missing after a failed scrape: %s", a.Alert, a.Expr)
		}
		if strings.Contains(a.Expr, "increase(") && strings.Contains(a.Annotations["description"], "$value | humanize") {
			t.Errorf("%s: increase() is not a whole number: %s", a.Alert, a.Annotations["description"])
		}
		for _, name := range []string{"summary", "description", "command"} {
			text := a.Annotations[name]
			if text == "" || strings.Contains(text, "\n") || strings.Contains(text, "$pod") {
				t.Errorf("%s: %s %q", a.Alert, name, text)
			}
			for _, l := range regexp.MustCompile(`\$labels\.(\w+)`).FindAllStringSubmatch(text, -1) {
				if l[1] != "cluster" && !slices.Contains(labels, l[1]) && !strings.Contains(text, "with $labels."+l[1]) {
					t.Errorf("%s: %s uses the label %s, which nothing in its expression has", a.Alert, name, l[1])
				}
			}
		}
		page, ok := strings.CutPrefix(a.Annotations["runbook_url"], monitoring.Docs)
		if !ok {
			t.Errorf("%s: runbook_url %q", a.Alert, a.Annotations["runbook_url"])
			return
		}
		text := readFile(t, "docs/"+page)
		if !strings.HasPrefix(text, "# "+strings.TrimSuffix(filepath.Base(page), ".md")+"\n") {
			t.Errorf("docs/%s has another title", page)
		}
	})
}

// promtool accepts the file without warnings.
func TestPromtoolReadsTheFile(t *testing.T) {
	promtool := testenv.FindProgram(t, "promtool")
	out, err := exec.CommandContext(t.Context(), promtool, "check", "rules", "--lint=all", "--lint-fatal", filepath.Join("../..", committed)).CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	t.Logf("%s", out)
}

// The output is deterministic; another base URL, or none, is used.
func TestConfig(t *testing.T) {
	set, err := detector.Load(detector.Shipped())
	if err != nil {
		t.Fatal(err)
	}
	text := func(cfg monitoring.AlertConfig) []byte {
		t.Helper()
		f, err := monitoring.AlertsOf(set, cfg)
		if err != nil {
			t.Fatal(err)
		}
		b, err := f.Encode()
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	cfg := monitoring.AlertConfig{RunbookBase: "https://wiki.example/kernosis", AgentJob: `a"b\d`, ControllerJob: "c"}
	first := text(cfg)
	if !bytes.Equal(first, text(cfg)) {
		t.Error("the same rules give another text")
	}
	for _, want := range []string{"https://wiki.example/kernosis/problems/OOMKilling.md", "https://wiki.example/kernosis/runbooks/KernosisAgentDown.md", `job=~"a\"b\\d"`, `job=~"c"`} {
		if !strings.Contains(string(first), want) {
			t.Errorf("no %s", want)
		}
	}
	if none := text(monitoring.AlertConfig{}); bytes.Contains(none, []byte("runbook_url")) || bytes.Contains(none, []byte("dashboard_url")) {
		t.Error("a link without a base")
	}
}

// With Grafana's address each alert links to a dashboard that exists, with the values of its
// variables.
func TestDashboardLinks(t *testing.T) {
	set, err := detector.Load(detector.Shipped())
	if err != nil {
		t.Fatal(err)
	}
	f, err := monitoring.AlertsOf(set, monitoring.AlertConfig{DashboardBase: "https://grafana.example/", ControllerJob: "c"})
	if err != nil {
		t.Fatal(err)
	}
	variables := map[string][]string{}
	for _, d := range readDashboards(t) {
		for _, v := range d.Templating.List {
			variables[d.UID] = append(variables[d.UID], v.Name)
		}
	}
	of := map[string]string{}
	each(f, func(_ string, a *monitoring.Alert) {
		m := regexp.MustCompile(`^https://grafana\.example/d/([a-z-]+)(.*)$`).FindStringSubmatch(a.Annotations["dashboard_url"])
		if m == nil || variables[m[1]] == nil {
			t.Fatalf("%s: dashboard_url %q", a.Alert, a.Annotations["dashboard_url"])
		}
		of[a.Alert] = m[1]
		for _, v := range regexp.MustCompile(`[?&]var-(\w+)=`).FindAllStringSubmatch(m[2], -1) {
			if !slices.Contains(variables[m[1]], v[1]) {
				t.Errorf("%s: %s has no variable %s", a.Alert, m[1], v[1])
			}
		}
		if !strings.Contains(m[2], "var-cluster") || strings.Contains(m[2], "var-node") != (m[1] == "kernosis-node") {
			t.Errorf("%s: %s", a.Alert, m[2])
		}
	})
	for alert, want := range map[string]string{
		"DiskUnhealthy": "kernosis-node", "OOMKilling": "kernosis-node", "KernosisSourceDown": "kernosis-node",
		"KernosisControllerAbsent": "kernosis-self", "KernosisRepairFailed": "kernosis-diagnosis",
	} {
		if of[alert] != want {
			t.Errorf("%s links to %q, want %q", alert, of[alert], want)
		}
	}
}

// ownRules are rules of each form that affects an alert.
const ownRules = `apiVersion: rules.kernosis.io/v1
conditions:
  Broken: {healthyReason: Whole, healthyMessage: whole}
  Checked: {healthyReason: Fine, healthyMessage: fine}
  Leaky: {healthyReason: Tight, healthyMessage: tight}
rules:
- {name: bent, events: [oomkill], condition: Broken, reason: Bent, message: m, latched: true, severity: info, doc: problems/Broken}
- {name: torn, events: [oomkill], condition: Broken, reason: Torn, message: m, latched: true, severity: critical}
- {name: torn-too, events: [oomkill], condition: Broken, reason: Torn, message: m, latched: true, severity: warning}
- {name: checked, events: [check], condition: Checked, reason: Failed, message: m, latched: true}
- {name: checked-badly, events: [oomkill], condition: Checked, reason: Worse, message: m, latched: true, severity: critical}
- {name: leaks, events: [oomkill], condition: Leaky, reason: Leaks, message: m, latched: true, severityWhen: {info: event.scope == "memcg", critical: event.scope == "global"}}
- {name: noticed, events: [check], reason: Noticed, message: m}
- {name: killed, events: [oomkill], reason: Killed, message: m, severityWhen: {critical: event.scope == "global"}}
- {name: creaks, events: [oomkill], reason: Creaks, message: m, severity: info}
- {name: creaks-too, events: [diskio], reason: Creaks, message: m, severity: warning, doc: "https://wiki.example/creaks"}
- {name: again, events: [diskio], reason: Broken, message: m, severity: critical}
`

// ofOwnRules returns the alerts on [ownRules].
func ofOwnRules(t *testing.T) *monitoring.AlertFile {
	t.Helper()
	dir := t.TempDir()
	write(t, filepath.Join(dir, "r.yaml"), ownRules)
	set, err := detector.LoadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	f, err := monitoring.AlertsOf(set, monitoring.AlertConfig{RunbookBase: "b"})
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// The fields of rules determine their alerts.
func TestAlertsOfRules(t *testing.T) {
	f := ofOwnRules(t)
	got := map[string]monitoring.Alert{}
	for _, g := range f.Groups[:2] {
		for _, a := range g.Rules {
			got[a.Alert+" "+a.Labels["severity"]] = a
		}
	}
	for name, want := range map[string]struct{ expr, lasts, runbook string }{
		"Broken critical":                {`max without (instance, pod, uid) (last_over_time(problem_gauge{type="Broken", reason=~"Torn"}[5m])) == 1`, "1m", "b/problems/Broken.md"},
		"Broken info":                    {`max without (instance, pod, uid) (last_over_time(problem_gauge{type="Broken", reason=~"Bent"}[5m])) == 1`, "15m", "b/problems/Broken.md"},
		"Checked warning":                {`max without (instance, pod, uid) (last_over_time(problem_gauge{type="Checked", reason!~"Worse"}[5m])) == 1`, "5m", ""},
		"Checked critical":               {`max without (instance, pod, uid) (last_over_time(problem_gauge{type="Checked", reason=~"Worse"}[5m])) == 1`, "1m", ""},
		"BrokenRepeated critical":        {`sum without (instance, pod, uid) (increase(problem_counter{reason="Broken"}[15m])) >= 1` + "\nor\n" + `sum without (instance, pod, uid) (problem_counter{reason="Broken"} unless last_over_time(problem_counter{reason="Broken"}[1h] offset 15m)) >= 1`, "", ""},
		"Leaky info":                     {`max without (instance, pod, uid) (last_over_time(problem_gauge{type="Leaky", reason=~"Leaks"}[5m])) == 1`, "15m", ""},
		"Leaky warning":                  {`max without (instance, pod, uid) (last_over_time(problem_gauge{type="Leaky"}[5m])) == 1 and on (cluster, node, reason) last_over_time(kernosis_problem_info{rule=~"leaks", severity="warning"}[5m])`, "5m", ""},
		"Leaky critical":                 {`max without (instance, pod, uid) (last_over_time(problem_gauge{type="Leaky"}[5m])) == 1 and on (cluster, node, reason) last_over_time(kernosis_problem_info{rule=~"leaks", severity="critical"}[5m])`, "1m", ""},
		"Killed critical":                {counted(`rule=~"killed", severity="critical"`, 1), "", ""},
		"Killed warning":                 {counted(`rule=~"killed", severity="warning"`, 5), "", ""},
		"Noticed warning":                {counted(`rule=~"noticed", severity="warning"`, 5), "", ""},
		"Creaks warning":                 {`sum without (instance, pod, uid) (increase(problem_counter{reason="Creaks"}[15m])) >= 5`, "", "https://wiki.example/creaks"},
		"KernosisOtherCondition warning": {`max without (instance, pod, uid) (last_over_time(problem_gauge{type!~"Broken|Checked|Leaky"}[5m])) == 1`, "5m", "b/runbooks/KernosisOtherCondition.md"},
	} {
		a, ok := got[name]
		if !ok || a.Expr != want.expr || a.For != want.lasts || a.Annotations["runbook_url"] != want.runbook {
			t.Errorf("%s: %+v", name, a)
		}
		delete(got, name)
	}
	for name := range got {
		t.Errorf("unexpected alert %s", name)
	}
}

// counted returns the expression for occurrences of rules within 15 minutes.
func counted(selector string, often int) string {
	series := "kernosis_problem_occurrences_total{" + selector + "}"
	return fmt.Sprintf("sum without (instance, pod, uid, rule, severity) (increase(%[1]s[15m])) >= %[2]d\nor\nsum without (instance, pod, uid, rule, severity) (%[1]s unless last_over_time(%[1]s[1h] offset 15m)) >= %[2]d", series, often)
}

// TestAlertTable compares the table in docs/monitoring.md with the file.
func TestAlertTable(t *testing.T) {
	const end = "<!-- end of alerts -->"
	page := readFile(t, "docs/monitoring.md")
	head, rest, begun := strings.Cut(page, "<!-- alerts")
	mark, rest, marked := strings.Cut(rest, "-->\n")
	_, tail, ended := strings.Cut(rest, end)
	if !begun || !marked || !ended {
		t.Fatal("docs/monitoring.md: no marks for the table")
	}
	var b strings.Builder
	b.WriteString("| alert | severity | after |\n|---|---|---|\n")
	each(shipped(t), func(_ string, a *monitoring.Alert) {
		page := strings.TrimPrefix(a.Annotations["runbook_url"], monitoring.Docs)
		b.WriteString("| [" + a.Alert + "](" + page + ") | " + a.Labels["severity"] + " | " + a.For + " |\n")
	})
	want := head + "<!-- alerts" + mark + "-->\n" + b.String() + end + tail
	if *update {
		if err := os.WriteFile(filepath.Join(testenv.Checkout(t), "docs/monitoring.md"), []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
	} else if want != page {
		t.Error("the table of docs/monitoring.md is out of date: run with -update")
	}
}
