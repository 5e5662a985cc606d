package main

import (
	"context"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"github.com/kernosis/kernosis/collector/event"
	"github.com/kernosis/kernosis/detector"
	"github.com/kernosis/kernosis/reporter/kube/pods"
)

const labelRule = "apiVersion: rules.kernosis.io/v1\nrules:\n- {name: by-label, events: [oomkill], when: 'pod.labels.team == \"db\"', reason: R, message: m}\n"

// Whoever writes a rule on labels learns of what they depend on; replayed and tested events
// bring their own.
func TestRulesOnPodLabelsInTheCommands(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{
		"own.yaml": labelRule,
		"own_test.yaml": `apiVersion: rules.kernosis.io/v1
tests:
- name: labels
  rules: [by-label]
  events:
  - {at: 0s, event: {kind: oomkill, podLabels: {team: db}}}
  - {at: 1s, event: {kind: oomkill, podLabels: {team: web}}}
  - {at: 2s, event: {kind: oomkill}}
  expect:
  - {at: 3s, problems: [{rule: by-label, count: 1}]}
`,
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if code, out := command(t, "rules", "check", dir); code != exitOK || !strings.Contains(out, "pod.labels is empty where the agent does not know the node's pods; read by by-label\n") {
		t.Errorf("exit code %d\n%s", code, out)
	}
	if code, out := command(t, "rules", "check"); code != exitOK || strings.Contains(out, "pod.labels") {
		t.Errorf("of the shipped rules: exit code %d\n%s", code, out)
	}
	if code, out := command(t, "rules", "test", dir); code != exitOK || !strings.Contains(out, "1 tests, 0 failed") {
		t.Errorf("exit code %d\n%s", code, out)
	}
}

// Labels are asked for only while a rule reads them, and what is said of them where nobody
// has them is said to whom reads them alone.
func TestAgentAddsPodLabelsWhereRulesReadThem(t *testing.T) {
	load := func(text string) *detector.RuleSet {
		t.Helper()
		set, err := detector.Load(fstest.MapFS{"r.yaml": {Data: []byte(text)}})
		if err != nil {
			t.Fatal(err)
		}
		return set
	}
	reads, none := load(labelRule), load("apiVersion: rules.kernosis.io/v1\nrules: []\n")
	labels := map[string]string{"team": "db", "unsafe\x1b": "x"}
	known := pods.NewListed(func() {})
	known.Replace([]pods.Pod{{UID: "u", Namespace: "ns", Name: "pod", Labels: labels}}, time.Now())
	ev := &event.Event{Kind: event.OOMKill, Container: &event.Container{ID: "c", PodUID: "u"}}
	var log strings.Builder
	a := &agent{engine: detector.NewEngine(none), pods: known, log: slog.New(slog.NewTextHandler(&log, nil))}
	if n := testing.AllocsPerRun(100, func() { a.podLabels(ev) }); n != 0 || a.podLabels(ev) != nil {
		t.Errorf("without such a rule: %v allocations, %v", n, a.podLabels(ev))
	}
	a.engine.Replace(reads, a.now())
	if have := a.podLabels(ev); !maps.Equal(have, map[string]string{"team": "db"}) {
		t.Errorf("%v", have)
	}
	if have := a.podLabels(&event.Event{Kind: event.OOMKill, Container: &event.Container{ID: "c", PodUID: "other"}}); have != nil {
		t.Errorf("of another pod: %v", have)
	}
	c := *ev.Container
	if a.namePod(&c); c.PodName != "pod" || c.PodNamespace != "ns" {
		t.Errorf("%+v", c)
	}
	a.warnOfLabels(reads)
	a.pods = nil
	a.warnOfLabels(none)
	if a.awaitPods(context.Background(), reads); log.Len() > 0 || a.podLabels(ev) != nil {
		t.Errorf("%v, log %s", a.podLabels(ev), log.String())
	}
	if a.warnOfLabels(reads); !strings.Contains(log.String(), "pod.labels is empty in all events") || !strings.Contains(log.String(), "by-label") {
		t.Errorf("log %s", log.String())
	}
	a.engine.Replace(none, a.now())
	if a.pods = known; a.podLabels(ev) != nil {
		t.Error("labels after the rule is gone")
	}
}
