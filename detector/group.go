package detector

import (
	"strconv"

	"github.com/kernosis/kernosis/collector/event"
)

// OverflowGroup is the group of events whose own group would exceed MaxGroups. It can't
// collide with a groupBy value, because a backslash in a value is doubled.
const OverflowGroup = `\overflow`

// maxGroupPart bounds one value in a group, in bytes. A longer value is cut and
// gets a hash, so that different values stay different.
const maxGroupPart = 200

// appendGroup writes the group of an event: the values joined by ", ". The
// form is unambiguous: in values, backslash and comma are escaped by a
// backslash, control characters as \xNN.
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
