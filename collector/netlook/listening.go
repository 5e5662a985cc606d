package netlook

import (
	"cmp"
	"net/netip"
	"slices"
	"strconv"
)

// Listening are the addresses at which processes of a namespace listen, as far as they
// have to do with connections to one address of it.
type Listening struct {
	Known bool
	// At has the ports that take connections to the address, as ":8080", and those of
	// loopback, which don't, as "127.0.0.1:8080" or "[::1]:8080"; by port, each once.
	At   []string
	More int // beyond what was asked for
}

// ListeningAt finds what listens where connections to an address go, at most limit of
// them. A namespace with more sockets than a look takes is not known.
func (v *View) ListeningAt(addr netip.Addr, limit int) Listening {
	type place struct {
		port     uint16
		loopback netip.Addr // the zero one: it takes connections to addr
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
