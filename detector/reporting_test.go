package detector_test

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/kernosis/kernosis/detector"
)

const twoSources = `
- {name: probe, fault: f, events: [oomkill], groupBy: [task.pid], reason: R, message: probe}
- {name: log, fault: f, events: [log], pattern: 'Killed process (?P<pid>\d+)', groupBy: [match.pid], reason: R, message: log}
`

// Faults that occurred while the agent was down count once, in whatever order the sources
// catch up: one may report all of them before the other begins.
func TestSourcesCatchUp(t *testing.T) {
	set := ruleSet(t, twoSources)
	random := rand.New(rand.NewPCG(1, 2))
	for range 500 {
		var faults []time.Duration
		var last time.Duration
		for range 1 + random.IntN(12) {
			last += time.Duration(random.Int64N(int64(20 * time.Second)))
			faults = append(faults, last)
		}
		// Both have reported an earlier fault before the restart.
		first := time.Second
		e := detector.NewEngine(set)
		report := func(log bool, n int, of, now time.Duration) {
			ev := oom(of, "/a")
			if log {
				ev = numbered(uint64(n+1), "Killed process 7 (victim)")
				// A log's time may be a little late.
				ev.Time = at(of + time.Duration(random.Int64N(int64(100*time.Millisecond)))).Wall
			}
			e.Observe(ev, at(now))
		}
		report(false, 0, 0, 0)
		report(true, 0, 0, 0)
		b, err := e.Snapshot()
		if err != nil {
			t.Fatal(err)
		}
		now := first + last + time.Second
		e = detector.NewEngine(set)
		if err := e.Restore(b, at(now)); err != nil {
			t.Fatal(err)
		}
		next := map[bool]int{}
		for next[true] < len(faults) || next[false] < len(faults) {
			log := random.IntN(2) == 0
			if next[log] == len(faults) {
				log = !log
			}
			// Often, one source catches up completely before the other.
			for range 1 + random.IntN(len(faults)) {
				if n := next[log]; n < len(faults) {
					report(log, n+1, first+faults[n], now)
					next[log]++
				}
			}
		}
		p := e.Problems()
		if want := uint64(len(faults) + 1); len(p) != 1 || p[0].Count != want {
			t.Fatalf("%d problems, count %d, want one of %d: faults at %v", len(p), p[0].Count, want, faults)
		}
	}
}

// A fault is one problem even if it is so old that the problem would be over before the other
// source reports it.
func TestSourcesCatchUpLate(t *testing.T) {
	e := detector.NewEngine(ruleSet(t, twoSources))
	line := numbered(1, "Killed process 7 (victim)")
	line.Time = at(time.Millisecond).Wall
	want(t, e.Observe(line, at(time.Hour)), "log 7 firing")
	want(t, e.Observe(oom(0, "/a"), at(time.Hour)))
	want(t, e.Tick(at(time.Hour+5*time.Minute)), "log 7 resolved")
}
