package detector

import (
	"slices"
	"time"
)

// window holds the latest matching events of a threshold, oldest first. It holds
// at most Threshold.Count events, so the rule bounds its memory.
type window struct{ marks []mark }

// mark is one counted event.
type mark struct {
	At time.Duration `json:"at"`           // of the event, since boot
	ID uint64        `json:"id,omitempty"` // hash of the distinct field; 0: every event counts
}

// add counts an event and reports whether the threshold is reached, that is, Count
// events lie within its period. Events may come out of order.
func (w *window) add(t Threshold, m mark) bool {
	if m.ID != 0 {
		// A value seen again counts once, at its latest time.
		if i := slices.IndexFunc(w.marks, func(o mark) bool { return o.ID == m.ID }); i >= 0 {
			m.At = max(m.At, w.marks[i].At)
			w.marks = slices.Delete(w.marks, i, i+1)
		}
	}
	if surplus := len(w.marks) - t.Count; surplus > 0 { // a reload lowered the count
		w.marks = slices.Delete(w.marks, 0, surplus)
	}
	i := len(w.marks)
	for i > 0 && w.marks[i-1].At > m.At {
		i--
	}
	if len(w.marks) < t.Count {
		w.marks = slices.Insert(w.marks, i, m)
	} else if i > 0 {
		// Full: drop the oldest.
		copy(w.marks, w.marks[1:i])
		w.marks[i-1] = m
	}
	n := len(w.marks)
	return n >= t.Count && w.marks[n-1].At-w.marks[0].At <= t.Within
}

func (w *window) reset() { w.marks = w.marks[:0] }
