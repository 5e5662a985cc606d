package replay

import (
	"cmp"
	"encoding/json"
	"errors"
	"time"

	"github.com/kernosis/kernosis/collector/display"
	"github.com/kernosis/kernosis/detector/problem"
	"github.com/kernosis/kernosis/reporter/journal"
)

// tickSlack is how late the agent may have acted on a deadline. If an entry follows a deadline
// within this time, the deadline is processed with the entry, so that the results have the time
// that was recorded. With other rules, a deadline may be reported late by this much.
const tickSlack = time.Second

var errEntry = errors.New("not a journal entry: no seq, now or bootTime")

func parseEntry(b []byte) (journal.Entry, error) {
	var e journal.Entry
	if err := json.Unmarshal(b, &e); err != nil {
		// The error may quote the line unescaped.
		return e, errors.New("not a journal entry: " + display.Safe(err.Error(), 300))
	}
	if e.Seq == 0 || !sane(e.Now) || e.BootTime <= 0 {
		return e, errEntry
	}
	return e, nil
}

// entry repeats one step of the agent.
func (r *Replay) entry(e *journal.Entry) {
	now, last := e.Moment(), r.to
	if !r.begin(now) {
		return
	}
	if e.Boot == "" || r.boot == "" || r.boot == e.Boot {
		r.advance(now.Add(-tickSlack))
	} else {
		// The time until the reboot is only known from the wall clock.
		r.advance(last.Add(now.Wall.Sub(last.Wall) - tickSlack))
		r.startOver(now) // the agent started in a new boot
	}
	r.boot = cmp.Or(e.Boot, r.boot)
	s := Step{File: r.file, Line: r.line, Now: e.Now, Event: e.Event, Started: e.Boot != ""}
	switch {
	case e.Event == nil:
	case e.Rules == nil && r.engine.Seen(e.Event):
		r.sum.Repeated++
	default:
		r.sum.Events++
	}
	if e.Mutes == nil || r.cfg.Mutes == nil { // else the configured mutes replace the recorded ones
		s.Transitions = e.Apply(r.engine)
	}
	if r.cfg.Compare {
		r.compare(&s, e.Transitions)
	}
	r.step(&s)
}

// compare adds differences from the recorded transitions to s.
func (r *Replay) compare(s *Step, recorded []problem.Transition) {
	have := texts(s.Transitions)
	want := texts(recorded)
	for i := 0; i < len(have) || i < len(want); i++ {
		var h, w string
		if i < len(have) {
			h = have[i]
		}
		if i < len(want) {
			w = want[i]
		}
		if h == w {
			continue
		}
		if w != "" {
			s.Differs = append(s.Differs, "- "+w)
		}
		if h != "" {
			s.Differs = append(s.Differs, "+ "+h)
		}
		r.sum.Differences++
	}
}

// texts returns transitions as in the journal, without evidence and without fields that journals of
// older versions lack.
func texts(ts []problem.Transition) []string {
	out := make([]string, len(ts))
	for i, t := range ts {
		t.Again = false
		if t.Problem != nil {
			p := *t.Problem
			p.Evidence = nil
			t.Problem = &p
		}
		b, err := json.Marshal(t)
		if err != nil {
			b = []byte(err.Error()) // a time beyond the year 9999
		}
		out[i] = string(b)
	}
	return out
}
