package detector_test

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/kernosis/kernosis/collector/event"
	"github.com/kernosis/kernosis/detector"
	"github.com/kernosis/kernosis/detector/problem"
)

// input is one step of an engine, as recorded in a journal.
type input struct {
	now     event.Moment
	event   *event.Event
	mutes   []problem.Mute
	setMute bool
	restart bool
}

func (in input) apply(e *detector.Engine) []problem.Transition {
	switch {
	case in.restart:
		e.Restarted(in.now)
		return nil
	case in.setMute:
		return e.SetMutes(in.mutes, in.now)
	case in.event != nil:
		return e.Observe(in.event, in.now)
	}
	return e.Tick(in.now)
}

// TestRestartAnywhere kills the agent at any step, as kill -9 does, with a snapshot
// that was saved any number of steps before. The engine that is restored from the
// snapshot and the journal must behave exactly like one that was never restarted. So
// no firing problem or mute is forgotten or reported twice.
func TestRestartAnywhere(t *testing.T) {
	set := ruleSet(t, propertyRules)
	const steps = 150
	for seed := range uint64(6) {
		r := rand.New(rand.NewPCG(seed, 4))
		whole := detector.NewEngine(set)
		var journal []input
		saved, savedAt := []byte(nil), 0
		var restored *detector.Engine
		now := at(0)
		for step := range steps {
			now = now.Add(time.Duration(r.IntN(2500)) * time.Millisecond)
			in := input{now: now}
			switch r.IntN(12) {
			case 0:
				in.setMute = true
				for range r.IntN(3) {
					until := now.Wall.Sub(epoch) + time.Duration(r.IntN(40))*time.Second
					in.mutes = append(in.mutes, []problem.Mute{muteOf("sick", until, "cgroup.path", "/1"), muteOf("ill", until), muteOf("told", until)}[r.IntN(3)])
				}
			case 1: // only time passes
			default:
				in.event = randomEvent(r, now, nil)
			}
			if step%25 == 24 {
				// Killed before this step: restore the snapshot, then replay the journal after it.
				restored = detector.NewEngine(set)
				if saved != nil {
					if err := restored.Resume(saved, now); err != nil {
						t.Fatal(err)
					}
				}
				for _, j := range journal[savedAt:] {
					j.apply(restored)
				}
				again := input{now: now, restart: true}
				again.apply(whole)
				again.apply(restored)
				journal = append(journal, again)
			}
			journal = append(journal, in)
			reported := in.apply(whole)
			if restored != nil {
				if diff := cmp.Diff(reported, in.apply(restored)); diff != "" {
					t.Fatalf("seed %d, step %d: (-never ended +restored):\n%s", seed, step, diff)
				}
				if diff := cmp.Diff(whole.Problems(), restored.Problems()); diff != "" {
					t.Fatalf("seed %d, step %d: (-never ended +restored):\n%s", seed, step, diff)
				}
				if diff := cmp.Diff(whole.Conditions(), restored.Conditions()); diff != "" {
					t.Fatalf("seed %d, step %d: (-never ended +restored):\n%s", seed, step, diff)
				}
			}
			if r.IntN(10) == 0 {
				from := whole
				if restored != nil {
					from = restored
				}
				var err error
				if saved, err = from.Snapshot(); err != nil {
					t.Fatal(err)
				}
				savedAt = len(journal)
			}
		}
	}
}
