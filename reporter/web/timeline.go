package web

import (
	"fmt"
	"slices"
	"strconv"
	"time"

	g "maragu.dev/gomponents"
	h "maragu.dev/gomponents/html"

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
	rows []change
}

// change is a row of the timeline. Rows are kept, so their texts are made safe, and thereby short,
// when they are read.
type change struct {
	key      string
	at       time.Time
	word     string // severity while firing, resolved, pending, or node for conditions and mutes
	severity int    // for the filter: 1 info, 2 warning, 3 critical
	reason   string
	message  string
	note     string // rule, count
}

func timelineSection(rows []change, err error) g.Node {
	return section("timeline", "Timeline",
		filters("Timeline", "timeline-rows", "changes", "Severity", level("0", "all"), level("2", "warning and critical"), level("3", "critical")),
		part("timeline-error", failure("The journal can't be read", err)),
		table(h.Caption(g.Textf("At most the last %d changes, newest first", maxRows)), columns("Time", "Change", "Reason", "Message"),
			h.ID("timeline-rows"), keyed(), each(rows, change.node)),
		empty("The journal has no changes yet."),
	)
}

func (r change) node() g.Node {
	return h.Tr(h.Data("key", r.key), h.Data("severity", strconv.Itoa(r.severity)),
		h.Td(moment(r.at)),
		h.Td(badge(r.word, text(r.word))),
		h.Td(g.Text(r.reason)),
		cell("text", g.Text(r.message), sub(r.note)),
	)
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

func rowOf(e *journal.Entry, i int) (change, bool) {
	t := &e.Transitions[i]
	r := change{key: strconv.FormatUint(e.Seq, 10) + "-" + strconv.Itoa(i), at: e.Now}
	switch {
	case t.Problem != nil:
		r.problem(e, t.Problem)
	case t.Condition != nil:
		c := t.Condition
		r.word, r.severity = "node", 2
		if c.Status == problem.False {
			r.severity = 1
		}
		r.reason, r.message = name(c.Type+"="+string(c.Status)), safe(c.Reason+": "+c.Message)
	case t.Mute != nil:
		r.word, r.severity, r.reason = "node", 1, name(t.Mute.Subject())
		r.message = "muted until " + t.Mute.Until.UTC().Format(time.DateTime)
		if t.Mute.Over {
			r.message = "no longer muted"
		}
		r.message += ": " + safe(t.Mute.Reason)
	default:
		return r, false
	}
	return r, true
}

func (r *change) problem(e *journal.Entry, p *problem.Problem) {
	r.word, r.severity = severityWord(p.Severity), max(p.Severity.Rank(), 1)
	if e.Event != nil && p.State == problem.Firing {
		r.at = e.Event.Time // the time of the fault
	}
	r.reason, r.message, r.note = name(p.Reason), safe(p.Message), name(p.Rule)
	switch p.State {
	case problem.Resolved:
		r.word = "resolved"
		r.message += " — after " + display.Duration(e.Now.Sub(p.FirstSeen))
	case problem.Pending:
		r.word = "pending"
	case problem.Firing:
	}
	if p.Count > 1 {
		r.note += fmt.Sprintf(" (x%d)", p.Count)
	}
	if p.SuppressedBy != "" {
		r.note += ", caused by " + safe(p.SuppressedBy)
	}
	if !p.MutedUntil.IsZero() {
		r.note += ", muted"
	}
}

// severityWord returns the severity, or info if it is unknown.
func severityWord(s problem.Severity) string {
	if s.Rank() == 0 {
		s = problem.Info
	}
	return string(s)
}
