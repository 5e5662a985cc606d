package agent

import (
	"context"
	"log/slog"
	"maps"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"github.com/kernosis/kernosis/collector/event"
	"github.com/kernosis/kernosis/collector/pods"
	"github.com/kernosis/kernosis/detector"
)

const labelRule = "apiVersion: rules.kernosis.io/v1\nrules:\n- {name: by-label, events: [oomkill], when: 'pod.labels.team == \"db\"', reason: R, message: m}\n"

// Labels are only looked up while a rule reads them, and the warning about unknown pods is only
// logged if a rule reads labels.
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
	a := &pipeline{engine: detector.NewEngine(none), pods: known, log: slog.New(slog.NewTextHandler(&log, nil))}
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
