package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/kernosis/kernosis/cmd/kernosis/output"
	"github.com/kernosis/kernosis/detector/lint"
)

const npdConfigs = "../../detector/npd/testdata/config"

// runLint runs the command as main does, and returns its output and exit code.
func runLint(t *testing.T, args ...string) (out string, code int, err error) {
	t.Helper()
	var b bytes.Buffer
	cmd := newLint()
	cmd.SilenceErrors, cmd.SilenceUsage = true, true
	cmd.SetOut(&b)
	cmd.SetArgs(args)
	err = cmd.ExecuteContext(t.Context())
	if ee := (*output.ExitError)(nil); errors.As(err, &ee) {
		return b.String(), ee.Code, ee.Err
	}
	if err != nil {
		return b.String(), output.ExitInput, err
	}
	return b.String(), output.ExitOK, nil
}

func write(t *testing.T, dir, name, content string) string {
	t.Helper()
	path := filepath.Join(dir, name)
	if err := os.MkdirAll(filepath.Dir(path), 0o750); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestLintNamesDeadPatterns(t *testing.T) {
	out, code, err := runLint(t, npdConfigs+"/kernel-monitor.json")
	if code != output.ExitFailed || err != nil {
		t.Fatalf("exit %d: %v\n%s", code, err, out)
	}
	for _, want := range []string{
		"kernel-monitor.json:41: error: KernelOops: matches lines of kernels up to 5.1 on amd64 only",
		"    5.2 and later on amd64: BUG: kernel NULL pointer dereference, address: 0000000000000008",
		"kernel-monitor.json:46: error: KernelOops: ",
	} {
		if !strings.Contains(out, want) {
			t.Errorf("no %q in\n%s", want, out)
		}
	}
	out, code, _ = runLint(t, "-o", "json", npdConfigs+"/kernel-monitor.json")
	n := 0
	for line := range strings.Lines(out) {
		var f lint.Finding
		if err := json.Unmarshal([]byte(line), &f); err != nil || f.Line == 0 || f.Code == "" {
			t.Errorf("%v: %s", err, line)
		}
		n++
	}
	// What a shipped rule reports instead is not missing.
	if n != 5 || code != output.ExitFailed {
		t.Errorf("%d findings, exit %d", n, code)
	}
}

func TestLintOfCleanFiles(t *testing.T) {
	// A folder with all files, including those that are skipped and cause no finding.
	dir := t.TempDir()
	for _, name := range []string{"readonly-monitor.json", "health-checker-kubelet.json", "exporter/stackdriver-exporter.json"} {
		data, err := os.ReadFile(filepath.Join(npdConfigs, name))
		if err != nil {
			t.Fatal(err)
		}
		write(t, dir, name, string(data))
	}
	write(t, dir, "values.yaml", "image: {tag: latest}\n")
	write(t, dir, "package.json", `{"name": "x"}`)
	write(t, dir, "rules/own.yaml", `apiVersion: rules.kernosis.io/v1
rules:
- {name: own, events: [log], logs: [kmsg], pattern: 'EXT4-fs error \(device (?P<dev>\w+)\)', groupBy: [match.dev], reason: Ext4Error, message: "${log.text}"}
`)
	out, code, err := runLint(t, dir)
	if code != output.ExitOK || err != nil || !strings.Contains(out, "stackdriver-exporter.json:1: info: skipped") {
		t.Errorf("exit %d: %v\n%s", code, err, out)
	}
}

func TestLintOfRuleFilesAndAlerts(t *testing.T) {
	dir := t.TempDir()
	own := write(t, dir, "own.yaml", `apiVersion: rules.kernosis.io/v1
rules:
- name: oops
  events: [log]
  pattern: 'BUG: unable to handle kernel NULL pointer dereference'
  reason: Oops
  message: ${log.text}
`)
	alerts := write(t, dir, "alerts.yaml", `groups:
- name: a
  rules:
  - {alert: Own, expr: 'problem_counter{reason="Oops"}'}
  - {alert: Shipped, expr: 'problem_counter{reason="OOMKilling"}'}
  - {alert: Wrong, expr: 'kube_node_status_condition{condition="TaskHung",status="true"}'}
`)
	out, code, err := runLint(t, own, "--alerts", alerts, "--kernels", "6.1")
	if code != output.ExitFailed || err != nil {
		t.Fatalf("exit %d: %v", code, err)
	}
	want := alerts + `:6: error: Wrong: kube_node_status_condition{condition="TaskHung"}: TaskHung is a reason; the condition is KernelDeadlock [alert-on-reason]
` + own + `:3: error: Oops: matches lines of kernels up to 5.1 on amd64 only; kernels 6.1 use other wording [dead-pattern]
    5.2 and later on amd64: BUG: kernel NULL pointer dereference, address: 0000000000000008
    every kernel on arm64: Unable to handle kernel NULL pointer dereference at virtual address 0000000000000008
`
	if out != want {
		t.Errorf("got\n%s\nwant\n%s", out, want)
	}
	// Alerts on the shipped rules only.
	if out, code, err = runLint(t, "--alerts", alerts); code != output.ExitFailed || err != nil ||
		!strings.Contains(out, "no rule has a reason Oops") || !strings.Contains(out, "the condition is KernelDeadlock") || strings.Contains(out, "OOMKilling") {
		t.Errorf("exit %d: %v\n%s", code, err, out)
	}
	if _, code, _ = runLint(t, own, "--kernels", "4.19"); code != output.ExitOK {
		t.Errorf("exit %d for the kernels that the pattern is for", code)
	}
}

func TestLintOfBadInput(t *testing.T) {
	dir := t.TempDir()
	bad := write(t, dir, "bad.json", "{\n \"plugin\": \"kmsg\",\n \"rules\": [{\"type\": \"temporary\"}]\n}")
	rules := write(t, dir, "bad.yaml", "apiVersion: rules.kernosis.io/v1\nrules: [{name: X}]\n")
	other := write(t, dir, "other.json", "{}")
	for _, tc := range []struct {
		args []string
		want string
	}{
		{[]string{bad}, "bad.json:3:12: rules[0].pattern: is missing"},
		{[]string{rules}, "bad.yaml:2:9: rules[0]: events is missing"},
		{[]string{other}, "this is not a configuration of node-problem-detector"},
		{[]string{filepath.Join(dir, "none.json")}, "no such file"},
		{[]string{dir, "--kernels", "six"}, `kernel "six"`},
		{[]string{dir, "-o", "xml"}, `want text or json`},
		{[]string{other, "--alerts", bad}, "no groups"},
		{[]string{"lint.go"}, "want a .json, .yaml or .yml file or a folder"},
		{nil, "want files, folders or --alerts"},
	} {
		if _, code, err := runLint(t, tc.args...); code != output.ExitInput || err == nil || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%v: exit %d: %v", tc.args, code, err)
		}
	}
}

