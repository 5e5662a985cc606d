package detector_test

import (
	"testing"
	"time"

	"github.com/kernosis/kernosis/collector/event"
	"github.com/kernosis/kernosis/detector"
	"github.com/kernosis/kernosis/detector/rules"
)

const benchRules = `
- {name: kind, events: [diskio], condition: Sick, reason: R, message: m, latched: true}
- {name: when, events: [oomkill], when: "event.scope == 'memcg' && task.comm != 'init'", groupBy: [cgroup.path], condition: Sick, reason: R, message: m, latched: true}
- {name: other, events: [hungtask], when: event.wait == "lock", groupBy: [task.pid], condition: Ill, reason: R, message: m, latched: true}
`

// hot returns a function that observes the event as a new record each time.
func hot(e *detector.Engine, ev *event.Event) func() {
	now := at(time.Hour)
	return func() {
		ev.BootTime++
		e.Observe(ev, now)
	}
}

func disk() *event.Event {
	return &event.Event{Kind: event.DiskIO, Time: at(0), BootTime: 1, Device: &event.Device{Name: "sda"},
		DiskIO: &event.DiskIOData{Op: "write", Error: "EIO"}}
}

func hung(wait string) *event.Event {
	return &event.Event{Kind: event.HungTask, Time: at(0), BootTime: 1, Task: &event.Task{PID: 5, Comm: "t"},
		HungTask: &event.HungTaskData{Wait: wait, BlockedFor: event.Duration(130 * time.Second)}}
}

func cases(t testing.TB) []struct {
	name   string
	allocs float64
	f      func()
} {
	set := ruleSet(t, benchRules)
	shipped, err := detector.Load(rules.FS)
	if err != nil {
		t.Fatal(err)
	}
	return []struct {
		name   string
		allocs float64
		f      func()
	}{
		{"no rule for the kind", 0, hot(detector.NewEngine(set), &event.Event{Kind: event.FSError, BootTime: 1})},
		{"when is false", 0, hot(detector.NewEngine(set), hung("io"))},
		{"counts up", 0, hot(detector.NewEngine(set), disk())},
		{"counts up, with when", 1, hot(detector.NewEngine(set), oom(0, "/a"))}, // the CEL string of task.comm
		{"temporary, told each time", 15, hot(detector.NewEngine(ruleSet(t, `
- {name: told, events: [diskio], groupBy: [device.name], reason: R, message: "${event.op} of ${device.name}"}
`)), disk())},
		{"shipped rules, read-ahead", 0, hot(detector.NewEngine(shipped), func() *event.Event {
			ev := disk()
			ev.DiskIO.ReadAhead = true
			return ev
		}())},
		{"shipped rules, oom kill", 50, hot(detector.NewEngine(shipped), oom(0, "/a"))},
	}
}

func BenchmarkObserve(b *testing.B) {
	for _, c := range cases(b) {
		b.Run(c.name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				c.f()
			}
		})
	}
}

// TestAllocs holds the hot paths to their allocations.
func TestAllocs(t *testing.T) {
	for _, c := range cases(t) {
		for range 5000 {
			c.f() // the ring of identities is full
		}
		if have := testing.AllocsPerRun(2000, c.f); have > c.allocs {
			t.Errorf("%s: %v allocations, want at most %v", c.name, have, c.allocs)
		}
	}
}

func BenchmarkTick(b *testing.B) {
	e := detector.NewEngine(ruleSet(b, `
- {name: told, events: [oomkill], groupBy: [task.pid], reason: R, message: m}
`))
	for i := range 1000 {
		ev := oom(time.Duration(i), "/a")
		ev.Task.PID = uint32(i)
		e.Observe(ev, at(0))
	}
	b.ReportAllocs()
	for b.Loop() {
		e.Tick(at(time.Second))
	}
}

func BenchmarkLoadShipped(b *testing.B) {
	for b.Loop() {
		if _, err := detector.Load(rules.FS); err != nil {
			b.Fatal(err)
		}
	}
}
