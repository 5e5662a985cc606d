package agent

import (
	"maps"
	"testing"
	"testing/fstest"
	"time"

	"github.com/kernosis/kernosis/collector"
	"github.com/kernosis/kernosis/collector/event"
	"github.com/kernosis/kernosis/collector/hostfs"
	"github.com/kernosis/kernosis/collector/logpattern"
	"github.com/kernosis/kernosis/detector"
	"github.com/kernosis/kernosis/detector/problem"
)

// Lasting states that were reported to new rules are known after a kill, and only to these rules.
func TestLastingAcrossAKill(t *testing.T) {
	dir := t.TempDir()
	const (
		conditions = `apiVersion: rules.kernosis.io/v1
conditions:
  LastsReadOnly: {healthyReason: NothingLasts, healthyMessage: nothing lasts}
  LastsDown: {healthyReason: NothingLasts, healthyMessage: nothing lasts}
rules:`
		old   = "\n- {name: old, events: [mount.readonly], condition: LastsReadOnly, reason: Old, message: m, clearWhen: event.kind == \"mount.writable\"}\n"
		added = `
- {name: added, events: [mount.readonly], condition: LastsReadOnly, reason: Added, message: m, clearWhen: event.kind == "mount.writable"}
- {name: down, events: [source], when: "!event.up", groupBy: [event.stem], condition: LastsDown, reason: Down, message: m, clearWhen: event.up}
`
	)
	set := func(rules string) *detector.RuleSet {
		t.Helper()
		s, err := detector.Load(fstest.MapFS{"rules.yaml": {Data: []byte(conditions + rules)}})
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	a, _ := restoredWith(t, dir, set(old))
	readOnly := func() *event.Event {
		return &event.Event{
			Kind: event.MountReadOnly, Time: time.Now(), BootTime: event.Duration(hostfs.BootTime()), CPU: event.NoCPU,
			Device: &event.Device{Name: "sda"}, Mount: &event.MountData{},
		}
	}
	a.patterns, a.lasting = func(*logpattern.Set) {}, func(emit collector.Emit) { emit(readOnly()) }
	for _, up := range []bool{true, false} {
		a.observe(&event.Event{
			Kind: event.Source, Time: time.Now(), BootTime: event.Duration(hostfs.BootTime()), CPU: event.NoCPU,
			SourceUp: &event.SourceData{Stem: event.Probe.Stem(), Up: up},
		})
	}
	a.observe(readOnly())
	a.replace(set(old + added))
	a.replace(set(old + added)) // nothing changes
	check := func(a *pipeline) {
		t.Helper()
		got := map[string]uint64{}
		for _, p := range a.engine.Problems() {
			if p.State == problem.Firing {
				got[p.Rule] += p.Count
			}
		}
		if want := map[string]uint64{"old": 1, "added": 1, "down": 1}; !maps.Equal(got, want) {
			t.Errorf("%v, want %v", got, want)
		}
	}
	check(a)
	a.kill(t)
	a, _ = restoredWith(t, dir, set(old+added))
	check(a)
}
