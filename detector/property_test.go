package detector_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/kernosis/kernosis/collector/event"
	"github.com/kernosis/kernosis/detector"
	"github.com/kernosis/kernosis/detector/problem"
)

const propertyRules = `
- {name: told, events: [oomkill], groupBy: [cgroup.path], reason: R, message: m, clearAfter: 20s, maxGroups: 5}
- {name: some, events: [oomkill], when: task.pid % 3 == 0, reason: R, message: m, clearAfter: 5s}
- {name: sick, events: [oomkill], groupBy: [cgroup.path], condition: Sick, reason: R, message: m, clearAfter: 30s, threshold: {count: 3, within: 10s}}
- {name: ill, events: [hungtask], groupBy: [task.pid], condition: Ill, reason: R, message: m, for: 7s, clearWhen: event.kind == "hungtask.resumed", dependsOn: [sick]}
- {name: bad, events: [hungtask], groupBy: [task.pid], condition: Ill, reason: R, message: m, clearAfter: 9s, severity: critical}
`

// randomEvent returns an event of one of a few kinds on a few subjects. Now and then
// it repeats the last event.
func randomEvent(r *rand.Rand, now event.Moment, last *event.Event) *event.Event {
	if last != nil && r.IntN(8) == 0 {
		return last
	}
	pid := uint32(r.IntN(4))
	then := now.Add(-time.Duration(r.IntN(3000)) * time.Millisecond)
	ev := &event.Event{Time: then.Wall, BootTime: event.Duration(then.Boot) + event.Duration(r.IntN(1e6)),
		Task: &event.Task{PID: pid}, Cgroup: &event.Cgroup{Path: fmt.Sprint("/", r.IntN(9))}}
	switch r.IntN(10) {
	case 0, 1, 2, 3:
		ev.Kind, ev.OOMKill = event.OOMKill, &event.OOMKillData{}
	case 4, 5, 6:
		ev.Kind, ev.HungTask = event.HungTask, &event.HungTaskData{}
	case 7:
		ev.Kind, ev.HungTask = event.HungTaskResumed, &event.HungTaskData{}
	case 8:
		ev.Kind, ev.SourceUp = event.Source, &event.SourceData{Stem: []string{"oomkill", "hungtask"}[r.IntN(2)], Up: r.IntN(3) > 0}
	default:
		ev.Kind, ev.Lost = event.Lost, &event.LostData{Stem: "oomkill"}
	}
	return ev
}

// observer checks the invariants of every sequence of transitions.
type observer struct {
	t          *testing.T
	firing     map[string]bool // permanent problems
	fired      map[string]int  // firing transitions of temporary rules
	conditions map[string]problem.Condition
	log        []string
}

func (o *observer) take(ts []problem.Transition) {
	for _, tr := range ts {
		o.log = append(o.log, fmt.Sprint(states([]problem.Transition{tr})))
		if c := tr.Condition; c != nil {
			if old := o.conditions[c.Type]; old.Status == c.Status && !old.LastTransition.IsZero() && !old.LastTransition.Equal(c.LastTransition) {
				o.t.Errorf("%s stays %s but its transition time moves", c.Type, c.Status)
			} else if old == *c {
				o.t.Errorf("condition %s reported again without a change", c.Type)
			}
			o.conditions[c.Type] = *c
			continue
		}
		p := tr.Problem
		if p.Condition == "" {
			if p.State == problem.Firing {
				o.fired[p.Rule]++
			}
			continue
		}
		key := p.Rule + " " + p.Group
		switch p.State {
		case problem.Firing:
			o.firing[key] = true // repeated if it becomes hidden or visible
		case problem.Resolved:
			if !o.firing[key] {
				o.t.Errorf("%s resolved without having fired", key)
			}
			delete(o.firing, key)
		default:
			o.t.Errorf("%s: transition to %s", key, p.State)
		}
	}
}

