package monitoring_test

import (
	"bytes"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"go.yaml.in/yaml/v4"

	"github.com/kernosis/kernosis/deploy/monitoring"
	"github.com/kernosis/kernosis/vmtest/testenv"
)

// oneCase is a case of tests/kernosis.yaml: whether an alert fires with some series.
type oneCase struct {
	Alert  string            `yaml:"alert"`
	Labels map[string]string `yaml:"labels"`
	Fires  []string          `yaml:"fires"`
	Quiet  []string          `yaml:"quiet"`
	Series map[string]string `yaml:"series"`

	severity string // empty for any
}

// The format of promtool's tests.
type (
	unitTests struct {
		RuleFiles          []string   `yaml:"rule_files"`
		EvaluationInterval string     `yaml:"evaluation_interval"`
		Tests              []unitTest `yaml:"tests"`
	}
	unitTest struct {
		Name        string        `yaml:"name"`
		Interval    string        `yaml:"interval"`
		InputSeries []inputSeries `yaml:"input_series"`
		Alerts      []alertTest   `yaml:"alert_rule_test,omitempty"`
		Queries     []queryTest   `yaml:"promql_expr_test,omitempty"`
	}
	inputSeries struct {
		Series string `yaml:"series"`
		Values string `yaml:"values"`
	}
	alertTest struct {
		EvalTime string     `yaml:"eval_time"`
		Name     string     `yaml:"alertname"`
		Expected []expected `yaml:"exp_alerts"`
	}
	expected struct {
		Labels      map[string]string `yaml:"exp_labels"`
		Annotations map[string]string `yaml:"exp_annotations"`
	}
	queryTest struct {
		Expr     string   `yaml:"expr"`
		EvalTime string   `yaml:"eval_time"`
		Samples  []sample `yaml:"exp_samples"`
	}
	sample struct {
		Labels string  `yaml:"labels"`
		Value  float64 `yaml:"value"`
	}
)

// unit returns a promtool test for a case: whether the alert fires. Its texts are checked by the
// tests of rules' alerts, where they are the same for all.
func (c *oneCase) unit() unitTest {
	u := unitTest{Name: fmt.Sprint(c.Alert, " ", c.Labels), Interval: "1m"}
	for _, s := range slices.Sorted(maps.Keys(c.Series)) {
		u.InputSeries = append(u.InputSeries, inputSeries{s, c.Series[s]})
	}
	labels := fmt.Sprintf("alertname=%q, alertstate=\"firing\"", c.Alert)
	if c.severity != "" {
		labels += fmt.Sprintf(", severity=%q", c.severity)
	}
	every := fmt.Sprintf("sum by (alertname) (ALERTS{%s})", labels)
	all := []string{labels}
	for _, l := range slices.Sorted(maps.Keys(c.Labels)) {
		all = append(all, fmt.Sprintf("%s=%q", l, c.Labels[l]))
	}
	labels = strings.Join(all, ", ")
	is := []sample{{fmt.Sprintf("{alertname=%q}", c.Alert), 1}}
	for _, at := range c.Fires {
		u.Queries = append(u.Queries,
			queryTest{fmt.Sprintf("sum by (alertname) (ALERTS{%s})", labels), at, is},
			queryTest{every, at, is}) // and no other alert fires
	}
	for _, at := range c.Quiet {
		u.Queries = append(u.Queries, queryTest{every, at, []sample{}})
	}
	return u
}

