package agent

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"github.com/kernosis/kernosis/cmd/kernosis/config"
	"github.com/kernosis/kernosis/collector/event"
	"github.com/kernosis/kernosis/collector/ingest"
	"github.com/kernosis/kernosis/detector"
	"github.com/kernosis/kernosis/detector/problem"
	"github.com/kernosis/kernosis/vmtest/testenv"
)

// The examples of docs/reports.md are valid.
func TestDocumentedReports(t *testing.T) {
	raw, err := os.ReadFile("../../../docs/reports.md")
	if err != nil {
		t.Fatal(err)
	}
	page := string(raw)
	block := func(begin, end string) string {
		t.Helper()
		_, rest, found := strings.Cut(page, begin)
		text, after, ended := strings.Cut(rest, end)
		page = after
		if !found || !ended {
			t.Fatalf("no %q", begin)
		}
		return text
	}
	file := block("```yaml\n", "```")
	if out, err := printed(t, file); err != nil || !strings.Contains(out, "heartbeat: 1m30s") {
		t.Errorf("%v\n%s", err, out)
	}
	in, err := ingest.New(ingest.Config{Sources: []ingest.Source{{Name: "gpu-monitor", Conditions: []string{"GPUUnhealthy"}}}})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	defer func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}()
	reported := make(chan string, 10)
	go func() {
		ended <- in.Run(ctx, func(ev *event.Event) {
			if ev.Check != nil {
				reported <- ev.Check.Check + " " + ev.Check.Reason
			}
		})
	}()
	text := []byte(block("-d '", "'"))
	for {
		_, err := in.Report(ingest.Peer{}, "", text)
		if refusal, ok := err.(*ingest.Refusal); ok && refusal.Outcome == ingest.Closing { //nolint:errorlint // it is not wrapped
			continue // Run has not started yet
		}
		if err != nil {
			t.Fatal(err)
		}
		break
	}
	if a, b := <-reported, <-reported; a != "gpu-monitor/warn XidSeen" || b != "gpu-monitor/GPUUnhealthy XidError" {
		t.Errorf("reported %q and %q", a, b)
	}
	if _, err := detector.Load(fstest.MapFS{"own.yaml": {Data: []byte(block("```yaml\n", "```"))}}); err != nil {
		t.Error(err)
	}
}

// The documented rule over a daemon's events, and the daemon's condition, are False while it
// reports that nothing is wrong; a restart of the agent does not change that.
func TestDaemonThatReportsNothingWrong(t *testing.T) {
	page, err := os.ReadFile("../../../docs/reports.md")
	if err != nil {
		t.Fatal(err)
	}
	_, rule, _ := strings.Cut(string(page), "```yaml\napiVersion")
	rule, _, _ = strings.Cut(rule, "```")
	daemons := []reportConfig{{Name: "gpu-monitor", Conditions: []reportCondition{{Type: "GPUUnhealthy", HealthyReason: "GPUIsHealthy", HealthyMessage: "all GPUs answer"}}}}
	made, err := reportLayer(daemons)
	if err != nil {
		t.Fatal(err)
	}
	set, err := detector.Load(made, fstest.MapFS{"own.yaml": {Data: []byte("apiVersion" + rule)}})
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	run := func() (*pipeline, *ingest.Intake, func() map[string]json.RawMessage) {
		a, _ := restoredWith(t, dir, set)
		cfg := (&Config{Reports: daemons}).ingest()
		cfg.Earlier = a.earlier
		in, err := ingest.New(cfg)
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- in.Run(ctx, a.observe) }()
		return a, in, func() map[string]json.RawMessage {
			cancel()
			if err := <-ended; err != nil {
				t.Error(err)
			}
			defer a.kill(t)
			return a.savedState(t)
		}
	}
	healthy := func(a *pipeline) {
		t.Helper()
		testenv.UntilShown(t, "both are False", 10*time.Second, func() (bool, string) {
			list := a.conditions()
			return len(list) == 2 && list[0].Status == problem.False && list[1].Status == problem.False, fmt.Sprintf("%+v", list)
		})
	}
	a, in, stop := run()
	testenv.Until(t, "the report is taken", 10*time.Second, func() bool {
		_, err := in.Report(ingest.Peer{}, "", []byte(`{"source":"gpu-monitor","conditions":[{"type":"GPUUnhealthy","status":false}]}`))
		return err == nil
	})
	healthy(a)
	stop()
	a, _, stop = run()
	healthy(a)
	of := stop()
	reboot(t, dir, of)
	a.writeState(t, of)
	a, _, stop = run()
	for _, c := range a.conditions() {
		if c.Status != problem.Unknown {
			t.Errorf("after a reboot: %+v", c)
		}
	}
	stop()
}

// Rules must not set a condition of a daemon.
func TestConditionOfRuleAndDaemon(t *testing.T) {
	load := func(rule, conditionType string) error {
		dir := t.TempDir()
		if rule != "" {
			if err := os.WriteFile(filepath.Join(dir, "own.yaml"), []byte(rule), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		cfg := Config{RulesDir: dir, ShippedRules: []string{"*"}, origins: config.Origins{"reports[0]": "kernosis.yaml:7"}, Reports: []reportConfig{{
			Name:       "gpu-monitor",
			Conditions: []reportCondition{{Type: conditionType, HealthyReason: "GPUIsHealthy", HealthyMessage: "all GPUs answer"}},
		}}}
		_, _, err := cfg.rules()
		return err
	}
	if err := load("", "GPUUnhealthy"); err != nil {
		t.Error(err)
	}
	if err := load("", "KernelDeadlock"); err == nil || !strings.Contains(err.Error(), "kernosis.yaml:7: reports[0].conditions[0]: condition KernelDeadlock is already set by rule kernel-deadlock") {
		t.Errorf("got %v", err)
	}
	const own = `apiVersion: rules.kernosis.io/v1
rules:
- {name: %, events: [check], when: 'event.check == "x" && event.status == "problem"', condition: GPUUnhealthy, reason: Mine, message: m, clearAfter: 5m}
`
	if err := load(strings.Replace(own, "%", "mine", 1), "GPUUnhealthy"); err == nil || !strings.Contains(err.Error(), "is already set by rule mine") {
		t.Errorf("got %v", err)
	}
	// A rule that replaces the daemon's rule may set it.
	if err := load(strings.Replace(own, "%", reportRuleName("gpu-monitor", "GPUUnhealthy"), 1), "GPUUnhealthy"); err != nil {
		t.Error(err)
	}
	if err := load("", strings.Repeat("Long", 30)); err != nil {
		t.Errorf("a long name: %v", err)
	}
}
