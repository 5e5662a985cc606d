package detector_test

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/kernosis/kernosis/collector/event"
	"github.com/kernosis/kernosis/detector"
)

// Sources that are down have a reason; losses are reported for five minutes.
func TestSources(t *testing.T) {
	e := detector.NewEngine(ruleSet(t, "- {name: r, fault: f, events: [oomkill], groupBy: [cgroup.path], reason: R, message: m, severity: info, clearAfter: 1m}\n"))
	e.Observe(source("oomkill", true), at(0))
	e.Observe(source("hungtask", false), at(0))
	e.Observe(source(event.LogStem, false), at(0)) // no log is configured
	e.Observe(&event.Event{Kind: event.Lost, Lost: &event.LostData{Stem: "tcpdrop", Count: 3, Reason: "ring-full"}}, at(time.Second))
	want := []detector.SourceState{{Stem: "hungtask", Reason: "because"}, {Stem: "oomkill", Up: true}, {Stem: "tcpdrop", Up: true, Lost: "ring-full"}}
	if diff := cmp.Diff(want, e.Sources()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	e.Observe(source("hungtask", true), at(time.Minute))
	e.Tick(at(10 * time.Minute))
	want = []detector.SourceState{{Stem: "hungtask", Up: true}, {Stem: "oomkill", Up: true}}
	if diff := cmp.Diff(want, e.Sources()); diff != "" {
		t.Errorf("later (-want +got):\n%s", diff)
	}
}
