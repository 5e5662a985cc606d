package detector

import (
	"bytes"
	"crypto/sha256"
	"maps"
	"slices"
	"strconv"

	"github.com/kernosis/kernosis/collector/event"
	"github.com/kernosis/kernosis/detector/problem"
)

// OverflowGroup is the group of events whose own group would exceed MaxGroups. It can't
// collide with a groupBy value, because a backslash in a value is doubled.
const OverflowGroup = `\overflow`

// maxGroupPart bounds one value in a group, in bytes. A longer value is cut and
// gets a hash, so that different values stay different.
const maxGroupPart = 200

// appendGroup writes the group of an event: the values joined by ", ". The form is unambiguous: in
// values, backslash and comma are escaped by a backslash, control characters as \xNN.
func appendGroup(dst []byte, by []*event.Field, ev *event.Event) []byte {
	for i, f := range by {
		if i > 0 {
			dst = append(dst, ',', ' ')
		}
		v := f.Read(ev)
		if f.Type == event.TypeString {
			dst = appendPart(dst, v.Text)
		} else {
			dst = v.Append(dst, f.Type)
		}
	}
	return dst
}

func appendPart(dst []byte, s string) []byte {
	tail := ""
	if len(s) > maxGroupPart {
		tail = "…" + strconv.FormatUint(uint64(newHash.text(s)), 16)
		s = s[:maxGroupPart]
	}
	for i := range len(s) {
		switch c := s[i]; {
		case c == '\\' || c == ',':
			dst = append(dst, '\\', c)
		case c < 0x20 || c >= 0x7f:
			// Non-ASCII too: kernel names are arbitrary bytes, and a group
			// must not carry bidirectional overrides into a terminal.
			const hex = "0123456789abcdef"
			dst = append(dst, '\\', 'x', hex[c>>4], hex[c&0xf])
		default:
			dst = append(dst, c)
		}
	}
	return append(dst, tail...)
}

// distinctID returns the identity of a value for a threshold that counts distinct values.
func distinctID(f *event.Field, ev *event.Event) uint64 {
	v := f.Read(ev)
	h := newHash
	if f.Type == event.TypeString {
		h = h.text(v.Text)
	} else {
		h = h.number(uint64(v.Number))
	}
	return uint64(h) | 1 // never 0, which means "not distinct"
}

// maxFolded bounds how many groups the overflow group distinguishes, at 16 bytes each plus the map's
// overhead. By default a thousand problems have their own group before the first is folded.
const maxFolded = 4096

// foldedID is a group's identity within the overflow group. Group names are untrusted, so it is a
// collision-resistant hash.
type foldedID [16]byte

func foldedIDOf(group []byte) foldedID {
	sum := sha256.Sum256(group)
	return foldedID(sum[:])
}

// folded holds the groups that are merged into the overflow group. Its problem ends when the
// problem of the last of them does.
type folded struct {
	groups    map[foldedID]struct{}
	uncounted bool // there were more than maxFolded groups at a time
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

// save returns the sorted group IDs, concatenated.
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

// fold adds the current event's group to the entry if that is the overflow group.
func (e *Engine) fold(en *entry) {
	if en.p.Group == OverflowGroup {
		en.folded.add(foldedIDOf(e.group))
	}
}

// folded reports whether a group is merged into the overflow group, and its ID there.
func (s *series) folded(group []byte) (id foldedID, ok bool) {
	en := s.entries[OverflowGroup]
	if en == nil || en.p.State == problem.Resolved {
		return id, false
	}
	id = foldedIDOf(group)
	_, ok = en.folded.groups[id]
	return id, ok
}

// unfold removes a group from the overflow group, because its problem has ended or continues in a
// group of its own.
func (e *Engine) unfold(s *series, id foldedID, now event.Moment) {
	en := s.entries[OverflowGroup]
	delete(en.folded.groups, id)
	switch {
	case len(en.folded.groups) > 0:
	case en.p.State == problem.Pending:
		e.forget(en)
	case en.folded.uncounted:
		// Problems of uncounted groups may continue. The problem ends unless it is confirmed.
		en.folded.uncounted = false
		en.Confirm, en.ConfirmBy = true, now.Boot+confirmWithin
		e.arm(en)
	default:
		e.resolve(en, now)
	}
}
