package detector_test

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/kernosis/kernosis/collector/event"
	"github.com/kernosis/kernosis/detector"
	"github.com/kernosis/kernosis/detector/problem"
	"github.com/kernosis/kernosis/vmtest/testenv"
)

const steppedRules = `
- {name: level, events: [oomkill], condition: Ill, reason: R, message: m, clearAfter: 5m}
- {name: sick, events: [oomkill], groupBy: [cgroup.path], condition: Sick, reason: R, message: m, clearAfter: 30m, threshold: {count: 3, within: 5m}}
`

// When the wall clock is set back by eight hours, thresholds and periods work as before.
func TestClockSetBack(t *testing.T) {
	e := detector.NewEngine(ruleSet(t, steppedRules))
	back := func(d time.Duration) event.Moment {
		now := at(d)
		now.Wall = now.Wall.Add(-8 * time.Hour)
		return now
	}
	kill := func(d time.Duration) *event.Event {
		ev := oom(d, "/a")
		ev.Time = back(d).Wall
		return ev
	}
	e.Observe(source("oomkill", true), at(0))
	want(t, e.Observe(kill(time.Minute), back(time.Minute)), "level  firing", "Ill=True R")
	want(t, e.Observe(kill(2*time.Minute), back(2*time.Minute)))
	want(t, e.Observe(kill(3*time.Minute), back(3*time.Minute)), "sick /a firing", "Sick=True R")
	if p := e.Problems()[0]; !p.Since.Equal(back(time.Minute).Wall) {
		t.Errorf("since %v, want what the clock said then", p.Since)
	}
	want(t, e.Tick(back(8*time.Minute-1)))
	want(t, e.Tick(back(8*time.Minute)), "level  resolved", "Ill=False Well")
	want(t, e.Tick(back(33*time.Minute)), "sick /a resolved", "Sick=False Well")
}

// A mute keeps the duration that it had when it began.
func TestClockSetForwardInAMute(t *testing.T) {
	e := detector.NewEngine(ruleSet(t, steppedRules))
	forward := func(d time.Duration) event.Moment {
		now := at(d)
		now.Wall = now.Wall.Add(10 * time.Hour)
		return now
	}
	mutes := []problem.Mute{muteOf("level", time.Hour)}
	e.Observe(source("oomkill", true), at(0))
	want(t, e.SetMutes(mutes, at(0)), "mute of level")
	want(t, e.SetMutes(mutes, forward(time.Minute))) // the file is read again
	want(t, e.Observe(oom(59*time.Minute, "/a"), forward(59*time.Minute)), "level  firing muted", "Ill=False Muted")
	want(t, e.Tick(forward(time.Hour)), "mute of level over", "level  firing", "Ill=True R")
}

// A mute of an earlier boot ends by the wall clock, also if that is corrected only after it was read.
func TestClockCorrectedAfterABoot(t *testing.T) {
	mutes := []problem.Mute{muteOf("level", time.Hour)}
	for _, off := range []time.Duration{-24 * time.Hour, 24 * time.Hour} {
		e := detector.NewEngine(ruleSet(t, steppedRules))
		wrong := at(0)
		wrong.Wall = wrong.Wall.Add(off)
		e.Observe(source("oomkill", true), wrong)
		if off < 0 {
			want(t, e.SetMutes(mutes, wrong), "mute of level")
			want(t, e.RenewMutes(mutes, at(time.Minute)))
		} else {
			want(t, e.SetMutes(mutes, wrong))
			want(t, e.RenewMutes(mutes, at(time.Minute)), "mute of level")
		}
		want(t, e.Tick(at(time.Hour-1)))
		want(t, e.Tick(at(time.Hour)), "mute of level over")
	}
}

// A mute may end in centuries, and an event may have the earliest possible time.
func TestFarDates(t *testing.T) {
	e := detector.NewEngine(ruleSet(t, steppedRules))
	e.Observe(source("oomkill", true), at(0))
	m := muteOf("level", time.Hour)
	m.Until = time.Date(2999, 1, 1, 0, 0, 0, 0, time.UTC)
	want(t, e.SetMutes([]problem.Mute{m}, at(0)), "mute of level")
	for i := range 2 {
		old := oom(time.Duration(i), "/a")
		old.Time, old.BootTime = time.Date(1, 1, 2, 0, 0, 0, 0, time.UTC), 0
		want(t, e.Observe(old, at(time.Minute)), [][]string{{"level  firing muted", "Ill=False Muted"}, {"level  resolved muted", "level  firing muted"}}[i]...)
	}
	want(t, e.Observe(oom(time.Minute, "/a"), at(time.Minute)), "level  resolved muted", "level  firing muted") // not the third within 5 minutes
}

// Steps of the wall clock, also across restarts, change neither the transitions nor
// their times since boot.
func TestAnyClockSteps(t *testing.T) {
	set := ruleSet(t, propertyRules)
	for seed := range uint64(testenv.Cases(t, 30)) {
		r := rand.New(rand.NewPCG(seed, 9))
		steady, stepped := detector.NewEngine(set), detector.NewEngine(set)
		now, offset := at(0), time.Duration(0)
		for step := range 400 {
			now = now.Add(time.Duration(r.IntN(2500)) * time.Millisecond)
			if r.IntN(20) == 0 {
				offset = time.Duration(r.Int64N(int64(200*24*time.Hour))) - 100*24*time.Hour
			}
			shifted := event.Moment{Wall: now.Wall.Add(offset), Boot: now.Boot}
			var want, have []problem.Transition
			switch r.IntN(12) {
			case 0:
				want, have = steady.Tick(now), stepped.Tick(shifted)
			case 1:
				var mutes, later []problem.Mute
				for range r.IntN(3) {
					m := muteOf([]string{"sick", "ill", "told"}[r.IntN(3)], now.Wall.Sub(epoch)+time.Duration(1+r.IntN(40))*time.Second)
					mutes = append(mutes, m)
					m.Until = m.Until.Add(offset)
					later = append(later, m)
				}
				want, have = steady.SetMutes(mutes, now), stepped.SetMutes(later, shifted)
			case 2:
				data, err := stepped.Snapshot()
				if err != nil {
					t.Fatal(err)
				}
				steady.Restarted(now)
				stepped = detector.NewEngine(set)
				if err := stepped.Restore(data, shifted); err != nil {
					t.Fatal(err)
				}
			default:
				ev := randomEvent(r, now, nil)
				want = steady.Observe(ev, now)
				same := ev.Clone()
				same.Time = same.Time.Add(offset)
				have = stepped.Observe(same, shifted)
			}
			if diff := cmp.Diff(states(want), states(have)); diff != "" {
				t.Fatalf("seed %d, step %d, the clock is %v off (-steady +stepped):\n%s", seed, step, offset, diff)
			}
			for _, tr := range have {
				if c := tr.Condition; c != nil && c.LastTransition.After(shifted.Wall) && !slices.ContainsFunc(want, func(w problem.Transition) bool {
					return w.Condition != nil && w.Condition.Type == c.Type && w.Condition.LastTransition.Before(now.Wall)
				}) {
					t.Fatalf("seed %d, step %d: %s changed at %v, which is still to come", seed, step, c.Type, c.LastTransition)
				}
			}
		}
	}
}
