package detector_test

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/kernosis/kernosis/collector/event"
	"github.com/kernosis/kernosis/detector"
	"github.com/kernosis/kernosis/detector/problem"
)

const reportRules = `
- name: gpu
  events: [check]
  when: event.check == "gpu/Sick" && event.status == "problem"
  clearWhen: event.check == "gpu/Sick" && event.status != "problem"
  condition: Sick
  reason: ReportedProblem
  message: ${event.message}
- {name: seen, events: [check], when: 'event.check == "gpu/warn" && event.status == "problem"', groupBy: [event.reason], reason: ReportedProblem, message: "${event.message}"}
`

// The problem and the condition take the reason of a problem daemon, and silence ends
// the problem without a report of health.
func TestReportedReasons(t *testing.T) {
	e := detector.NewEngine(ruleSet(t, reportRules))
	say := func(s int, status, reason string, want ...string) {
		t.Helper()
		d := time.Duration(s) * time.Second
		ev := checked(d, "gpu/Sick", status, "of "+reason)
		ev.Check.Reason = reason
		if diff := cmp.Diff(append([]string(nil), want...), states(e.Observe(ev, at(d)))); diff != "" {
			t.Errorf("%d (-want +got):\n%s", s, diff)
		}
	}
	say(1, "problem", "XidError", "gpu  firing", "Sick=True XidError")
	say(2, "problem", "XidError")
	say(3, "problem", "FellOffBus", "Sick=True FellOffBus")
	if have := conditionOf(e); have != "True FellOffBus: of FellOffBus" {
		t.Error(have)
	}
	// As after a restart.
	snapshot, err := e.Snapshot()
	if err != nil {
		t.Fatal(err)
	}
	e = detector.NewEngine(ruleSet(t, reportRules))
	if err := e.Resume(snapshot, at(3*time.Second)); err != nil {
		t.Fatal(err)
	}
	say(4, "problem", "FellOffBus")
	say(5, "unknown", "", "gpu  resolved", "Sick=Unknown SourceUnavailable")
	say(6, "problem", "FellOffBus", "gpu  firing", "Sick=True FellOffBus")
	say(7, "ok", "", "gpu  resolved", "Sick=False Well")
}

// An event that is sent twice counts once, also across a restart. Equal events with
// different IDs are different, even at the same time.
func TestReportedTwice(t *testing.T) {
	e := detector.NewEngine(ruleSet(t, reportRules))
	say := func(reason, id string) (count uint64) {
		ev := checked(time.Second, "gpu/warn", event.CheckProblem, "m")
		ev.Check.Reason, ev.Check.ID = reason, id
		e.Observe(ev, at(time.Second))
		for _, p := range e.Problems() {
			if p.Reason == reason && p.State == problem.Firing {
				count = p.Count
			}
		}
		return count
	}
	for _, step := range []struct {
		reason, id string
		want       uint64
	}{{"A", "k/0", 1}, {"A", "k/1", 2}, {"A", "k/0", 2}, {"B", "k/2", 1}, {"A", "l/0", 3}} {
		if got := say(step.reason, step.id); got != step.want {
			t.Errorf("%s %s: %d, want %d", step.reason, step.id, got, step.want)
		}
	}
	snapshot, err := e.Snapshot()
	if err != nil {
		t.Fatal(err)
	}
	e = detector.NewEngine(ruleSet(t, reportRules))
	if err := e.Resume(snapshot, at(2*time.Second)); err != nil {
		t.Fatal(err)
	}
	if got := say("A", "k/1"); got != 3 {
		t.Errorf("after a restart: %d, want 3", got)
	}
}
