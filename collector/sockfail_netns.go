package collector

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"runtime"
	"time"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"

	"github.com/kernosis/kernosis/collector/hostfs"
)

// netView asks one network namespace over netlink. It must not outlive the
// look it was opened for: it keeps the namespace alive.
type netView struct {
	route *netlink.Handle
	neigh *nl.NetlinkSocket // of the same family: Handle has no way to ask for one neighbour
	diag  *nl.NetlinkSocket
	seq   uint32
}

// openNetView enters the network namespace of a process, which must be the one
// given, long enough to open sockets in it.
func openNetView(fs hostfs.FS, pid int, inode uint32, timeout time.Duration) (*netView, error) {
	ns, err := netns.GetFromPath(fs.Path(fmt.Sprintf("/proc/%d/ns/net", pid)))
	if err != nil {
		return nil, fmt.Errorf("network namespace of process %d: %w", pid, err)
	}
	defer ns.Close()
	var st unix.Stat_t
	if err := unix.Fstat(int(ns), &st); err != nil {
		return nil, fmt.Errorf("network namespace of process %d: %w", pid, err)
	}
	if uint32(st.Ino) != inode {
		return nil, fmt.Errorf("network namespace of process %d is not %d", pid, inode)
	}
	v := &netView{}
	err = inNetNS(ns, func() error {
		var err error
		if v.route, err = netlink.NewHandle(unix.NETLINK_ROUTE); err != nil {
			return err
		}
		// No namespace: the one the thread is in.
		if v.neigh, err = nl.GetNetlinkSocketAt(netns.None(), netns.None(), unix.NETLINK_ROUTE); err != nil {
			return err
		}
		v.diag, err = nl.GetNetlinkSocketAt(netns.None(), netns.None(), unix.NETLINK_INET_DIAG)
		return err
	})
	if err == nil {
		err = v.setTimeout(timeout)
	}
	if err != nil {
		v.close()
		return nil, fmt.Errorf("netlink in namespace %d: %w", inode, err)
	}
	return v, nil
}

// inNetNS runs fn on a thread in the namespace. A thread that can't be brought
// back is not used again: the runtime ends it with its goroutine.
func inNetNS(ns netns.NsHandle, fn func() error) error {
	done := make(chan error, 1)
	go func() {
		runtime.LockOSThread()
		home, err := netns.Get()
		if err != nil {
			runtime.UnlockOSThread()
			done <- err
			return
		}
		defer home.Close()
		if err := netns.Set(ns); err != nil {
			runtime.UnlockOSThread()
			done <- err
			return
		}
		err = fn()
		if netns.Set(home) == nil {
			runtime.UnlockOSThread()
		}
		done <- err
	}()
	return <-done
}

func (v *netView) setTimeout(d time.Duration) error {
	tv := unix.NsecToTimeval(int64(d))
	return errors.Join(v.route.SetSocketTimeout(d), v.neigh.SetSendTimeout(&tv), v.neigh.SetReceiveTimeout(&tv), v.diag.SetSendTimeout(&tv), v.diag.SetReceiveTimeout(&tv))
}

func (v *netView) close() {
	if v.route != nil {
		v.route.Close()
	}
	if v.neigh != nil {
		v.neigh.Close()
	}
	if v.diag != nil {
		v.diag.Close()
	}
}

// ownNetNS tells whether inode is the namespace of this process.
func ownNetNS(inode uint32) bool {
	var st unix.Stat_t
	return unix.Stat("/proc/self/ns/net", &st) == nil && uint32(st.Ino) == inode
}

// viewOf opens the view of a namespace: of this process' own without a pid.
func viewOf(fs hostfs.FS, inode uint32, pid int, timeout time.Duration) (*netView, error) {
	if pid == 0 && ownNetNS(inode) {
		return openNetView(hostfs.New("/"), os.Getpid(), inode, timeout)
	}
	if pid == 0 {
		return nil, fmt.Errorf("network namespace %d has no process", inode)
	}
	return openNetView(fs, pid, inode, timeout)
}

