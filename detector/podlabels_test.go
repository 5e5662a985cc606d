package detector_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"github.com/kernosis/kernosis/collector/event"
	"github.com/kernosis/kernosis/detector"
	"github.com/kernosis/kernosis/detector/problem"
)

// oomInPod returns an OOM kill in a container of a pod with labels.
func oomInPod(d time.Duration, labels map[string]string) *event.Event {
	ev := oom(d, "/kubepods/pod1/c")
	ev.Container = &event.Container{ID: "c", PodUID: "1"}
	ev.PodLabels = labels
	return ev
}

// A missing label is the empty text, like a field that an event does not carry: it makes no
// expression fail, so no event is missed.
func TestPodLabels(t *testing.T) {
	db := map[string]string{"team": "db", "critical": "", "app.kubernetes.io/name": "postgres"}
	for _, c := range []struct {
		when       string
		db, others bool // whether it is true for db, and for a pod without labels
	}{
		{`pod.labels["team"] == "db"`, true, false},
		{`pod.labels.team == "db"`, true, false},
		{`pod.labels["team"] != "web"`, true, true},
		{`!(pod.labels["team"] == "db")`, false, true},
		{`pod.labels["app.kubernetes.io/name"].startsWith("post")`, true, false},
		{`pod.labels["te" + "am"] == "db"`, true, false},
		{`pod.labels[task.comm] == ""`, true, true},
		{`pod.labels[pod.labels["team"]] == ""`, true, true},
		{`"critical" in pod.labels`, true, false},
		{`has(pod.labels.critical)`, true, false},
		{`has(pod.labels.gone)`, false, false},
		{`pod.labels[?"team"].orValue("none") == "none"`, false, true},
		{`pod.labels.exists(k, k == "team" && pod.labels[k] in ["db", "web"])`, true, false},
		{`pod.labels.all(k, k != "gone")`, true, true},
		{`size(pod.labels) == 0`, false, true},
		{`pod.labels == {"team": "db"}`, false, false},
	} {
		set := ruleSet(t, fmt.Sprintf("\n- {name: r, events: [oomkill], when: '%s', reason: R, message: m}\n", c.when))
		for _, of := range []struct {
			labels map[string]string
			want   bool
		}{{db, c.db}, {nil, c.others}} {
			e := detector.NewEngine(set)
			fired := slices.Contains(states(e.Observe(oomInPod(0, of.labels), at(0))), "r  firing")
			if fired != of.want {
				t.Errorf("%s: fires is %v for labels %v", c.when, fired, of.labels)
			}
			if failed := e.Stats().EvalErrors; len(failed) > 0 {
				t.Errorf("%s: failed for labels %v", c.when, of.labels)
			}
		}
	}
}

func TestPodLabelsInMessageAndSeverity(t *testing.T) {
	e := detector.NewEngine(ruleSet(t, `
- name: r
  events: [oomkill]
  groupBy: [pod.name]
  reason: R
  message: "of ${pod.labels['team']}, app ${pod.labels.app}: ${pod.labels}"
  severityWhen: {critical: '"critical" in pod.labels'}
`))
	reported := func(ev *event.Event) *problem.Problem {
		t.Helper()
		for _, tr := range e.Observe(ev, at(time.Duration(ev.BootTime)-time.Hour)) {
			if tr.Problem != nil {
				return tr.Problem
			}
		}
		t.Fatal("no problem is reported")
		return nil
	}
	if p := reported(oomInPod(0, map[string]string{"team": "db", "critical": ""})); p.Message != "of db, app : critical=, team=db" || p.Severity != problem.Critical {
		t.Errorf("%q, %s", p.Message, p.Severity)
	}
	if p := reported(oomInPod(time.Second, nil)); p.Message != "of , app : " || p.Severity != problem.Warning {
		t.Errorf("%q, %s", p.Message, p.Severity)
	}
}

// Labels of events in a journal or in a rule test may exceed the bounds that the agent applies.
func TestPodLabelsBeyondTheirBounds(t *testing.T) {
	labels := map[string]string{"a\x1b[2J": "x", "a-long": strings.Repeat("v", 64), strings.Repeat("k", 318): "x"}
	for i := range 1000 {
		labels[fmt.Sprintf("l%04d", i)] = "v"
	}
	e := detector.NewEngine(ruleSet(t, `
- {name: r, events: [oomkill], reason: R, message: "${size(pod.labels)} ${'l0063' in pod.labels} ${'l0064' in pod.labels} ${pod.labels['a-long']}"}
`))
	raw, err := json.Marshal(oomInPod(0, labels))
	if err != nil {
		t.Fatal(err)
	}
	var ev event.Event
	if err := json.Unmarshal(raw, &ev); err != nil {
		t.Fatal(err)
	}
	out := e.Observe(&ev, at(0))
	if i := slices.IndexFunc(out, func(tr problem.Transition) bool { return tr.Problem != nil }); i < 0 || out[i].Problem.Message != "64 true false " {
		t.Errorf("%+v", out)
	}
}

// The agent adds labels to events only if a rule reads them.
func TestWhichRulesReadPodLabels(t *testing.T) {
	set := ruleSet(t, `
- {name: none, events: [oomkill], when: 'pod.name == "x"', reason: R, message: "${pod.name}"}
- {name: when, events: [oomkill], when: 'pod.labels.a == "b"', reason: R, message: m}
- {name: message, events: [oomkill], reason: R, message: "${pod.labels['a']}"}
- {name: severity, events: [oomkill], reason: R, message: m, severityWhen: {critical: '"a" in pod.labels'}}
- {name: clear, events: [oomkill], reason: R, message: m, clearWhen: 'pod.labels["a"] == "b"'}
`)
	if have, want := set.PodLabelReaders(), []string{"when", "message", "severity", "clear"}; !slices.Equal(have, want) {
		t.Errorf("%v, want %v", have, want)
	}
}

func TestPodLabelsNameNoGroup(t *testing.T) {
	_, err := detector.Load(fstest.MapFS{"r.yaml": {Data: []byte(`apiVersion: rules.kernosis.io/v1
rules:
- {name: r, events: [oomkill], groupBy: [pod.labels], reason: R, message: m}
- {name: s, events: [diskstall], reason: R, when: 'pod.labels["a"] == "b"', message: m}
- {name: t, events: [oomkill], reason: R, when: 'pod.labels[1] == "b"', message: m}
`)}})
	for _, want := range []string{
		"field pod.labels (map of strings) can't be used for grouping",
		"no event of this rule has field pod.labels",
		"found no matching overload for '_[_]'",
	} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
}
