package detector_test

import (
	"slices"
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
