package detector_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/kernosis/kernosis/collector/event"
	"github.com/kernosis/kernosis/detector"
)

const benchRules = `
- {name: kind, events: [diskio], condition: Sick, reason: R, message: m, latched: true}
- {name: when, events: [oomkill], when: "event.scope == 'memcg' && task.comm != 'init'", groupBy: [cgroup.path], condition: Sick, reason: R, message: m, latched: true}
- {name: other, events: [hungtask], when: event.wait == "lock", groupBy: [task.pid], condition: Ill, reason: R, message: m, latched: true}
`

const benchLogRules = `
- {name: fs, events: [log], logs: [kmsg], pattern: 'EXT4-fs error \(device (?P<device>\w+)\)', groupBy: [match.device], condition: Sick, reason: R, message: m, latched: true}
- {name: link, events: [log], logs: [kmsg], pattern: '(?P<port>\w+): Link is (?P<state>Up|Down)', when: match.state == "Down", groupBy: [match.port], condition: Ill, reason: R, message: m, latched: true}
- {name: kill, events: [oomkill], condition: Sick, reason: R, message: m, latched: true}
`

// thousand returns 1,000 rules: 997 made from the format rule with a number, and three
// for kind, two of them with an expression.
func thousand(rule, kind string) string {
	var b strings.Builder
	for i := range 997 {
		fmt.Fprintf(&b, rule+"\n", i)
	}
	fmt.Fprintf(&b, "- {name: a, events: [%[1]s], condition: Sick, reason: R, message: m, latched: true}\n"+
		"- {name: b, events: [%[1]s], when: event.op == 'write', groupBy: [device.name], condition: Sick, reason: R, message: m, latched: true}\n"+
		"- {name: c, events: [%[1]s], when: event.op == 'read', groupBy: [device.name], condition: Ill, reason: R, message: m, latched: true}\n", kind)
	return b.String()
}

const (
	// otherKinds is a rule for other event kinds.
	otherKinds = "- {name: o%d, events: [oomkill, hungtask, sockfail], when: task.comm != 'x', groupBy: [task.pid], reason: R, message: m}"
	// sameKind is a rule that evaluates the event.
	sameKind = "- {name: o%d, events: [diskio], when: event.op == 'discard', groupBy: [device.name], reason: R, message: m}"
	// otherLines is a log rule for other lines.
	otherLines = "- {name: l%[1]d, events: [log], pattern: 'controller fault %[1]d of (?P<port>\\w+)', groupBy: [match.port], condition: Ill, reason: R, message: m, latched: true}"
)

func inLog(name, text string) *event.Event {
	ev := logged(0, text)
	ev.Log.Log = name
	return ev
}

// hot returns a function that observes the event, each time as a new record.
func hot(e *detector.Engine, ev *event.Event) func() {
	now := at(time.Hour)
	return func() {
		ev.BootTime++
		e.Observe(ev, now)
	}
}

func disk() *event.Event {
	return &event.Event{Kind: event.DiskIO, Time: at(0).Wall, BootTime: 1, Device: &event.Device{Name: "sda"},
		DiskIO: &event.DiskIOData{Op: "write", Error: "EIO"}}
}

func hung(wait string) *event.Event {
	return &event.Event{Kind: event.HungTask, Time: at(0).Wall, BootTime: 1, Task: &event.Task{PID: 5, Comm: "t"},
		HungTask: &event.HungTaskData{Wait: wait, BlockedFor: event.Duration(130 * time.Second)}}
}

func cases(t testing.TB) []struct {
	name   string
	allocs float64
	f      func()
} {
	set, logs := ruleSet(t, benchRules), ruleSet(t, benchLogRules)
	shipped, err := detector.Load(detector.Shipped())
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
		{"counts up, beside log rules", 0, hot(detector.NewEngine(logs), oom(0, "/a"))},
		{"counts up, with when", 1, hot(detector.NewEngine(set), oom(0, "/a"))}, // the CEL string of task.comm
		{"when reads a label that is another", 7, hot(detector.NewEngine(ruleSet(t, `
- {name: label, events: [oomkill], when: 'pod.labels["team"] == "web"', reason: R, message: m}
`)), oomInPod(0, map[string]string{"team": "db", "app": "x"}))},
		{"temporary, reported each time", 15, hot(detector.NewEngine(ruleSet(t, `
- {name: told, events: [diskio], groupBy: [device.name], reason: R, message: "${event.op} of ${device.name}"}
`)), disk())},
		{"shipped rules, read-ahead", 0, hot(detector.NewEngine(shipped), func() *event.Event {
			ev := disk()
			ev.DiskIO.ReadAhead = true
			return ev
		}())},
		{"line that no pattern matches", 0, hot(detector.NewEngine(logs), logged(0, "usb 1-1: new device"))},
		{"line in a log without patterns", 0, hot(detector.NewEngine(logs), inLog("audit", "EXT4-fs error (device sda1)"))},
		{"line, when is false", 2, hot(detector.NewEngine(logs), logged(0, "eth0: Link is Up"))},        // bounds of the match, the CEL string of a capture
		{"line, counts up", 1, hot(detector.NewEngine(logs), logged(0, "EXT4-fs error (device sda1)"))}, // bounds of the match
		{"1,000 rules, none for the kind", 0, hot(detector.NewEngine(ruleSet(t, thousand(otherKinds, "diskio"))), &event.Event{Kind: event.FSError, BootTime: 1})},
		{"1,000 rules, 3 for the kind, 2 count up", 0, hot(detector.NewEngine(ruleSet(t, thousand(otherKinds, "diskio"))), disk())},
		{"1,000 rules, all for the kind, 2 count up", 0, hot(detector.NewEngine(ruleSet(t, thousand(sameKind, "diskio"))), disk())},
		{"1,000 rules, 997 of logs, line of one counts up", 1, hot(detector.NewEngine(ruleSet(t, thousand(otherLines, "diskio"))), logged(0, "nvme0: controller fault 500 of port1"))},
		{"shipped rules, oom kill", 53, hot(detector.NewEngine(shipped), oom(0, "/a"))},
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

// TestAllocs checks the number of allocations of the hot paths.
func TestAllocs(t *testing.T) {
	if raceDetector {
		t.Skip("under the race detector sync.Pool forgets at random; the same test runs without it")
	}
	for _, c := range cases(t) {
		for range 5000 {
			c.f() // fill the ring of identities
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
		if _, err := detector.Load(detector.Shipped()); err != nil {
			b.Fatal(err)
		}
	}
}
