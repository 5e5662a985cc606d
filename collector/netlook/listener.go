package netlook

import (
	"errors"
	"fmt"
	"net/netip"

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
func (v *View) Listener(at netip.AddrPort) (l Listener) {
	families := []uint8{unix.AF_INET6}
	if at.Addr().Is4() {
		families = []uint8{unix.AF_INET, unix.AF_INET6}
	}
	l.Known = true
	for _, family := range families {
		err := v.askDiag(newDiagRequest(family, 1<<Listen, netip.AddrPort{}, netip.AddrPort{}), unix.NLM_F_DUMP, func(s *Socket) {
			if s.State != Listen || !s.Takes(at) {
				return
			}
			if !l.Present || int64(s.RQueue)-int64(s.WQueue) > int64(l.Queue)-int64(l.Max) {
				l.Queue, l.Max = s.RQueue, s.WQueue
			}
			l.Present = true
		})
		if err != nil {
			return Listener{}
		}
	}
	return l
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
