package netlook

import (
	"cmp"
	"net/netip"
	"slices"
	"strconv"
)

// Listening lists where processes of a namespace listen, as far as relevant for connections to one
// of its addresses.
type Listening struct {
	Known bool
	// At has the ports that accept connections to the address, such as ":8080", and the loopback
	// listeners, which don't, such as "127.0.0.1:8080" or "[::1]:8080"; sorted by port, without
	// duplicates.
	At   []string
	More int // how many were omitted because of the limit
}

// ListeningAt finds at most limit listeners that are relevant for connections to addr. If a
// namespace has more sockets than are examined, Known is false.
func (v *View) ListeningAt(addr netip.Addr, limit int) Listening {
	type place struct {
		port     uint16
		loopback netip.Addr // zero: it accepts connections to addr
	}
	var found []place
	whole, err := v.Sockets(1<<Listen, 0, false, func(s *Socket) {
		switch {
		case s.Takes(netip.AddrPortFrom(addr, s.Local.Port())):
			found = append(found, place{port: s.Local.Port()})
		case s.Local.Addr().IsLoopback():
			found = append(found, place{port: s.Local.Port(), loopback: s.Local.Addr()})
		}
	})
	if err != nil || !whole {
		return Listening{}
	}
	slices.SortFunc(found, func(a, b place) int {
		return cmp.Or(cmp.Compare(a.port, b.port), a.loopback.Compare(b.loopback))
	})
	found = slices.Compact(found)
	l := Listening{Known: true, More: max(len(found)-limit, 0)}
	for _, p := range found[:len(found)-l.More] {
		if p.loopback.IsValid() {
			l.At = append(l.At, netip.AddrPortFrom(p.loopback, p.port).String())
		} else {
			l.At = append(l.At, ":"+strconv.Itoa(int(p.port)))
		}
	}
	return l
}
