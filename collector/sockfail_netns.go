package collector

import (
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

// text is the fact in words.
func (r *routeFact) text() string {
	switch {
	case !r.known:
		return ""
	case r.errno == unix.ENETUNREACH:
		return "route: none (ENETUNREACH)"
	case r.errno == unix.EINVAL:
		return "route: blackhole (EINVAL)"
	case r.errno == unix.EACCES:
		return "route: prohibit (EACCES)"
	case r.errno == unix.EHOSTUNREACH:
		return "route: unreachable (EHOSTUNREACH)"
	case r.errno != 0:
		return "route: refused (" + hostfs.ErrnoName(int32(r.errno)) + ")"
	case r.local:
		return "route: local to the opener's namespace"
	}
	return "route: via " + r.dev + ", next hop " + r.via.String()
}

// has tells whether an address is one of the namespace's own.
func (v *netView) has(addr netip.Addr) bool {
	routes, err := v.route.RouteGet(addr.AsSlice())
	return err == nil && len(routes) > 0 && routes[0].Type == unix.RTN_LOCAL
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
