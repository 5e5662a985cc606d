package lint_test

import (
	"testing"

	"github.com/kernosis/kernosis/detector/lint"
	"github.com/kernosis/kernosis/detector/npd"
)

const alerts = `
apiVersion: monitoring.coreos.com/v1
kind: PrometheusRule
spec:
  groups:
  - name: nodes
    rules:
    - {alert: Right, expr: 'problem_gauge{type="XfsShutdown", reason="XfsHasShutdown"} == 1'}
    - {alert: Healthy, expr: 'problem_gauge{type="XfsShutdown",reason="XfsHasNotShutDown"} == 0'}
    - {alert: Kubernetes, expr: 'kube_node_status_condition{condition="Ready",status="true"} == 0'}
    - {alert: NeverFires, expr: 'kube_node_status_condition{condition="XfsHasShutdown",status="true"} == 1'}
    - alert: Multiline
      expr: |
        # problem_counter{reason="Commented"}
        sum by (node) (
          rate(problem_counter{job=~"npd|kernosis", reason = "KernelDeadlock"}[5m])
        ) > 0 and on() label_replace(x, "a", "{reason=\"Quoted\"}", "b", "c")
    - {alert: Typo, expr: 'problem_counter{reason="OOMKiling"} > 0'}
    - {alert: Alternatives, expr: 'problem_counter{reason=~"(OOMKilling|Ext5Error)"}'}
    - {alert: Expression, expr: '{__name__="problem_counter",reason=~"Cper.*"} or problem_counter{reason=~"Zfs.*"}'}
    - {alert: Negative, expr: 'problem_counter{reason!="Nothing",reason!~"No.*"}'}
    - {alert: Mixed, expr: 'problem_gauge{type="KernelDeadlock",reason="XfsHasShutdown"}'}
    - {record: other, expr: 'up{condition="x"} + problem_counter{reason='}
`

func TestAlerts(t *testing.T) {
	list, err := lint.ParseAlerts("alerts.yaml", []byte(alerts))
	if err != nil {
		t.Fatal(err)
	}
	var rules lint.Input
	rules.FromNPD([]*npd.File{load(t, "kernel-monitor.json")})
	for i := range rules.Rules {
		rules.Rules[i].Context = true
	}
	rules.Alerts = list
	var got []string
	for _, f := range lint.Check(rules, shipped(t), lint.DefaultKernels()) {
		got = append(got, f.String())
	}
	diff(t, []string{
		`alerts.yaml:11: error: NeverFires: kube_node_status_condition{condition="XfsHasShutdown"}: XfsHasShutdown is a reason; the condition is XfsShutdown [alert-on-reason]`,
		`alerts.yaml:13: error: Multiline: problem_counter{reason="KernelDeadlock"}: KernelDeadlock is a condition; its reason is DockerHung [alert-on-condition]`,
		`alerts.yaml:18: warning: Typo: problem_counter{reason="OOMKiling"}: no rule has a reason OOMKiling, did you mean "OOMKilling"? [alert-unknown]`,
		`alerts.yaml:19: warning: Alternatives: problem_counter{reason="Ext5Error"}: no rule has a reason Ext5Error, did you mean "Ext4Error"? [alert-unknown]`,
		`alerts.yaml:20: warning: Expression: problem_counter{reason="Zfs.*"}: no rule has a reason Zfs.* [alert-unknown]`,
		`alerts.yaml:22: error: Mixed: no rule sets condition KernelDeadlock with reason XfsHasShutdown [alert-combination]`,
	}, got)
}

func TestAlertsOfNoPrometheus(t *testing.T) {
	for content, want := range map[string]string{
		"a: b":      "a.yaml:1: no groups: this is not a Prometheus rule file",
		"groups: x": "a.yaml:1: no groups: this is not a Prometheus rule file",
		"":          "a.yaml: file is empty",
		"{":         "",
	} {
		_, err := lint.ParseAlerts("a.yaml", []byte(content))
		if err == nil || want != "" && err.Error() != want {
			t.Errorf("%q: %v", content, err)
		}
	}
}

// FuzzAlerts: any file gives an error or a list, in bounded time.
func FuzzAlerts(f *testing.F) {
	f.Add([]byte(alerts))
	for _, s := range []string{`a{b="c`, `{{{`, "a{b='\\'',c=~`|`}", `problem_gauge{type=~"(", reason=~"[a-z"}`, `{__name__="problem_counter",reason="\xff"}`} {
		f.Add([]byte("groups: [{rules: [{alert: a, expr: " + s + "}]}]"))
		f.Add([]byte("groups:\n- rules:\n  - expr: >-\n      " + s))
	}
	corpus, err := lint.Shipped()
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		list, err := lint.ParseAlerts("f.yaml", data)
		if err != nil {
			return
		}
		in := lint.Input{Alerts: list, Conditions: []lint.Condition{{Type: "A"}}, Rules: []lint.Rule{{Reason: "B", Condition: "A", Context: true}}}
		for _, found := range lint.Check(in, corpus, lint.DefaultKernels()) {
			if found.File != "f.yaml" || found.Line < 1 || found.Message == "" {
				t.Fatalf("%+v", found)
			}
		}
	})
}
