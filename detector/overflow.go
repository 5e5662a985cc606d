package detector

import (
	"bytes"
	"crypto/sha256"
	"maps"
	"slices"

	"github.com/kernosis/kernosis/collector/event"
	"github.com/kernosis/kernosis/detector/problem"
)

// maxFolded bounds how many groups the overflow group distinguishes: 16 bytes each, and a map's
// overhead. A thousand problems have a group of their own before the first is folded.
const maxFolded = 4096

// foldedID is a group's identity within the overflow group. Group names may be written by
// anybody, so it is a hash for which nobody finds two names.
type foldedID [16]byte

func foldedIDOf(group []byte) foldedID {
	sum := sha256.Sum256(group)
	return foldedID(sum[:])
}

// folded is the groups that the problem of the overflow group stands for. The problem ends
// when the last of them does.
type folded struct {
	groups    map[foldedID]struct{}
	uncounted bool // there were more than maxFolded at a time
}

func (f *folded) add(id foldedID) {
	if _, ok := f.groups[id]; ok {
		return
	}
	if len(f.groups) >= maxFolded {
		f.uncounted = true
		return
	}
	if f.groups == nil {
		f.groups = make(map[foldedID]struct{})
	}
	f.groups[id] = struct{}{}
}

// save returns the groups as one text of fixed-size parts, sorted.
func (f *folded) save() []byte {
	ids := slices.SortedFunc(maps.Keys(f.groups), func(a, b foldedID) int { return bytes.Compare(a[:], b[:]) })
	var out []byte
	for _, id := range ids {
		out = append(out, id[:]...)
	}
	return out
}

func (f *folded) load(text []byte) {
	for part := range slices.Chunk(text, len(foldedID{})) {
		if len(part) == len(foldedID{}) {
			f.add(foldedID(part))
		}
	}
}

// fold notes that the event of the current call counts in an entry, where that is the
// overflow group.
func (e *Engine) fold(en *entry) {
	if en.p.Group == OverflowGroup {
		en.folded.add(foldedIDOf(e.group))
	}
}

// folded reports whether the overflow group's problem stands for a group, and as which.
func (s *series) folded(group []byte) (id foldedID, ok bool) {
	en := s.entries[OverflowGroup]
	if en == nil || en.p.State == problem.Resolved {
		return id, false
	}
	id = foldedIDOf(group)
	_, ok = en.folded.groups[id]
	return id, ok
}

// unfold takes a group out of the overflow group that is in it: its problem has ended, or
// goes on in a group of its own.
func (e *Engine) unfold(s *series, id foldedID, now event.Moment) {
	en := s.entries[OverflowGroup]
	delete(en.folded.groups, id)
	switch {
	case len(en.folded.groups) > 0:
	case en.p.State == problem.Pending:
		e.forget(en)
	case en.folded.uncounted:
		// Others may go on. What is not seen again within a while is over.
		en.folded.uncounted = false
		en.Confirm, en.ConfirmBy = true, now.Boot+confirmWithin
		e.arm(en)
	default:
		e.resolve(en, now)
	}
}