// route is the answer to "how would a packet go there".
type routeFact struct {
	known bool
	errno unix.Errno // why there is none
	kind  int        // RTN_*
	local bool
	dev   string
	index int
	via   netip.Addr // next hop; the destination itself where it is on the link
}

func (v *netView) routeTo(dst netip.Addr) (r routeFact) {
	routes, err := v.route.RouteGet(dst.AsSlice())
	var errno unix.Errno
	switch {
	case errors.As(err, &errno):
		// EAGAIN is a throw route's errno, and a time-out's.
		r.known, r.errno = errno != unix.EAGAIN && errno != unix.EINTR, errno
		return r
	case err != nil || len(routes) == 0:
		return r
	}
	got := routes[0]
	r.known, r.kind, r.local, r.index = true, got.Type, got.Type == unix.RTN_LOCAL, got.LinkIndex
	switch got.Type {
	case unix.RTN_BLACKHOLE:
		r.errno = unix.EINVAL
	case unix.RTN_PROHIBIT:
		r.errno = unix.EACCES
	case unix.RTN_UNREACHABLE:
		r.errno = unix.EHOSTUNREACH
	}
	if r.via, _ = netip.AddrFromSlice(got.Gw); !r.via.IsValid() {
		r.via = dst
	}
	r.via = r.via.Unmap()
	if link, err := v.route.LinkByIndex(got.LinkIndex); err == nil {
		r.dev = link.Attrs().Name
	}
	return r
}

// neighborFact is an entry of the neighbour table.
type neighborFact struct {
	known   bool // the table was asked
	state   string
	address string
	failed  bool // no answer to its solicitations
	trying  bool // none yet
}

// ndMsg is struct ndmsg of linux/neighbour.h.
const ndMsgLen = 12

func (v *netView) neighbor(r *routeFact) (n neighborFact) {
	msg := &netlink.Ndmsg{Family: unix.AF_INET, Index: uint32(r.index)}
	if r.via.Is6() {
		msg.Family = unix.AF_INET6
	}
	req := nl.NewNetlinkRequest(unix.RTM_GETNEIGH, 0) // one entry: v5.0
	req.AddData(msg)
	req.AddData(nl.NewRtAttr(netlink.NDA_DST, r.via.AsSlice()))
	v.seq++
	req.Sockets = map[int]*nl.SocketHandle{unix.NETLINK_ROUTE: {Seq: v.seq, Socket: v.neigh}}
	answers, err := req.Execute(unix.NETLINK_ROUTE, unix.RTM_NEWNEIGH)
	if errors.Is(err, unix.ENOENT) {
		return neighborFact{known: true, state: "none"}
	}
	if err != nil || len(answers) == 0 || len(answers[0]) < ndMsgLen {
		return n
	}
	entry, err := netlink.NeighDeserialize(answers[0])
	if err != nil {
		return n
	}
	n = neighborFact{known: true, address: entry.HardwareAddr.String()}
	for _, s := range []struct {
		bit  int
		name string
	}{
		{netlink.NUD_FAILED, "FAILED"}, {netlink.NUD_INCOMPLETE, "INCOMPLETE"}, {netlink.NUD_PERMANENT, "PERMANENT"},
		{netlink.NUD_NOARP, "NOARP"}, {netlink.NUD_REACHABLE, "REACHABLE"}, {netlink.NUD_STALE, "STALE"},
		{netlink.NUD_DELAY, "DELAY"}, {netlink.NUD_PROBE, "PROBE"},
	} {
		if entry.State&s.bit != 0 {
			n.state = s.name
			break
		}
	}
	n.failed = entry.State&netlink.NUD_FAILED != 0
	n.trying = entry.State&netlink.NUD_INCOMPLETE != 0
	return n
}

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
