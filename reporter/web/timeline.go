package web

import (
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/kernosis/kernosis/collector/display"
	"github.com/kernosis/kernosis/detector/problem"
	"github.com/kernosis/kernosis/reporter/journal"
)

const (
	// maxRows is how many changes are shown.
	maxRows = 500
	// maxTimelineBytes bounds how much of the journal is read.
	maxTimelineBytes = 8 << 20
	// readWithin is how long a read may take: the state disk may hang.
	readWithin = time.Second
)

// timeline holds the newest changes, newest first.
type timeline struct {
	seq  uint64 // of the newest entry
	rows []rowView
}

type rowView struct {
	Key      string
	At       moment
	Word     string // severity while firing, resolved, pending, or node for conditions and mutes
	Severity int    // for the filter: 1 info, 2 warning, 3 critical
	Reason   string
	Message  string
	Note     string // rule, count
}

// read returns the timeline extended by the journal's new entries.
func (t timeline) read(dir string) (timeline, error) {
	next := timeline{seq: t.seq}
	whole, err := journal.Changes(dir, t.seq, maxTimelineBytes, func(e journal.Entry) bool {
		next.seq = max(next.seq, e.Seq)
		for i := range slices.Backward(e.Transitions) {
			if r, ok := rowOf(&e, i); ok && len(next.rows) < maxRows {
				next.rows = append(next.rows, r)
			}
		}
		return len(next.rows) < maxRows
	})
	if err != nil {
		return t, err
	}
	// Unless whole, changes may be missing between the new rows and the known ones.
	if whole || len(next.rows) == 0 {
		next.rows = append(next.rows, t.rows...)
	}
	next.rows = next.rows[:min(len(next.rows), maxRows)]
	return next, nil
}

func rowOf(e *journal.Entry, i int) (rowView, bool) {
	t := &e.Transitions[i]
	r := rowView{Key: strconv.FormatUint(e.Seq, 10) + "-" + strconv.Itoa(i), At: moment{e.Now}}
	switch {
	case t.Problem != nil:
		r.problem(e, t.Problem)
	case t.Condition != nil:
		c := t.Condition
		r.Word, r.Severity = "node", 2
		if c.Status == problem.False {
			r.Severity = 1
		}
		r.Reason, r.Message = name(c.Type+"="+string(c.Status)), safe(c.Reason+": "+c.Message)
	case t.Mute != nil:
		r.Word, r.Severity, r.Reason = "node", 1, name(t.Mute.Subject())
		r.Message = "muted until " + t.Mute.Until.UTC().Format(time.DateTime)
		if t.Mute.Over {
			r.Message = "no longer muted"
		}
		r.Message += ": " + safe(t.Mute.Reason)
	default:
		return r, false
	}
	return r, true
}

func (r *rowView) problem(e *journal.Entry, p *problem.Problem) {
	r.Word, r.Severity = severityWord(p.Severity), max(p.Severity.Rank(), 1)
	if e.Event != nil && p.State == problem.Firing {
		r.At = moment{e.Event.Time} // the time of the fault
	}
	r.Reason, r.Message, r.Note = name(p.Reason), safe(p.Message), name(p.Rule)
	switch p.State {
	case problem.Resolved:
		r.Word = "resolved"
		r.Message += " — after " + display.Duration(e.Now.Sub(p.FirstSeen))
	case problem.Pending:
		r.Word = "pending"
	case problem.Firing:
	}
	if p.Count > 1 {
		r.Note += fmt.Sprintf(" (x%d)", p.Count)
	}
	if p.SuppressedBy != "" {
		r.Note += ", caused by " + safe(p.SuppressedBy)
	}
	if !p.MutedUntil.IsZero() {
		r.Note += ", muted"
	}
}

// severityWord returns the severity, or info if it is unknown.
func severityWord(s problem.Severity) string {
	if s.Rank() == 0 {
		s = problem.Info
	}
	return string(s)
}
