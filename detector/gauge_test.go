package detector_test

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/kernosis/kernosis/collector/event"
	"github.com/kernosis/kernosis/detector"
	"github.com/kernosis/kernosis/detector/problem"
)

const gaugeRules = `
- name: files
  events: [gauge]
  when: gauge.name == "files" && gauge.percent >= 90
  clearWhen: gauge.percent < 80
  condition: Sick
  reason: R
  message: ${gauge.value} of ${gauge.limit}
  severityWhen: {critical: gauge.percent == 100}
  for: 2m
- name: often
  events: [gauge]
  when: gauge.name == "pids" && gauge.percent >= 90
  clearWhen: gauge.percent < 80
  condition: Ill
  reason: R
  message: ${gauge.percent}%
  threshold: {count: 3, within: 2m}
- name: inodes
  events: [gauge]
  when: gauge.name == "inodes" && gauge.percent >= 90
  clearWhen: gauge.percent < 80
  groupBy: [device.name]
  condition: Ill
  reason: R
  message: ${subject}
  maxGroups: 2
`

func gauge(d time.Duration, name string, value uint64, device string) *event.Event {
	ev := &event.Event{Kind: event.Gauge, Time: at(d).Wall, BootTime: event.Duration(time.Hour + d), CPU: event.NoCPU,
		Gauge: &event.GaugeData{Name: name, Value: value, Limit: 100}}
	if device != "" {
		ev.Device = &event.Device{Name: device}
	}
	return ev
}

// A gauge changes the engine only if a problem begins, is confirmed or ends, so that gauges
// that are read every 30 s do not fill a journal.
func TestGaugeThatRepeatsChangesNothing(t *testing.T) {
	e := detector.NewEngine(ruleSet(t, gaugeRules))
	step := 0
	read := func(name string, value uint64, changed bool, want ...string) {
		t.Helper()
		step++
		d := time.Duration(step) * 30 * time.Second
		got := states(e.Observe(gauge(d, name, value, ""), at(d)))
		if diff := cmp.Diff(append([]string(nil), want...), got); diff != "" {
			t.Errorf("step %d (-want +got):\n%s", step, diff)
		}
		if e.Changed() != changed {
			t.Errorf("step %d: changed %v, want %v", step, e.Changed(), changed)
		}
	}
	d := time.Second
	e.Observe(&event.Event{Kind: event.Source, Time: at(d).Wall, SourceUp: &event.SourceData{Stem: "gauge/files", Up: true}}, at(d))
	if !e.Changed() {
		t.Error("a source that came up changes nothing")
	}
	read("files", 50, false)
	read("memory", 100, false)
	read("files", 95, true) // pending
	read("files", 95, false)
	read("files", 85, false) // between the thresholds
	read("files", 70, true)  // forgotten
	read("files", 70, false)
	read("files", 91, true)
	read("files", 99, false)
	read("files", 99, false)
	read("files", 99, false)
	read("files", 99, true, "files  firing", "Sick=True R")
	for range 100 {
		read("files", 99, false)
	}
	read("files", 100, true, "Sick=True R") // worse
	read("files", 100, false)
	read("files", 99, false)
	read("files", 85, false)
	read("files", 79, true, "files  resolved", "Sick=False Well")
	read("files", 10, false)

	read("pids", 95, true) // each counts until the threshold is reached
	read("pids", 95, true)
	read("pids", 95, true, "often  firing", "Ill=True R")
	read("pids", 95, false)
	for _, p := range e.Problems() {
		if p.Rule == "files" && p.Count != 1 || p.Rule == "often" && p.Count != 3 {
			t.Errorf("%s counts %d", p.Rule, p.Count)
		}
	}
}

