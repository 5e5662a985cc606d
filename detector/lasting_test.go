package detector_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/kernosis/kernosis/collector/event"
	"github.com/kernosis/kernosis/detector"
)

func readOnly(d time.Duration, device string) *event.Event {
	return &event.Event{
		Kind: event.MountReadOnly, Time: at(d).Wall, BootTime: event.Duration(at(d).Boot), CPU: event.NoCPU,
		Device: &event.Device{Name: device}, Mount: &event.MountData{},
	}
}

const lastingRules = `
- {name: temporary, events: [mount.readonly], groupBy: [device.name], reason: R, message: m}
- {name: permanent, events: [mount.readonly], groupBy: [device.name], condition: Sick, reason: R, message: m, clearWhen: event.kind == "mount.writable"}
- {name: twice, events: [mount.readonly], condition: Sick, reason: R, message: m, clearAfter: 1h, threshold: {count: 2, within: 1h}}
`

func TestNewSince(t *testing.T) {
	rules := func(s string) *detector.RuleSet { return ruleSet(t, "\n"+s+"\n") }
	const old = "- {name: r, events: [mount.readonly], groupBy: [device.name], condition: Sick, reason: R, message: m, clearWhen: event.kind == \"mount.writable\"}"
	for name, c := range map[string]struct {
		rule string
		want []string
	}{
		"the same":      {old, nil},
		"other words":   {`- {name: r, events: [mount.readonly], groupBy: [device.name], condition: Sick, reason: S, message: n, severity: critical, clearAfter: 1h}`, nil},
		"another name":  {`- {name: s, events: [mount.readonly], reason: R, message: m}`, []string{"s"}},
		"another key":   {`- {name: r, events: [mount.readonly], groupBy: [device.mount], condition: Sick, reason: R, message: m, clearAfter: 1h}`, []string{"r"}},
		"temporary":     {`- {name: r, events: [mount.readonly], groupBy: [device.name], reason: R, message: m}`, []string{"r"}},
		"matches other": {`- {name: r, events: [mount.readonly], when: device.name != "sda", groupBy: [device.name], condition: Sick, reason: R, message: m, clearAfter: 1h}`, []string{"r"}},
		"counts other":  {`- {name: r, events: [mount.readonly], groupBy: [device.name], condition: Sick, reason: R, message: m, clearAfter: 1h, threshold: {count: 2, within: 1m}}`, []string{"r"}},
		"more kinds":    {`- {name: r, events: [mount.readonly, fserror], groupBy: [device.name], condition: Sick, reason: R, message: m, clearAfter: 1h}`, []string{"r"}},
		"of a log":      {`- {name: l, events: [log], pattern: x, reason: R, message: m}`, nil},
	} {
		if got := rules(c.rule).NewSince(rules(old)); !slices.Equal(got, c.want) {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}

// A lasting event is counted once by new rules, and not by other rules.
func TestObserveLasting(t *testing.T) {
	e := detector.NewEngine(ruleSet(t, lastingRules))
	e.Observe(readOnly(0, "sda"), at(0))
	e.Tick(at(10 * time.Minute))
	again := func(d time.Duration, rules, matched []string, transitions ...string) {
		t.Helper()
		got, out := e.ObserveLasting(readOnly(d, "sda"), rules, at(d))
		if !slices.Equal(got, matched) {
			t.Errorf("%q matched, want %q", got, matched)
		}
		want(t, out, transitions...)
	}
	again(11*time.Minute, nil, nil)
	again(12*time.Minute, []string{"permanent", "twice", "gone"}, nil)
	for _, p := range e.Problems() {
		if p.Count != 1 {
			t.Errorf("%s counts %d, want 1", p.Rule, p.Count)
		}
	}

	const added = "- {name: added, events: [mount.readonly], groupBy: [device.name], condition: Ill, reason: R, message: m, latched: true}\n"
	set := ruleSet(t, lastingRules+added)
	names := set.NewSince(e.Rules())
	e.Replace(set, at(13*time.Minute))
	again(14*time.Minute, names, []string{"added"}, "added sda firing", "Ill=True R")
	again(15*time.Minute, names, nil)
}

// A reload that removes or changes the rule whose event began a problem lets the level rule of the
// same fault report it again.
func TestLastingOutlivesTheRuleThatBeganIt(t *testing.T) {
	const (
		level = `
- {name: level, fault: ro, events: [mount.readonly], groupBy: [device.name], condition: Sick, reason: R, message: m, clearWhen: event.kind == "mount.writable"}
`
		line = `- {name: line, fault: ro, events: [log], pattern: 'remount (?P<device>\w+)', groupBy: [match.device], condition: Sick, reason: L, message: m, clearAfter: 1h}
`
		other = `- {name: line, events: [log], pattern: 'remount (?P<device>\w+)', groupBy: [match.device], condition: Ill, reason: L, message: m, clearAfter: 1h}
`
		words = `- {name: line, fault: ro, events: [log], pattern: 'remount (?P<device>\w+)', groupBy: [match.device], condition: Sick, reason: L, message: n, clearAfter: 2h}
`
	)
	for name, c := range map[string]struct {
		after   string
		matched []string
	}{
		"removed":       {level, []string{"level"}},
		"another fault": {level + other, []string{"level"}},
		"other words":   {level + words, nil},
	} {
		t.Run(name, func(t *testing.T) {
			e := detector.NewEngine(ruleSet(t, level+line))
			want(t, e.Observe(logged(0, "remount sda"), at(0)), "line sda firing", "Sick=True L")
			e.Observe(readOnly(time.Second, "sda"), at(time.Second))
			set := ruleSet(t, c.after)
			names := set.NewSince(e.Rules())
			e.Replace(set, at(time.Minute))
			matched, _ := e.ObserveLasting(readOnly(2*time.Minute, "sda"), names, at(2*time.Minute))
			if !slices.Equal(matched, c.matched) {
				t.Errorf("%q matched, want %q", matched, c.matched)
			}
			want(t, e.Tick(at(24*time.Hour)))
			if got := conditionOf(e); !strings.HasPrefix(got, "True") {
				t.Errorf("condition %s, want True while the filesystem refuses writes", got)
			}
		})
	}
}
