package detector_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/kernosis/kernosis/detector"
)

// TestSourcesWithoutRoom checks that sources beyond MaxStems are counted and named, and that
// others are not.
func TestSourcesWithoutRoom(t *testing.T) {
	e := detector.NewEngine(ruleSet(t, "\n- {name: r, events: [log], pattern: oops, condition: Sick, reason: R, message: m, latched: true}\n"))
	others := down("log", "this log is not configured")
	e.Observe(others, at(0))
	for i := range detector.MaxStems - 1 {
		e.Observe(source(fmt.Sprintf("log/l%d", i), true), at(0))
	}
	if s := e.Stats(); s.Sources != 0 {
		t.Errorf("%d sources without room, the latest %s", s.Sources, s.Source)
	}
	if have := conditionOf(e); have != "False Well: all is well" {
		t.Error(have)
	}
	e.Observe(source("log/more", false), at(time.Second))
	e.Observe(source("log/l3", true), at(2*time.Second))
	e.Observe(down("log/evenmore", "gone"), at(3*time.Second))
	if s := e.Stats(); s.Sources != 2 || s.Source != "log/evenmore" {
		t.Errorf("%d without room, the latest %q; want 2 and log/evenmore", s.Sources, s.Source)
	}
	if have := conditionOf(e); have != "Unknown SourceUnavailable: log: more than 256 sources" {
		t.Error(have)
	}
	// What a replay of the journal reports counts no more once sources report themselves.
	e.Restarted(at(4 * time.Second))
	e.Observe(source("log/l1", true), at(5*time.Second))
	e.Observe(others, at(5*time.Second))
	e.Tick(at(10 * time.Minute))
	if have := conditionOf(e); have != "False Well: all is well" {
		t.Error(have)
	}
}