// Replaying only the gauges that changed the engine gives the same transitions, problems and
// conditions as replaying all of them.
func TestGaugesLeftOutOfTheJournal(t *testing.T) {
	set := ruleSet(t, gaugeRules)
	for seed := range uint64(20) {
		r := rand.New(rand.NewPCG(seed, 1))
		whole, journaled := detector.NewEngine(set), detector.NewEngine(set)
		kept, all := 0, 0
		now := at(0)
		names := []string{"files", "pids", "inodes", "inodes", "inodes", "memory"}
		for step := range 600 {
			now = now.Add(time.Duration(r.IntN(20)) * time.Second)
			i := r.IntN(len(names))
			device := ""
			if names[i] == "inodes" {
				device = string(rune('a' + i))
			}
			ev := gauge(now.Wall.Sub(epoch), names[i], uint64(70+r.IntN(31)), device)
			switch r.IntN(40) {
			case 0:
				ev.Gauge.Gone = true
			case 1, 2:
				ev = &event.Event{Kind: event.Source, Time: now.Wall, SourceUp: &event.SourceData{Stem: "gauge/" + names[i], Up: r.IntN(3) > 0}}
			}
			reported := states(whole.Observe(ev, now))
			if all++; whole.Changed() {
				kept++
				if diff := cmp.Diff(reported, states(journaled.Observe(ev, now))); diff != "" {
					t.Fatalf("seed %d, step %d (-all +journaled):\n%s", seed, step, diff)
				}
			} else if len(reported) > 0 {
				t.Fatalf("seed %d, step %d: left out though it reported %v", seed, step, reported)
			}
			if step%100 == 99 {
				whole.Restarted(now)
				journaled.Restarted(now)
			}
		}
		end := now.Add(time.Hour)
		whole.Tick(end)
		journaled.Tick(end)
		if diff := cmp.Diff(whole.Problems(), journaled.Problems()); diff != "" {
			t.Errorf("seed %d (-all +journaled):\n%s", seed, diff)
		}
		if diff := cmp.Diff(whole.Conditions(), journaled.Conditions()); diff != "" {
			t.Errorf("seed %d (-all +journaled):\n%s", seed, diff)
		}
		if kept == all {
			t.Errorf("seed %d: none of %d was left out", seed, all)
		}
	}
}

func TestGaugePercent(t *testing.T) {
	for _, tt := range []struct{ value, limit, want uint64 }{
		{1, 0, 0}, {99, 100, 99}, {999, 1000, 99}, {3, 2, 150},
		{1 << 62, 1<<63 - 1, 50}, {1<<64 - 1, 1<<64 - 1, 100}, {1<<64 - 1, 1, 1<<64 - 1},
	} {
		g := event.GaugeData{Value: tt.value, Limit: tt.limit}
		if got := g.Percent(); got != tt.want {
			t.Errorf("%d of %d: %d%%, want %d", tt.value, tt.limit, got, tt.want)
		}
	}
	if _, err := json.Marshal(gauge(0, "files", 1, "a")); err != nil {
		t.Error(err)
	}
}

// An unchanged gauge allocates nothing.
func TestGaugeAllocs(t *testing.T) {
	if raceDetector {
		t.Skip("the race detector allocates")
	}
	e := detector.NewEngine(ruleSet(t, gaugeRules))
	over, under := gauge(0, "files", 95, ""), gauge(0, "memory", 10, "")
	if n := testing.AllocsPerRun(100, func() {
		e.Observe(over, at(0))
		e.Observe(under, at(0))
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

// BenchmarkGauge observes a gauge that stays over its threshold.
func BenchmarkGauge(b *testing.B) {
	e := detector.NewEngine(ruleSet(b, gaugeRules))
	ev := gauge(0, "files", 95, "")
	b.ReportAllocs()
	for b.Loop() {
		e.Observe(ev, at(0))
	}
}

// A gauge that gets worse may have been reported last by a rule that is gone since.
func TestGaugeWorsensAfterItsRuleIsGone(t *testing.T) {
	rule := func(name string, from int) string {
		return fmt.Sprintf(`
- name: %[1]s
  fault: f
  events: [gauge]
  when: gauge.name == "pids" && gauge.percent >= %[2]d
  clearWhen: gauge.percent < 80
  condition: Sick
  reason: R
  message: %[1]s has ${gauge.value}
  severityWhen: {critical: gauge.percent == 100}
  threshold: {count: 2, within: 10m}
`, name, from)
	}
	both, one := ruleSet(t, rule("first", 95)+rule("second", 90)), ruleSet(t, rule("first", 95))
	for name, gone := range map[string]func(*detector.Engine) *detector.Engine{
		"reload": func(e *detector.Engine) *detector.Engine {
			want(t, e.Replace(one, at(2*time.Second)))
			return e
		},
		"restart": func(e *detector.Engine) *detector.Engine {
			saved, err := e.Snapshot()
			if err != nil {
				t.Fatal(err)
			}
			return restartedFrom(t, one, saved, 2*time.Second)
		},
	} {
		t.Run(name, func(t *testing.T) {
			e := detector.NewEngine(both)
			e.Observe(source("gauge/pids", true), at(0))
			want(t, e.Observe(gauge(0, "pids", 95, ""), at(0)))
			want(t, e.Observe(gauge(time.Second, "pids", 92, ""), at(time.Second)), "first  firing", "Sick=True R")
			e = gone(e)
			want(t, e.Observe(gauge(3*time.Second, "pids", 100, ""), at(3*time.Second)), "Sick=True R")
			if p := e.Problems()[0]; p.Severity != problem.Critical || p.Message != "first has 100" {
				t.Errorf("%s, %q; want critical, first has 100", p.Severity, p.Message)
			}
		})
	}
}
