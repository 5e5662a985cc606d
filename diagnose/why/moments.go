package why

import (
	"fmt"
	"slices"
	"strings"
)

// maxDetails bounds the details that are shown of a moment.
const maxDetails = 4

// moments sets what happened, oldest first.
func (b *builder) moments(a *Answer) {
	var all []Moment
	for _, p := range b.problems {
		all = append(all, b.ofOccurrences(a, p))
	}
	for i := range b.in.Diagnoses {
		d := &b.in.Diagnoses[i]
		if d.Ended.IsZero() || !b.recent(d.Ended) {
			continue
		}
		found := "found no cause"
		if d.Verdict != "" {
			found = "found " + b.text(d.Verdict)
		}
		m := Moment{At: d.Ended, Text: fmt.Sprintf("diagnosis %s %s", b.text(d.name()), found)}
		if len(d.Path) > 0 {
			m.Text += " by " + b.text(strings.Join(d.Path, ", "))
		}
		all = append(all, m)
	}
	for i := range b.in.Events {
		e := &b.in.Events[i]
		if !b.recent(e.Last) || !e.Warning && e.Reason != "Killing" {
			continue
		}
		all = append(all, Moment{At: e.Last, Text: fmt.Sprintf("%s: %s%s: %s", b.text(e.By), b.text(e.Reason), count(uint64(max(e.Count, 1))), b.text(e.Message))}) //nolint:gosec // not negative
	}
	for _, c := range b.containers {
		for _, e := range []*Ending{c.Before, c.Ended} {
			if e != nil && b.recent(e.At) {
				all = append(all, Moment{At: e.At, Text: "container " + c.Name + " ended " + b.how(e)})
			}
		}
	}
	slices.SortStableFunc(all, func(x, y Moment) int { return x.At.Compare(y.At) })
	for i := len(all) - 1; i > 0; i-- {
		if slices.Equal(all[i].Details, all[i-1].Details) {
			all[i].Details = nil // two rules report one event
		}
	}
	a.Earlier = max(len(all)-maxMoments, 0)
	a.Seen = all[a.Earlier:]
}

// ofOccurrences returns a problem as a moment, with its evidence. It leaves out a message that the
// causes show already.
func (b *builder) ofOccurrences(a *Answer, p *Problem) Moment {
	m := Moment{At: p.Last, Text: b.text(p.Reason) + count(p.Count)}
	if p.Last.Sub(p.First) > sameMoment && !p.First.IsZero() {
		m.Text += " since " + b.clock(p.First)
	}
	message := b.text(p.Message)
	if !slices.ContainsFunc(a.Causes, func(c Cause) bool { return c.Message == message || slices.Contains(c.Effects, message) }) {
		m.Text += ": " + message
	}
	if p.SuppressedBy != "" {
		m.Text += " (caused by " + b.text(p.SuppressedBy) + ")"
	}
	m.Details = b.texts(p.Evidence)
	m.Details = m.Details[:min(len(m.Details), maxDetails)]
	return m
}

func count(n uint64) string {
	if n <= 1 {
		return ""
	}
	return fmt.Sprintf(" ×%d", n)
}
