package detector_test

import (
	"slices"
	"testing"
	"testing/fstest"
	"time"

	"github.com/kernosis/kernosis/detector"
	"github.com/kernosis/kernosis/detector/problem"
)

// layered loads rules over the shipped ones.
func layered(t *testing.T, own string) *detector.RuleSet {
	t.Helper()
	set, err := detector.Load(detector.Shipped(), fstest.MapFS{"own.yaml": {Data: []byte("apiVersion: rules.kernosis.io/v1\nrules:\n" + own)}})
	if err != nil {
		t.Fatal(err)
	}
	return set
}

// A rule that extends a shipped one differs from it only in the keys that it sets.
func TestExtends(t *testing.T) {
	shipped, err := detector.Load(detector.Shipped())
	if err != nil {
		t.Fatal(err)
	}
	set := layered(t, "- name: oom-kill-frequent\n  extends: oom-kill-frequent\n  threshold: {count: 7, within: 1h}\n"+
		"- {name: oom-kill-of-db, extends: oom-kill, when: 'task.comm == \"postgres\"', severity: critical}\n")
	was, _ := shipped.Rule("oom-kill-frequent")
	is, _ := set.Rule("oom-kill-frequent")
	if is.Threshold.Count != 7 || is.Threshold.Within != time.Hour || is.Threshold.Distinct != "" {
		t.Errorf("threshold %+v", is.Threshold)
	}
	if is.Condition != was.Condition || is.ClearAfter != was.ClearAfter || is.Message != was.Message || !slices.Equal(is.GroupBy, was.GroupBy) || is.Doc != was.Doc {
		t.Errorf("%+v, want the rest of %+v", is, was)
	}
	if is.File != "own.yaml" || is.Line != 3 || is.Layer != 1 || was.Layer != 0 {
		t.Errorf("read from %s:%d, layer %d", is.File, is.Line, is.Layer)
	}
	if len(set.Rules()) != len(shipped.Rules())+1 {
		t.Errorf("%d rules, shipped are %d", len(set.Rules()), len(shipped.Rules()))
	}
	e := detector.NewEngine(set)
	ev := oom(0, "/a")
	ev.Task.Comm = "postgres"
	e.Observe(ev, at(0))
	for _, p := range e.Problems() {
		if p.Rule == "oom-kill-of-db" && p.Severity == problem.Critical {
			return
		}
	}
	t.Error("the extended rule does not fire")
}

// A rule extends the shipped one even if the same folder also replaces that one, in any order.
func TestExtendsTheShippedRule(t *testing.T) {
	all, err := detector.Load(detector.Shipped())
	if err != nil {
		t.Fatal(err)
	}
	shipped, _ := all.Rule("oom-kill")
	const (
		critical = "- {name: oom-kill, extends: oom-kill, severity: critical}\n"
		ofDB     = "- {name: oom-kill-of-db, extends: oom-kill, when: 'task.comm == \"postgres\"'}\n"
	)
	for _, own := range []string{critical + ofDB, ofDB + critical} {
		set := layered(t, own)
		replaced, _ := set.Rule("oom-kill")
		extra, _ := set.Rule("oom-kill-of-db")
		if replaced.Severity != problem.Critical || extra.Severity != shipped.Severity {
			t.Errorf("%s: severities %s and %s, want critical and %s", own, replaced.Severity, extra.Severity, shipped.Severity)
		}
	}
}

// Each occurrence has its own severity; a lasting problem keeps its worst severity.
func TestSeverityWhen(t *testing.T) {
	set := ruleSet(t, `
- {name: each, events: [oomkill], reason: R, message: "${event.limit}", severity: info, severityWhen: {critical: event.limit > 1000, warning: event.limit > 100}}
- {name: lasts, events: [oomkill], reason: R, message: "${event.limit}", severity: info, severityWhen: {critical: event.limit > 1000, warning: event.limit > 100}, condition: Sick, clearAfter: 1m}
`)
	e := detector.NewEngine(set)
	for i, c := range []struct {
		limit       int64
		each, lasts problem.Severity
		message     string
	}{
		{50, problem.Info, problem.Info, "50"},
		{200, problem.Warning, problem.Warning, "200"},
		{2000, problem.Critical, problem.Critical, "2000"},
		{50, problem.Info, problem.Critical, "2000"},
	} {
		ev := oom(time.Duration(i)*time.Second, "/a")
		ev.OOMKill.Limit = uint64(c.limit)
		e.Observe(ev, at(time.Duration(i)*time.Second))
		for _, p := range e.Problems() {
			want := map[string]problem.Severity{"each": c.each, "lasts": c.lasts}[p.Rule]
			if p.Severity != want || p.Rule == "lasts" && p.Message != c.message {
				t.Errorf("limit %d: %s is %s (%s), want %s", c.limit, p.Rule, p.Severity, p.Message, want)
			}
		}
		if have, want := conditionOf(e), "True R: "+c.message; have != want {
			t.Errorf("limit %d: condition %s, want %s", c.limit, have, want)
		}
	}
}
