package netlook

import (
	"encoding/binary"
	"fmt"
	"net/netip"
	"sync"
	"unsafe"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// Fixed parts of linux/inet_diag.h.
const (
	diagRequestLen = 56
	diagMessageLen = 72
	diagAttrInfo   = 2      // INET_DIAG_INFO: struct tcp_info
	diagAttrV6Only = 11     // INET_DIAG_SKV6ONLY
	maxDiagAnswers = 8192   // sockets per request; further ones are ignored
	nlaTypeMask    = 0x3fff // NLA_TYPE_MASK
)

// State is the state of a TCP socket, as numbered by the kernel.
type State uint8

// The states that are used by name.
const (
	Established State = unix.BPF_TCP_ESTABLISHED
	SynRecv     State = unix.BPF_TCP_SYN_RECV
	CloseWait   State = unix.BPF_TCP_CLOSE_WAIT
	Listen      State = unix.BPF_TCP_LISTEN
	// NewSynRecv, a handshake of a listener before there is a socket, has no constant: dumps
	// report it as SynRecv, and it must be requested as SynRecv.
	maxState State = unix.BPF_TCP_MAX_STATES
)

// AllStates is the set of all states; a set has bit 1<<state for each.
const AllStates = uint32(1<<maxState - 1)

// String returns the name that tools show, except that "ESTAB" is ESTABLISHED here.
func (s State) String() string {
	names := [...]string{"", "ESTABLISHED", "SYN_SENT", "SYN_RECV", "FIN_WAIT1", "FIN_WAIT2", "TIME_WAIT", "CLOSE",
		"CLOSE_WAIT", "LAST_ACK", "LISTEN", "CLOSING", "NEW_SYN_RECV"}
	if s == 0 || int(s) >= len(names) {
		return fmt.Sprintf("STATE_%d", uint8(s))
	}
	return names[s]
}

// diagRequest is struct inet_diag_req_v2. local and remote may be zero.
type diagRequest [diagRequestLen]byte

func newDiagRequest(family uint8, states uint32, local, remote netip.AddrPort) *diagRequest {
	var b diagRequest
	b[0], b[1] = family, unix.IPPROTO_TCP
	binary.NativeEndian.PutUint32(b[4:], states)
	id := b[8:]
	binary.BigEndian.PutUint16(id[0:], local.Port())
	binary.BigEndian.PutUint16(id[2:], remote.Port())
	if local.Addr().IsValid() {
		copy(id[4:20], local.Addr().AsSlice())
	}
	if remote.Addr().IsValid() {
		copy(id[20:36], remote.Addr().AsSlice())
	}
	binary.NativeEndian.PutUint64(id[40:], ^uint64(0)) // INET_DIAG_NOCOOKIE
	return &b
}

func (b *diagRequest) Len() int          { return len(b) }
func (b *diagRequest) Serialize() []byte { return b[:] }

// Socket is the kernel's information about a TCP socket: struct inet_diag_msg, and struct tcp_info
// if requested.
type Socket struct {
	Family        uint8 // AF_*
	State         State
	Local, Remote netip.AddrPort
	// RQueue is how many bytes the process has not read; for a listener, how many connections wait
	// to be accepted. WQueue is how many bytes the peer has not acknowledged; for a listener, the
	// maximum length of its queue.
	RQueue, WQueue uint32
	Retransmits    uint8  // of the segment that the timer is for
	Inode          uint32 // of the descriptor; 0: no process has one
	V6Only         bool
	HasInfo        bool
	Info           unix.TCPInfo // zero without HasInfo; fields that an older kernel lacks are zero
}

func parseDiag(b []byte) (s Socket, ok bool) {
	if len(b) < diagMessageLen {
		return s, false
	}
	s.Family, s.State, s.Retransmits = b[0], State(b[1]), b[3]
	end := func(addr, port []byte) netip.AddrPort {
		if s.Family == unix.AF_INET {
			addr = addr[:4]
		}
		a, _ := netip.AddrFromSlice(addr)
		return netip.AddrPortFrom(a.Unmap(), binary.BigEndian.Uint16(port))
	}
	s.Local, s.Remote = end(b[8:24], b[4:]), end(b[24:40], b[6:])
	s.RQueue = binary.NativeEndian.Uint32(b[56:])
	s.WQueue = binary.NativeEndian.Uint32(b[60:])
	s.Inode = binary.NativeEndian.Uint32(b[68:])
	// Not by nl.ParseRouteAttr: it panics if the last attribute has no padding.
	for rest := b[diagMessageLen:]; len(rest) >= unix.SizeofRtAttr; {
		n := int(binary.NativeEndian.Uint16(rest))
		if n < unix.SizeofRtAttr || n > len(rest) {
			break
		}
		value := rest[unix.SizeofRtAttr:n]
		switch binary.NativeEndian.Uint16(rest[2:]) & nlaTypeMask {
		case diagAttrV6Only:
			s.V6Only = len(value) > 0 && value[0] != 0
		case diagAttrInfo:
			// Newer kernels append fields to the struct.
			copy(unsafe.Slice((*byte)(unsafe.Pointer(&s.Info)), unix.SizeofTCPInfo), value)
			s.HasInfo = true
		}
		rest = rest[min((n+unix.RTA_ALIGNTO-1)&^(unix.RTA_ALIGNTO-1), len(rest)):]
	}
	return s, true
}

// Sockets calls fn for each TCP socket of the namespace in one of the states, with the local port
// if it is not 0. It reports whether these were all: it omits those beyond maxDiagAnswers. fn must
// not keep its argument.
func (v *View) Sockets(states uint32, port uint16, info bool, fn func(*Socket)) (all bool, err error) {
	return v.sockets(states, port, 0, info, fn)
}

// Connection returns the namespace's end of a connection, with struct tcp_info, however many
// sockets the port has; nil: it is not in the namespace.
func (v *View) Connection(local, remote netip.AddrPort) (found *Socket, err error) {
	// Do not request a single socket as Child does: such a request finds no socket that is bound
	// to a device.
	all, err := v.sockets(AllStates, local.Port(), remote.Port(), true, func(s *Socket) {
		if s.State != Listen && s.Local == local && s.Remote == remote {
			kept := *s
			found = &kept
		}
	})
	if err == nil && found == nil && !all {
		err = fmt.Errorf("there are more connections from port %d to %d than can be listed", remote.Port(), local.Port())
	}
	return found, err
}

// sockets is Sockets, limited to a local and a remote port; 0 means any.
func (v *View) sockets(states uint32, port, remote uint16, info bool, fn func(*Socket)) (all bool, err error) {
	all = true
	local, peer := netip.AddrPortFrom(netip.Addr{}, port), netip.AddrPortFrom(netip.Addr{}, remote)
	for _, family := range []uint8{unix.AF_INET, unix.AF_INET6} {
		req := newDiagRequest(family, states, local, peer)
		if info {
			req[2] = 1 << (diagAttrInfo - 1)
		}
		n := 0
		if err := v.askDiag(req, unix.NLM_F_DUMP, func(s *Socket) {
			n++
			if port == 0 || s.Local.Port() == port {
				fn(s)
			}
		}); err != nil {
			return false, fmt.Errorf("sock_diag: %w", err)
		}
		all = all && n < maxDiagAnswers
	}
	return all, nil
}

func (v *View) askDiag(req *diagRequest, flags int, fn func(*Socket)) error {
	r := nl.NewNetlinkRequest(nl.SOCK_DIAG_BY_FAMILY, flags)
	r.AddData(req)
	v.seq++
	r.Sockets = map[int]*nl.SocketHandle{unix.NETLINK_INET_DIAG: {Seq: v.seq, Socket: v.diag}}
	var mu sync.Mutex // held while fn is called; fn is not called after the caller gave up
	left := false
	_, err := Ask(v, func(*netlink.Handle) (struct{}, error) {
		n := 0
		return struct{}{}, r.ExecuteIter(unix.NETLINK_INET_DIAG, nl.SOCK_DIAG_BY_FAMILY, func(msg []byte) bool {
			mu.Lock()
			defer mu.Unlock()
			if s, ok := parseDiag(msg); ok && !left {
				fn(&s)
			}
			n++
			return n < maxDiagAnswers && !left
		})
	})
	mu.Lock()
	defer mu.Unlock()
	left = true
	return err
}
