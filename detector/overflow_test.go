package detector_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/kernosis/kernosis/collector/event"
	"github.com/kernosis/kernosis/detector"
	"github.com/kernosis/kernosis/detector/problem"
)

// Room for two groups, and four disks that stall and resume.
const overflowRules = `
- name: disk
  events: [diskstall]
  clearWhen: event.kind == "diskstall.resumed"
  groupBy: [device.name]
  condition: Sick
  reason: R
  message: m
  maxGroups: 2
`

// wantProblems is like want, but ignores transitions of conditions.
func wantProblems(t *testing.T, have []problem.Transition, transitions ...string) {
	t.Helper()
	want(t, slices.DeleteFunc(slices.Clone(have), func(tr problem.Transition) bool { return tr.Problem == nil }), transitions...)
}

func stall(d time.Duration, kind event.Kind, device string) *event.Event {
	return &event.Event{Kind: kind, Time: at(d).Wall, BootTime: event.Duration(d + time.Hour), Device: &event.Device{Name: device}, DiskStall: &event.DiskStallData{}}
}

// The problem of the overflow group ends exactly when the last of its groups has ended, also
// across a restart.
func TestOverflowClears(t *testing.T) {
	rules := ruleSet(t, overflowRules)
	e := detector.NewEngine(rules)
	second := time.Duration(0)
	report := func(kind event.Kind, device string, transitions ...string) {
		t.Helper()
		second += time.Second
		wantProblems(t, e.Observe(stall(second, kind, device), at(second)), transitions...)
	}
	e.Observe(source("diskstall", true), at(0))
	for i := range 2 {
		report(event.DiskStalled, fmt.Sprint("own", i), fmt.Sprintf("disk own%d firing", i))
	}
	report(event.DiskStalled, "a", `disk \overflow firing`)
	report(event.DiskStalled, "b")
	report(event.DiskStalled, "a")
	report(event.DiskResumed, "never-stalled")
	report(event.DiskResumed, "a")

	state, err := e.Snapshot()
	if err != nil {
		t.Fatal(err)
	}
	e = detector.NewEngine(rules)
	if err := e.Resume(state, at(second)); err != nil {
		t.Fatal(err)
	}
	report(event.DiskResumed, "a")
	report(event.DiskResumed, "b", `disk \overflow resolved`)
}

// A group that gets its own problem again is no longer part of the overflow group.
func TestOverflowIsLeftForARoom(t *testing.T) {
	e := detector.NewEngine(ruleSet(t, overflowRules))
	e.Observe(source("diskstall", true), at(0))
	for i, device := range []string{"own0", "own1", "a"} {
		d := time.Duration(i) * time.Second
		e.Observe(stall(d, event.DiskStalled, device), at(d))
	}
	e.Observe(stall(5*time.Second, event.DiskResumed, "own0"), at(5*time.Second))
	wantProblems(t, e.Observe(stall(6*time.Second, event.DiskStalled, "a"), at(6*time.Second)), `disk \overflow resolved`, "disk a firing")
	wantProblems(t, e.Observe(stall(7*time.Second, event.DiskResumed, "a"), at(7*time.Second)), "disk a resolved")
}

// With more groups than can be distinguished, the problem ends unless it is seen again within five
// minutes.
func TestOverflowOfUncountedGroups(t *testing.T) {
	e := detector.NewEngine(ruleSet(t, overflowRules))
	e.Observe(source("diskstall", true), at(0))
	const devices = 5000
	for i := range devices {
		e.Observe(stall(time.Duration(i), event.DiskStalled, fmt.Sprint("d", i)), at(time.Duration(i)))
	}
	for i := range devices {
		wantProblems(t, e.Observe(stall(time.Second, event.DiskResumed, fmt.Sprint("x", i)), at(time.Second)))
	}
	for i := 2; i < 2+4096; i++ {
		wantProblems(t, e.Observe(stall(time.Minute+time.Duration(i), event.DiskResumed, fmt.Sprint("d", i)), at(time.Minute)))
	}
	wantProblems(t, e.Tick(at(6*time.Minute-time.Second)))
	wantProblems(t, e.Tick(at(6*time.Minute)), `disk \overflow resolved`)
}
