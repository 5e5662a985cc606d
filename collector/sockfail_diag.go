package collector

import (
	"encoding/binary"
	"errors"
	"net/netip"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// listenerFact is the socket that listens at an address, with its accept queue.
type listenerFact struct {
	known, present bool
	queue, max     uint32
}

// full is what the kernel goes by: one more than the backlog are let in.
func (l *listenerFact) full() bool { return l.present && l.queue > l.max }

// childState is what became of the other end of a connection.
type childState uint8

const (
	childUnknown  childState = iota
	childAbsent              // there is no such socket
	childHalfOpen            // the handshake's last ACK was not taken
	childWaiting             // in the accept queue
	childAccepted
)

// Fixed parts of linux/inet_diag.h.
const (
	diagRequestLen = 56
	diagMessageLen = 72
	diagAttrV6Only = 11 // INET_DIAG_SKV6ONLY
	tcpEstablished = 1
	tcpSynRecv     = 3
	tcpCloseWait   = 8
	tcpListen      = 10
	maxDiagAnswers = 8192   // listeners of one namespace; more are not looked at
	nlaTypeMask    = 0x3fff // NLA_TYPE_MASK
)

// diagRequest is struct inet_diag_req_v2. local and remote may be zero.
type diagRequest [diagRequestLen]byte

func newDiagRequest(family uint8, states uint32, local, remote netip.AddrPort) *diagRequest {
	var b diagRequest
	b[0], b[1] = family, unix.IPPROTO_TCP
	binary.NativeEndian.PutUint32(b[4:], states)
	id := b[8:]
	binary.BigEndian.PutUint16(id[0:], local.Port())
	binary.BigEndian.PutUint16(id[2:], remote.Port())
	if local.IsValid() {
		copy(id[4:20], local.Addr().AsSlice())
	}
	if remote.IsValid() {
		copy(id[20:36], remote.Addr().AsSlice())
	}
	binary.NativeEndian.PutUint64(id[40:], ^uint64(0)) // INET_DIAG_NOCOOKIE
	return &b
}

func (b *diagRequest) Len() int          { return len(b) }
func (b *diagRequest) Serialize() []byte { return b[:] }

// diagSocket is struct inet_diag_msg.
type diagSocket struct {
	family, state         uint8
	local                 netip.AddrPort
	rqueue, wqueue, inode uint32
	v6Only                bool
}

func parseDiag(b []byte) (s diagSocket, ok bool) {
	if len(b) < diagMessageLen {
		return s, false
	}
	s.family, s.state = b[0], b[1]
	addr, _ := netip.AddrFromSlice(b[8:24])
	if s.family == unix.AF_INET {
		addr, _ = netip.AddrFromSlice(b[8:12])
	}
	s.local = netip.AddrPortFrom(addr.Unmap(), binary.BigEndian.Uint16(b[4:]))
	s.rqueue = binary.NativeEndian.Uint32(b[56:])
	s.wqueue = binary.NativeEndian.Uint32(b[60:])
	s.inode = binary.NativeEndian.Uint32(b[68:])
	for rest := b[diagMessageLen:]; len(rest) >= unix.SizeofRtAttr; {
		n := int(binary.NativeEndian.Uint16(rest))
		if n < unix.SizeofRtAttr || n > len(rest) {
			break
		}
		if binary.NativeEndian.Uint16(rest[2:])&nlaTypeMask == diagAttrV6Only && n > unix.SizeofRtAttr {
			s.v6Only = rest[unix.SizeofRtAttr] != 0
		}
		rest = rest[min((n+unix.RTA_ALIGNTO-1)&^(unix.RTA_ALIGNTO-1), len(rest)):]
	}
	return s, true
}

func (v *netView) askDiag(req *diagRequest, flags int, fn func(*diagSocket)) error {
	r := nl.NewNetlinkRequest(nl.SOCK_DIAG_BY_FAMILY, flags)
	r.AddData(req)
	v.seq++
	r.Sockets = map[int]*nl.SocketHandle{unix.NETLINK_INET_DIAG: {Seq: v.seq, Socket: v.diag}}
	n := 0
	return r.ExecuteIter(unix.NETLINK_INET_DIAG, nl.SOCK_DIAG_BY_FAMILY, func(msg []byte) bool {
		if s, ok := parseDiag(msg); ok {
			fn(&s)
		}
		n++
		return n < maxDiagAnswers
	})
}

// listener finds what listens at an address of the namespace. Of several (with
// SO_REUSEPORT) the one with the fullest queue counts.
func (v *netView) listener(at netip.AddrPort) (l listenerFact) {
	families := []uint8{unix.AF_INET6}
	if at.Addr().Is4() {
		families = []uint8{unix.AF_INET, unix.AF_INET6}
	}
	l.known = true
	for _, family := range families {
		err := v.askDiag(newDiagRequest(family, 1<<tcpListen, netip.AddrPort{}, netip.AddrPort{}), unix.NLM_F_DUMP, func(s *diagSocket) {
			if s.state != tcpListen || !s.takes(at) {
				return
			}
			if !l.present || int64(s.rqueue)-int64(s.wqueue) > int64(l.queue)-int64(l.max) {
				l.queue, l.max = s.rqueue, s.wqueue
			}
			l.present = true
		})
		if err != nil {
			return listenerFact{}
		}
	}
	return l
}

// takes tells whether a listening socket takes connections to an address.
func (s *diagSocket) takes(at netip.AddrPort) bool {
	if s.local.Port() != at.Port() {
		return false
	}
	if !s.local.Addr().IsUnspecified() {
		return s.local.Addr() == at.Addr()
	}
	if at.Addr().Is4() {
		return s.family == unix.AF_INET || !s.v6Only
	}
	return s.family == unix.AF_INET6
}

// child looks for the listener's end of a connection. A socket that no process
// has a descriptor of, and that has not been closed, waits to be accepted.
func (v *netView) child(local, remote netip.AddrPort) childState {
	family := uint8(unix.AF_INET)
	if local.Addr().Is6() {
		family = unix.AF_INET6
	}
	state := childAbsent
	err := v.askDiag(newDiagRequest(family, ^uint32(0), local, remote), 0, func(s *diagSocket) {
		switch {
		case s.state == tcpListen: // the look-up fell through to the listener
		case s.state == tcpSynRecv:
			state = childHalfOpen
		case s.inode == 0 && (s.state == tcpEstablished || s.state == tcpCloseWait):
			state = childWaiting
		default:
			state = childAccepted
		}
	})
	if err != nil && !errors.Is(err, unix.ENOENT) {
		return childUnknown
	}
	return state
}
