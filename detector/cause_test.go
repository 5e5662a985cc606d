package detector_test

import (
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"github.com/kernosis/kernosis/collector/event"
	"github.com/kernosis/kernosis/detector"
	"github.com/kernosis/kernosis/detector/problem"
)

// A problem is hidden only by a cause on the same device, whichever of them comes first.
func TestDependsOnEqual(t *testing.T) {
	e := detector.NewEngine(ruleSet(t, `
- {name: cause, events: [diskio], groupBy: [event.op, device.name], condition: Sick, reason: Cause, message: m, clearAfter: 1m, maxGroups: 2}
- {name: effect, events: [mount.readonly], groupBy: [device.name], condition: Ill, reason: Effect, message: m, latched: true, dependsOn: [cause], equal: {device.name: device.name}}
`))
	disk := func(d time.Duration, name string) []problem.Transition {
		return e.Observe(&event.Event{Kind: event.DiskIO, Time: at(d).Wall, BootTime: event.Duration(at(d).Boot), Device: &event.Device{Name: name}, DiskIO: &event.DiskIOData{Op: "read"}}, at(d))
	}
	readOnly := func(d time.Duration, name string) []problem.Transition {
		return e.Observe(&event.Event{Kind: event.MountReadOnly, Time: at(d).Wall, BootTime: event.Duration(at(d).Boot), Device: &event.Device{Name: name}, Mount: &event.MountData{}}, at(d))
	}
	e.Observe(source("diskio", true), at(0))
	e.Observe(source("mount", true), at(0))
	want(t, disk(time.Second, "sda"), "cause read, sda firing", "Sick=True Cause")
	want(t, readOnly(2*time.Second, "sdb"), "effect sdb firing", "Ill=True Effect")
	want(t, readOnly(3*time.Second, "sda"), "effect sda firing by cause")
	want(t, disk(30*time.Second, "sdb"), "cause read, sdb firing", "effect sdb firing by cause", "Ill=False SuppressedByCause", "Sick=True Cause")
	// The devices of the overflow group are unknown.
	want(t, readOnly(31*time.Second, "sdc"), "effect sdc firing", "Ill=True Effect")
	want(t, disk(32*time.Second, "sdc"), `cause \overflow firing`, "Sick=True Cause")
	want(t, e.Tick(at(61*time.Second)), "cause read, sda resolved", "effect sda firing", "Ill=True Effect", "Sick=True Cause")
	want(t, e.Tick(at(2*time.Minute)), "cause read, sdb resolved", "effect sdb firing", `cause \overflow resolved`, "Ill=True Effect", "Sick=False Well")
}

// An effect that ends with its cause is not announced in between.
func TestEffectEndsWithItsCause(t *testing.T) {
	e := detector.NewEngine(ruleSet(t, `
- {name: cause, events: [mount.readonly], groupBy: [device.name], condition: Sick, reason: Cause, message: m, clearWhen: event.kind == "mount.writable"}
- {name: effect, events: [log], logs: [kmsg], pattern: read-only, condition: Sick, reason: Effect, message: m, clearWhen: event.kind == "mount.writable", dependsOn: [cause]}
- {name: line, events: [log], logs: [kmsg], pattern: read-only, clearPattern: unmounted, condition: Ill, reason: Line, message: m, dependsOn: [effect]}
- {name: lasts, events: [log], logs: [kmsg], pattern: read-only, clearPattern: unmounted, condition: Ill, reason: Lasts, message: m, dependsOn: [line]}
`))
	mount := func(d time.Duration, kind event.Kind) []problem.Transition {
		return e.Observe(&event.Event{Kind: kind, Time: at(d).Wall, BootTime: event.Duration(at(d).Boot), Device: &event.Device{Name: "sda"}, Mount: &event.MountData{}}, at(d))
	}
	e.Observe(source("mount", true), at(0))
	e.Observe(source("log/kmsg", true), at(0))
	want(t, mount(time.Second, event.MountReadOnly), "cause sda firing", "Sick=True Cause")
	want(t, e.Observe(logged(2*time.Second, "read-only"), at(2*time.Second)),
		"effect  firing by cause", "line  firing by effect", "lasts  firing by line", "Ill=False SuppressedByCause")
	want(t, mount(3*time.Second, event.MountWritable), "cause sda resolved", "effect  resolved by cause", "line  firing", "Ill=True Line", "Sick=False Well")
	want(t, e.Observe(logged(4*time.Second, "unmounted"), at(4*time.Second)), "line  resolved", "lasts  resolved by line", "Ill=False Well")

	// The same holds for the end by quiet.
	e = detector.NewEngine(ruleSet(t, `
- {name: cause, events: [oomkill], condition: Sick, reason: Cause, message: m, clearAfter: 5m}
- {name: effect, events: [oomkill], condition: Sick, reason: Effect, message: m, clearAfter: 5m, dependsOn: [cause]}
`))
	e.Observe(source("oomkill", true), at(0))
	want(t, e.Observe(oom(time.Second, "/a"), at(time.Second)), "cause  firing", "effect  firing by cause", "Sick=True Cause")
	want(t, e.Tick(at(time.Hour)), "cause  resolved", "effect  resolved by cause", "Sick=False Well")
}

func TestEqualMistakes(t *testing.T) {
	const head = `apiVersion: rules.kernosis.io/v1
rules:
- {name: cause, events: [diskio], groupBy: [device.name], reason: R, message: m}
- {name: effect, events: [diskio], groupBy: [device.name, event.lower], reason: R, message: m, `
	const other = "- {name: other, events: [diskio], groupBy: [event.op], reason: R, message: m}\n"
	for text, want := range map[string]string{
		"equal: {event.lower: device.name}":                            "rules[1].equal: requires dependsOn and at least one field",
		"dependsOn: [cause], equal: {}":                                "rules[1].equal: requires dependsOn and at least one field",
		"dependsOn: [cause], equal: {event.lowr: device.name}":         "rules[1].equal: event.lowr is not in this rule's groupBy, did you mean \"event.lower\"?",
		"dependsOn: [cause], equal: {event.lower: event.lower}":        "rules[1].equal: event.lower is not in groupBy of rule cause",
		"dependsOn: [cause, other], equal: {event.lower: device.name}": "rules[1].dependsOn[1]: equal names no field of other's groupBy (event.op)",
		"dependsOn: [cause], equal: {event.lower: [device.name]}":      "rules[1].equal.event.lower: want text",
		"dependsOn: [cause], equal: [device.name]":                     "rules[1].equal: want a map",
	} {
		_, err := detector.Load(fstest.MapFS{"r.yaml": &fstest.MapFile{Data: []byte(head + text + "}\n" + other)}})
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s:\n%v\nwant %s", text, err, want)
		}
	}
}
