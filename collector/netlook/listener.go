package netlook

import (
	"cmp"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strconv"

	"golang.org/x/sys/unix"
)

// Listener is the socket that listens at an address, with its accept queue.
type Listener struct {
	Known, Present bool
	Queue, Max     uint32
}

// Full applies the kernel's condition: it admits one connection more than the backlog.
func (l *Listener) Full() bool { return l.Present && l.Queue > l.Max }

// String returns the fill level of the queue as text.
func (l *Listener) String() string { return fmt.Sprintf("queue %d/%d", l.Queue, l.Max) }

// ChildState is the state of the listener's end of a connection.
type ChildState uint8

// The states of the listener's end.
const (
	ChildUnknown  ChildState = iota
	ChildAbsent              // there is no such socket
	ChildHalfOpen            // the handshake's last ACK was not accepted
	ChildWaiting             // in the accept queue
	ChildAccepted
)

// Listener finds the socket that listens at an address of the namespace. If there are several
// (with SO_REUSEPORT), it returns the one with the fullest queue.
func (v *View) Listener(at netip.AddrPort) Listener {
	l := Listener{Known: true}
	var fullest Socket
	_, err := v.Sockets(1<<Listen, at.Port(), false, func(s *Socket) {
		if s.State == Listen && s.Takes(at) && (!l.Present || s.Fuller(&fullest)) {
			l.Present, fullest = true, *s
		}
	})
	if err != nil {
		return Listener{}
	}
	l.Queue, l.Max = fullest.RQueue, fullest.WQueue
	return l
}

// Fuller reports whether the accept queue of a listening socket is closer to its maximum, or
// further beyond it, than that of another.
func (s *Socket) Fuller(than *Socket) bool {
	return int64(s.RQueue)-int64(s.WQueue) > int64(than.RQueue)-int64(than.WQueue)
}

// Takes reports whether a listening socket accepts connections to an address.
func (s *Socket) Takes(at netip.AddrPort) bool {
	if s.Local.Port() != at.Port() {
		return false
	}
	if !s.Local.Addr().IsUnspecified() {
		return s.Local.Addr() == at.Addr()
	}
	if at.Addr().Is4() {
		return s.Family == unix.AF_INET || !s.V6Only
	}
	return s.Family == unix.AF_INET6
}

// Child returns the state of the listener's end of a connection. A socket for which no process has
// a descriptor, and that has not been closed, waits to be accepted.
func (v *View) Child(local, remote netip.AddrPort) ChildState {
	family := uint8(unix.AF_INET)
	if local.Addr().Is6() {
		family = unix.AF_INET6
	}
	state := ChildAbsent
	err := v.askDiag(newDiagRequest(family, ^uint32(0), local, remote), 0, func(s *Socket) {
		switch {
		case s.State == Listen: // the look-up fell through to the listener
		case s.State == SynRecv:
			state = ChildHalfOpen
		case s.Inode == 0 && (s.State == Established || s.State == CloseWait):
			state = ChildWaiting
		default:
			state = ChildAccepted
		}
	})
	if err != nil && !errors.Is(err, unix.ENOENT) {
		return ChildUnknown
	}
	return state
}

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
