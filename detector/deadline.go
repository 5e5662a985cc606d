package detector

import (
	"cmp"
	"container/heap"
)

// deadlines is a heap of entries by due time. A due time may be too early, because
// the hot path does not update the heap when an event moves the deadline later. It is
// corrected when it comes up. It is never too late.
type deadlines []*entry

func (d deadlines) Len() int { return len(d) }

// Less breaks ties by rule and group, so that a replay is exact.
func (d deadlines) Less(i, j int) bool {
	a, b := d[i], d[j]
	return cmp.Or(cmp.Compare(a.due, b.due), cmp.Compare(a.p.Rule, b.p.Rule), cmp.Compare(a.p.Group, b.p.Group)) < 0
}

func (d deadlines) Swap(i, j int) {
	d[i], d[j] = d[j], d[i]
	d[i].index, d[j].index = i, j
}

// Push implements heap.Interface.
func (d *deadlines) Push(x any) {
	en := x.(*entry)
	en.index = len(*d)
	*d = append(*d, en)
}

// Pop implements heap.Interface.
func (d *deadlines) Pop() any {
	old := *d
	en := old[len(old)-1]
	old[len(old)-1] = nil
	*d = old[:len(old)-1]
	en.index = -1
	return en
}

// arm makes sure that the entry comes up no later than its deadline.
func (e *Engine) arm(en *entry) {
	due, ok := e.deadline(en)
	switch {
	case !ok:
	case en.index < 0:
		en.due = due
		heap.Push(&e.deadlines, en)
	case due < en.due:
		en.due = due
		heap.Fix(&e.deadlines, en.index)
	}
}

// disarm removes the entry from the heap.
func (e *Engine) disarm(en *entry) {
	if en.index >= 0 {
		heap.Remove(&e.deadlines, en.index)
	}
}