// Manifests are checked with the rules of the other files of the same run.
func TestLintOfManifests(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, "rules.yaml", `apiVersion: rules.kernosis.io/v1
rules:
- {name: own, events: [log], logs: [kmsg], pattern: 'EXT4-fs error \(device (?P<dev>\w+)\)', groupBy: [match.dev], reason: Ext4Error, message: "${log.text}"}
`)
	trigger := func(rule string) string {
		return "apiVersion: kernosis.io/v1alpha1\nkind: Trigger\nmetadata: {name: own}\nspec:\n  operationSet: disk-error\n  sourceTemplate: {problemTemplate: {rules: [" + rule + "]}}\n"
	}
	path := write(t, dir, "trigger.yaml", trigger("own, oom-kill"))
	if out, code, err := runLint(t, dir); code != output.ExitOK || err != nil || out != "" {
		t.Errorf("exit %d: %v\n%s", code, err, out)
	}
	if out, code, err := runLint(t, path); code != output.ExitFailed || err != nil ||
		!strings.HasPrefix(out, path+`:6: warning: spec.sourceTemplate.problemTemplate.rules[0]: no shipped or given rule is named "own"`) {
		t.Errorf("exit %d: %v\n%s", code, err, out)
	}
	out, code, _ := runLint(t, "-o", "json", path)
	var f lint.Finding
	if err := json.Unmarshal([]byte(out), &f); err != nil || code != output.ExitFailed || f.Level != lint.Warning || f.Code != "unknown-rule" || f.Line != 6 {
		t.Errorf("%v: %+v", err, f)
	}
	set := write(t, dir, "set.json", `{"apiVersion": "kernosis.io/v1alpha1", "kind": "OperationSet", "metadata": {"name": "s"}, "spec": {"adjacencyList": [{"id": 0, "to": [1]},
 {"id": 1, "operation": "socket"}]}}`)
	if out, code, err := runLint(t, set); code != output.ExitFailed || err != nil || !strings.HasPrefix(out, set+`:2: error: spec.adjacencyList[1].operation: node 1: `) {
		t.Errorf("exit %d: %v\n%s", code, err, out)
	}
	bad := write(t, dir, "bad.yaml", "apiVersion: kernosis.io/v1alpha1\nkind: Operation\nmetadata: {name: o}\nspec: {processor: {}}\n")
	if _, code, err := runLint(t, bad); code != output.ExitInput || err == nil || !strings.Contains(err.Error(), "bad.yaml:4:") {
		t.Errorf("exit %d: %v", code, err)
	}
	if out, code, err := runLint(t, "../../diagnose/manifest/sets"); code != output.ExitOK || err != nil {
		t.Errorf("shipped sets: exit %d: %v\n%s", code, err, out)
	}
}
