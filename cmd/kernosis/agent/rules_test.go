package agent

import (
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/kernosis/kernosis/cmd/kernosis/config"
	"github.com/kernosis/kernosis/detector"
	"github.com/kernosis/kernosis/detector/npd"
	"github.com/kernosis/kernosis/detector/problem"
)

// Any files of the shipped rules can be enabled alone.
func TestShippedRulesOfSomeFiles(t *testing.T) {
	names, err := fs.Glob(detector.Shipped(), "*.yaml")
	if err != nil {
		t.Fatal(err)
	}
	names = slices.DeleteFunc(names, func(name string) bool { return strings.HasSuffix(name, "_test.yaml") })
	selections := [][]string{{"oomkill", "klog-*"}}
	for _, name := range names {
		selections = append(selections, []string{strings.TrimSuffix(name, ".yaml")})
	}
	for _, files := range selections {
		set, _, err := (&Config{ShippedRules: files}).rules()
		if err != nil {
			t.Errorf("%v: %v", files, err)
			continue
		}
		if len(set.Rules()) == 0 {
			t.Errorf("%v: no rules", files)
		}
		for _, c := range detector.NewEngine(set).Conditions() {
			if c.Reason == detector.ReasonNoRule {
				t.Errorf("%v: no rule sets condition %s", files, c.Type)
			}
		}
	}
}

// A pattern that is wrong, or that no file matches, is reported with its place.
func TestMistakenShippedRules(t *testing.T) {
	for pattern, want := range map[string]string{
		"oops": `kernosis.yaml:2: shipped-rules: no file of rules matches "oops"`, "[": `kernosis.yaml:2: shipped-rules: "[": syntax error in pattern`,
	} {
		cfg := Config{ShippedRules: []string{"*", pattern}, origins: config.Origins{"shipped-rules": "kernosis.yaml:2"}}
		if _, _, err := cfg.rules(); err == nil || err.Error() != want {
			t.Errorf("%v, want %q", err, want)
		}
	}
}

// Rules in the operator's folder replace, extend and name rules of node-problem-detector's files,
// and set their conditions.
func TestOwnRulesOverNPD(t *testing.T) {
	file, err := npd.Parse("disk-monitor.json", []byte(`{"plugin": "kmsg", "logPath": "/dev/kmsg", "source": "disk-monitor",
		"conditions": [{"type": "Foo", "reason": "Fine", "message": "fine"}, {"type": "Unset", "reason": "Fine", "message": "fine"}],
		"rules": [{"type": "permanent", "condition": "Foo", "reason": "Bar", "pattern": "bar"}]}`), npd.Options{})
	if err != nil {
		t.Fatal(err)
	}
	const name = "npd-disk-monitor-bar"
	for _, c := range []struct {
		own, rule, warning string
		want               func(r *detector.Rule) bool
	}{
		{"- {name: " + name + ", events: [log], logs: [kmsg], pattern: mine, condition: Foo, reason: Bar, message: m, latched: true}\n",
			name, "Unset", func(r *detector.Rule) bool { return r.Pattern == "mine" && r.Latched }},
		{"- {name: " + name + ", extends: " + name + ", severity: critical}\n",
			name, "Unset", func(r *detector.Rule) bool { return r.Pattern == "bar" && r.Severity == problem.Critical }},
		{"- {name: own, events: [oomkill], reason: R, message: m, dependsOn: [" + name + "]}\n",
			"own", "Unset", func(r *detector.Rule) bool { return slices.Equal(r.DependsOn, []string{name}) }},
		{"- {name: own, events: [oomkill], condition: Unset, reason: R, message: m, latched: true}\n",
			"own", "", func(r *detector.Rule) bool { return r.Condition == "Unset" }},
	} {
		dir := t.TempDir()
		if err := os.WriteFile(filepath.Join(dir, "own.yaml"), []byte("apiVersion: rules.kernosis.io/v1\nrules:\n"+c.own), 0o600); err != nil {
			t.Fatal(err)
		}
		set, monitors, err := (&Config{ShippedRules: []string{"*"}, RulesDir: dir, npdFiles: []*npd.File{file}}).rules()
		if err != nil {
			t.Errorf("%s: %v", c.own, err)
			continue
		}
		if r, ok := set.Rule(c.rule); !ok || filepath.Dir(r.File) != dir || !c.want(r) {
			t.Errorf("%s: %+v", c.own, r)
		}
		want := ""
		if c.warning != "" {
			want = "disk-monitor.json:2: conditions: no rule sets condition " + c.warning + ": it stays Unknown"
		}
		if have := monitors.Warnings.Error(); have != want {
			t.Errorf("%s: warnings %q, want %q", c.own, have, want)
		}
	}
}