func TestProperties(t *testing.T) {
	set := ruleSet(t, propertyRules)
	for seed := range uint64(15) {
		run := func() []string {
			r := rand.New(rand.NewPCG(seed, 1))
			e := detector.NewEngine(set)
			o := &observer{t: t, firing: map[string]bool{}, fired: map[string]int{}, conditions: map[string]problem.Condition{}}
			for _, c := range e.Conditions() {
				o.conditions[c.Type] = c
			}
			now := at(0)
			var last *event.Event
			events, some := 0, 0
			for range 600 {
				now = now.Add(time.Duration(r.IntN(2000)) * time.Millisecond)
				if r.IntN(4) == 0 {
					o.take(e.Tick(now))
					if d, ok := e.NextDeadline(); ok && d.Boot <= now.Boot {
						t.Fatalf("seed %d: due at %v although ticked at %v", seed, d, now)
					}
					continue
				}
				last = randomEvent(r, now, last)
				if last.OOMKill != nil && !e.Seen(last) {
					events++
					if last.Task.PID%3 == 0 {
						some++
					}
				}
				o.take(e.Observe(last, now))
			}
			if o.fired["told"] != events || o.fired["some"] != some {
				t.Errorf("seed %d: %d and %d transitions for %d and %d events", seed, o.fired["told"], o.fired["some"], events, some)
			}
			groups, firing := 0, 0
			for _, p := range e.Problems() {
				if p.Rule == "told" {
					groups++
				}
				if p.Condition != "" && p.State == problem.Firing {
					firing++
					if !o.firing[p.Rule+" "+p.Group] {
						t.Errorf("seed %d: %s %s fires, no transition reported so", seed, p.Rule, p.Group)
					}
				}
				if len(p.Evidence) == 0 || len(p.Evidence) > 4 || p.Count == 0 || p.LastSeen.Before(p.FirstSeen) {
					t.Errorf("seed %d: odd problem %+v", seed, p)
				}
			}
			if groups > 6 || firing != len(o.firing) {
				t.Errorf("seed %d: %d groups, %d firing, %d reported", seed, groups, firing, len(o.firing))
			}
			for _, c := range e.Conditions() {
				old := o.conditions[c.Type]
				old.LastTransition, c.LastTransition = time.Time{}, time.Time{}
				if old != c {
					t.Errorf("seed %d: condition is %+v, reported was %+v", seed, c, old)
				}
			}
			return o.log
		}
		if !slices.Equal(run(), run()) {
			t.Errorf("seed %d: two runs differ", seed)
		}
	}
}

// TestSnapshotAnywhere saves and restores the engine between any two events of a
// sequence: no firing problem may be lost or repeated.
func TestSnapshotAnywhere(t *testing.T) {
	set := ruleSet(t, propertyRules)
	for seed := range uint64(4) {
		r := rand.New(rand.NewPCG(seed, 2))
		e := detector.NewEngine(set)
		o := &observer{t: t, firing: map[string]bool{}, fired: map[string]int{}, conditions: map[string]problem.Condition{}}
		now := at(0)
		reported := 0
		for range 80 {
			now = now.Add(time.Duration(r.IntN(1000)) * time.Millisecond)
			ev := randomEvent(r, now, nil)
			if ev.OOMKill != nil {
				reported++
			}
			o.take(e.Observe(ev, now))
			data, err := e.Snapshot()
			if err != nil {
				t.Fatal(err)
			}
			e = detector.NewEngine(set)
			if err := e.Restore(data, now); err != nil {
				t.Fatal(err)
			}
			for _, c := range e.Conditions() {
				o.conditions[c.Type] = c
			}
			ts := e.Observe(ev, now)
			if ev.OOMKill != nil && len(ts) > 0 {
				t.Fatalf("seed %d: record reported again after a restart: %v", seed, states(ts))
			}
			o.take(ts)
			firing := 0
			for _, p := range e.Problems() {
				if p.Condition != "" && p.State == problem.Firing {
					firing++
				}
			}
			if firing != len(o.firing) {
				t.Fatalf("seed %d: %d firing after the restart, %d before", seed, firing, len(o.firing))
			}
		}
		if o.fired["told"] != reported {
			t.Errorf("seed %d: %d transitions for %d events", seed, o.fired["told"], reported)
		}
	}
}