// run runs promtool on the tests, by alert name. Each test gets only its own alerts, because a
// hundred others would take a hundred times as long.
func run(t *testing.T, f *monitoring.AlertFile, tests map[string][]unitTest) {
	t.Helper()
	promtool, dir := testenv.FindProgram(t, "promtool"), t.TempDir()
	encoded := func(v any) string {
		text, err := yaml.Marshal(v)
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	args := []string{"test", "rules"}
	for _, name := range slices.Sorted(maps.Keys(tests)) {
		group := monitoring.AlertGroup{Name: "alerts"}
		each(f, func(_ string, a *monitoring.Alert) {
			if a.Alert == name {
				group.Rules = append(group.Rules, *a)
			}
		})
		rules := filepath.Join(dir, name+".rules.yaml")
		write(t, rules, encoded(monitoring.AlertFile{Groups: []monitoring.AlertGroup{group}}))
		file := filepath.Join(dir, name+".yaml")
		write(t, file, encoded(unitTests{RuleFiles: []string{rules}, EvaluationInterval: "1m", Tests: tests[name]}))
		args = append(args, file)
	}
	if out, err := exec.CommandContext(t.Context(), promtool, args...).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
}

func ownCases(t *testing.T) []oneCase {
	t.Helper()
	var all []oneCase
	dec := yaml.NewDecoder(bytes.NewReader([]byte(readFile(t, "deploy/monitoring/tests/kernosis.yaml"))))
	dec.KnownFields(true)
	if err := dec.Decode(&all); err != nil {
		t.Fatal(err)
	}
	return all
}

// Each alert on Kernosis itself fires exactly when it should.
func TestOwnAlertsFire(t *testing.T) {
	all := ownCases(t)
	fires, quiet := map[string]bool{}, map[string]bool{}
	tests := map[string][]unitTest{}
	for i := range all {
		c := &all[i]
		fires[c.Alert] = fires[c.Alert] || len(c.Fires) > 0
		quiet[c.Alert] = quiet[c.Alert] || len(c.Quiet) > 0
		tests[c.Alert] = append(tests[c.Alert], c.unit())
	}
	each(shipped(t), func(_ string, a *monitoring.Alert) {
		if strings.Contains(a.Annotations["runbook_url"], "/runbooks/Kernosis") && (!fires[a.Alert] || !quiet[a.Alert]) {
			t.Errorf("%s: no case in which it fires, or none in which it does not", a.Alert)
		}
		delete(fires, a.Alert)
	})
	for name := range fires {
		t.Errorf("%s: there is no such alert", name)
	}
	run(t, shipped(t), tests)
}

// Each alert generated from a rule fires for each of its reasons, and its texts name the problem.
func TestAlertsOfRulesFire(t *testing.T) {
	tests := map[string][]unitTest{}
	each(shipped(t), func(group string, a *monitoring.Alert) {
		switch group {
		case "kernosis-conditions":
			if a.Alert == "KernosisOtherCondition" {
				return // covered by TestOwnAlertsFire
			}
			m := regexp.MustCompile(`problem_gauge\{type="(\w+)"(?:, reason(=~|!~)"([\w|]+)")?\}`).FindStringSubmatch(a.Expr)
			if m == nil {
				t.Fatalf("%s: %s", a.Alert, a.Expr)
			}
			reasons := m[3]
			if m[2] != "=~" {
				reasons = "AnyReason" // reported by a check
			}
			for reason := range strings.SplitSeq(reasons, "|") {
				tests[a.Alert] = append(tests[a.Alert], conditionTest(a, m[1], reason))
			}
		case "kernosis-problems":
			m := regexp.MustCompile(`problem_counter\{reason="(\w+)"\}`).FindStringSubmatch(a.Expr)
			if m == nil {
				t.Fatalf("%s: %s", a.Alert, a.Expr)
			}
			tests[a.Alert] = append(tests[a.Alert], problemTest(t, a, m[1])...)
		}
	})
	if len(tests) < 50 {
		t.Errorf("%d tests", len(tests))
	}
	run(t, shipped(t), tests)
}

// Alerts on rules whose reason or severity depends on the event fire for any reason, and each for
// its severity only.
func TestAlertsByRuleFire(t *testing.T) {
	occurs := func(rule, reason, severity string) string {
		return fmt.Sprintf(`kernosis_problem_occurrences_total{node="n7", rule=%q, reason=%q, severity=%q, instance="i"}`, rule, reason, severity)
	}
	leaky := map[string]string{
		`problem_gauge{node="n7", type="Leaky", reason="Leaks", instance="i"}`:                                       "1x60",
		`kernosis_problem_info{node="n7", rule="leaks", reason="Leaks", severity="info", subject="a", instance="i"}`: "1x60",
		// The severity rises.
		`kernosis_problem_info{node="n7", rule="leaks", reason="Leaks", severity="warning", subject="b", instance="i"}`:  "_x20 1x5 stale 1x2 _x40",
		`kernosis_problem_info{node="n7", rule="leaks", reason="Leaks", severity="critical", subject="b", instance="i"}`: "_x30 1x40",
	}
	tests := map[string][]unitTest{}
	for _, c := range []oneCase{
		{Alert: "Noticed", severity: "warning", Labels: map[string]string{"node": "n7", "reason": "XidSeen"}, Fires: []string{"6m"}, Quiet: []string{"3m", "90m"}, Series: map[string]string{occurs("noticed", "XidSeen", "warning"): "_x4 5x100"}},
		{Alert: "Noticed", severity: "warning", Labels: map[string]string{"node": "n7", "reason": "XidSeen"}, Fires: []string{"12m"}, Quiet: []string{"6m", "90m"}, Series: map[string]string{occurs("noticed", "XidSeen", "warning"): "_x4 1x4 6x100"}},
		{Alert: "Noticed", Quiet: []string{"6m"}, Series: map[string]string{occurs("noticed", "XidSeen", "warning"): "_x4 4x100", occurs("other", "XidSeen", "warning"): "_x4 9x100"}},
		{Alert: "Killed", severity: "critical", Labels: map[string]string{"node": "n7", "reason": "Killed"}, Fires: []string{"6m"}, Quiet: []string{"3m", "30m"}, Series: map[string]string{occurs("killed", "Killed", "critical"): "_x4 1x100", occurs("killed", "Killed", "warning"): "_x4 4x100"}},
		{Alert: "Killed", severity: "warning", Quiet: []string{"6m"}, Series: map[string]string{occurs("killed", "Killed", "critical"): "_x4 9x100"}},
		{Alert: "Leaky", severity: "info", Fires: []string{"20m", "50m"}, Labels: map[string]string{"node": "n7", "type": "Leaky", "reason": "Leaks"}, Series: leaky},
		{Alert: "Leaky", severity: "warning", Fires: []string{"26m", "28m"}, Quiet: []string{"15m", "50m"}, Labels: map[string]string{"node": "n7", "type": "Leaky", "reason": "Leaks"}, Series: leaky},
		{Alert: "Leaky", severity: "critical", Fires: []string{"50m"}, Quiet: []string{"28m"}, Labels: map[string]string{"node": "n7", "type": "Leaky", "reason": "Leaks"}, Series: leaky},
	} {
		tests[c.Alert] = append(tests[c.Alert], c.unit())
	}
	run(t, ofOwnRules(t), tests)
}

// says returns the expected texts of an alert for labels and a value; affected is the expected list
// of affected objects.
func says(a *monitoring.Alert, labels map[string]string, value, affected string) []expected {
	all := maps.Clone(a.Labels)
	replace := []string{`{{ $value | printf "%.0f" }}`, value}
	for name, v := range labels {
		replace = append(replace, "{{ $labels."+name+" }}", v)
		all[name] = v
	}
	to := map[string]string{}
	for name, text := range a.Annotations {
		if name == monitoring.Description {
			text, _, _ = strings.Cut(text, "{{ with printf")
			text += affected
		}
		to[name] = strings.NewReplacer(replace...).Replace(text)
	}
	return []expected{{all, to}}
}

// conditionTest returns a test with a condition that is True for longer and for shorter than the
// alert's duration, while the agent's pod is replaced, and one that is True for another reason. The
// alert must name what is affected, once for two rules.
func conditionTest(a *monitoring.Alert, condition, reason string) unitTest {
	gauge := func(node, reason, pod string) string {
		return fmt.Sprintf(`problem_gauge{node=%q, type=%q, reason=%q, pod=%q, instance="%s:20257"}`, node, condition, reason, pod, pod)
	}
	labels := map[string]string{"node": "n7", "type": condition, "reason": reason}
	info := func(node, rule, subject string) inputSeries {
		return inputSeries{fmt.Sprintf(`kernosis_problem_info{node=%q, reason=%q, rule=%q, subject=%q}`, node, reason, rule, subject), "0x4 1x60"}
	}
	other := "1x60"
	if !strings.Contains(a.Expr, "reason=~") {
		other = "0x60" // the alert matches any reason
	}
	fires := says(a, labels, "", " Affected: nvme0n1, pod shop/web-1.")
	return unitTest{
		Name: a.Alert + " " + reason, Interval: "1m",
		InputSeries: []inputSeries{
			{gauge("n7", reason, "a"), "0x4 1x10 stale"}, {gauge("n7", reason, "b"), "_x17 1x30 0x30"},
			{gauge("n8", "Else", "c"), other},
			info("n7", "a", "pod shop/web-1"), info("n7", "b", "pod shop/web-1"), info("n7", "a", "nvme0n1"), info("n8", "a", "sdb"), info("n7", "c", ""),
		},
		Alerts: []alertTest{
			{"5m", a.Alert, []expected{}}, // not before its duration has passed
			{"15m", a.Alert, fires},
			{"16m", a.Alert, fires}, // neither pod is scraped
			{"17m", a.Alert, fires},
			{"25m", a.Alert, fires},
			{"48m", a.Alert, []expected{}},
		},
	}
}

// problemTest returns tests with a problem that occurs as often as the alert requires, and once
// less.
func problemTest(t *testing.T, a *monitoring.Alert, reason string) []unitTest {
	t.Helper()
	often := map[string]int{"critical": 1, "warning": 5, "info": 20}[a.Labels["severity"]]
	if !strings.Contains(a.Expr, fmt.Sprintf(">= %d", often)) {
		t.Errorf("%s: %s", a.Alert, a.Expr)
	}
	counter := fmt.Sprintf(`problem_counter{node="n7", reason=%q, pod="a", instance="i"}`, reason)
	times := strconv.Itoa(often)
	seldom := unitTest{Name: a.Alert + " seldom", Interval: "25s", InputSeries: []inputSeries{{counter, fmt.Sprintf("10x20 %dx100", 10+often-1)}}}
	first := 1
	if often == 1 {
		first = 16 // until then the counter's first value may be a problem before the first scrape
	}
	for at := first; at <= 25; at++ {
		seldom.Alerts = append(seldom.Alerts, alertTest{fmt.Sprintf("%dm", at), a.Alert, []expected{}})
	}
	all := []unitTest{
		{
			Name: a.Alert + " often", Interval: "1m", InputSeries: []inputSeries{{counter, "0x4 " + times + "x100"}},
			Alerts: []alertTest{
				{"4m", a.Alert, []expected{}},
				{"6m", a.Alert, says(a, map[string]string{"node": "n7", "reason": reason}, times, "")},
				{"90m", a.Alert, []expected{}},
			},
		},
		seldom,
	}
	if often == 1 { // the agent may start only after the problem, so that its series starts at 1
		all = append(all, unitTest{
			Name: a.Alert + " before the first look", Interval: "1m", InputSeries: []inputSeries{{counter, "_x4 1x100"}},
			Alerts: []alertTest{
				{"6m", a.Alert, says(a, map[string]string{"node": "n7", "reason": reason}, "1", "")},
				{"30m", a.Alert, []expected{}},
			},
		}, unitTest{
			Name: a.Alert + " before a failed scrape", Interval: "1m", InputSeries: []inputSeries{{counter, "1x29 stale 1x60"}},
			Alerts: []alertTest{{"30m", a.Alert, []expected{}}, {"44m", a.Alert, []expected{}}, {"45m", a.Alert, []expected{}}, {"46m", a.Alert, []expected{}}},
		})
	}
	return all
}

func write(t testing.TB, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}
