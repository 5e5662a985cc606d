package netlook

import (
	"cmp"
	"errors"
	"net/netip"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"github.com/kernosis/kernosis/collector/bounded"
	"github.com/kernosis/kernosis/collector/hostfs"
)

// Route is how the kernel would route a packet.
type Route struct {
	Known  bool       // the kernel has answered
	Errno  unix.Errno // why there is no route
	Local  bool       // the destination is in the namespace itself
	Dev    string
	Index  int
	Via    netip.Addr // next hop; the destination itself if it is on the link
	Source netip.Addr // that packets would have
	Table  int        // RT_TABLE_*
	MTU    int        // of the route, learned or set; 0: the device's
}

// RouteTo returns the route to an address.
func (v *View) RouteTo(dst netip.Addr) Route { return v.RouteFrom(netip.Addr{}, dst) }

// RouteFrom returns the route of packets from a source address of the namespace; the zero address
// means any.
func (v *View) RouteFrom(src, dst netip.Addr) (r Route) {
	var options *netlink.RouteGetOptions
	if src.IsValid() {
		options = &netlink.RouteGetOptions{SrcAddr: src.AsSlice()}
	}
	routes, err := Ask(v, func(h *netlink.Handle) ([]netlink.Route, error) { return h.RouteGetWithOptions(dst.AsSlice(), options) })
	var errno unix.Errno
	switch {
	case errors.As(err, &errno):
		// EAGAIN is the errno of a throw route, but also of a timeout.
		r.Known, r.Errno = errno != unix.EAGAIN && errno != unix.EINTR, errno
		return r
	case err != nil || len(routes) == 0:
		return r
	}
	got := routes[0]
	r.Known, r.Local, r.Index = true, got.Type == unix.RTN_LOCAL, got.LinkIndex
	switch got.Type {
	case unix.RTN_BLACKHOLE:
		r.Errno = unix.EINVAL
	case unix.RTN_PROHIBIT:
		r.Errno = unix.EACCES
	case unix.RTN_UNREACHABLE:
		r.Errno = unix.EHOSTUNREACH
	}
	if r.Via, _ = netip.AddrFromSlice(got.Gw); !r.Via.IsValid() {
		r.Via = dst
	}
	r.Via = r.Via.Unmap()
	r.Source, _ = netip.AddrFromSlice(got.Src)
	r.Source, r.Table, r.MTU = r.Source.Unmap(), got.Table, got.MTU
	// For this request the kernel takes rtnl_lock.
	if link, err := Ask(v, func(h *netlink.Handle) (netlink.Link, error) { return h.LinkByIndex(got.LinkIndex) }); err == nil {
		r.Dev = link.Attrs().Name
	}
	return r
}

// String returns the route as text; "" if it is not known.
func (r *Route) String() string {
	switch {
	case !r.Known:
		return ""
	case r.Errno == unix.ENETUNREACH:
		return "route: none (ENETUNREACH)"
	case r.Errno == unix.EINVAL:
		return "route: blackhole (EINVAL)"
	case r.Errno == unix.EACCES:
		return "route: prohibit (EACCES)"
	case r.Errno == unix.EHOSTUNREACH:
		return "route: unreachable (EHOSTUNREACH)"
	case r.Errno != 0:
		return "route: refused (" + hostfs.ErrnoName(int32(r.Errno)) + ")"
	case r.Local:
		return "route: local to the opener's namespace"
	}
	return "route: via " + r.Dev + ", next hop " + r.Via.String()
}

// Has reports whether an address is local to the namespace. It returns an error if the kernel has
// not answered.
func (v *View) Has(addr netip.Addr) (bool, error) {
	routes, err := Ask(v, func(h *netlink.Handle) ([]netlink.Route, error) { return h.RouteGet(addr.AsSlice()) })
	if errors.Is(err, bounded.ErrLate) {
		return false, err
	}
	return err == nil && len(routes) > 0 && routes[0].Type == unix.RTN_LOCAL, nil
}

// Neighbor is an entry of the neighbour table.
type Neighbor struct {
	Known   bool   // the table was read
	State   string // NUD_* without the prefix; "none" if there is no entry
	Address string // of the link layer
	Failed  bool   // its solicitations were not answered
	Trying  bool   // its solicitations were not answered yet
}

// ndMsgLen is the size of struct ndmsg in linux/neighbour.h.
const ndMsgLen = 12

// Neighbor returns the neighbour table's entry for the next hop of a route.
func (v *View) Neighbor(r *Route) (n Neighbor) {
	msg := &netlink.Ndmsg{Family: unix.AF_INET, Index: uint32(r.Index)}
	if r.Via.Is6() {
		msg.Family = unix.AF_INET6
	}
	req := nl.NewNetlinkRequest(unix.RTM_GETNEIGH, 0) // requests for one entry: since v5.0
	req.AddData(msg)
	req.AddData(nl.NewRtAttr(netlink.NDA_DST, r.Via.AsSlice()))
	v.seq++
	req.Sockets = map[int]*nl.SocketHandle{unix.NETLINK_ROUTE: {Seq: v.seq, Socket: v.neigh}}
	answers, err := Ask(v, func(*netlink.Handle) ([][]byte, error) { return req.Execute(unix.NETLINK_ROUTE, unix.RTM_NEWNEIGH) })
	if errors.Is(err, unix.ENOENT) {
		return Neighbor{Known: true, State: "none"}
	}
	if err != nil || len(answers) == 0 || len(answers[0]) < ndMsgLen {
		return n
	}
	entry, err := netlink.NeighDeserialize(answers[0])
	if err != nil {
		return n
	}
	n = Neighbor{Known: true, Address: entry.HardwareAddr.String(), State: cmp.Or(NeighborState(entry.State), "none")}
	n.Failed = entry.State&netlink.NUD_FAILED != 0
	n.Trying = entry.State&netlink.NUD_INCOMPLETE != 0
	return n
}

// NeighborState returns the name of a neighbour table state, given as NUD_* bits; "" for none.
func NeighborState(bits int) string {
	for _, s := range []struct {
		bit  int
		name string
	}{
		{netlink.NUD_FAILED, "FAILED"}, {netlink.NUD_INCOMPLETE, "INCOMPLETE"}, {netlink.NUD_PERMANENT, "PERMANENT"},
		{netlink.NUD_NOARP, "NOARP"}, {netlink.NUD_REACHABLE, "REACHABLE"}, {netlink.NUD_STALE, "STALE"},
		{netlink.NUD_DELAY, "DELAY"}, {netlink.NUD_PROBE, "PROBE"},
	} {
		if bits&s.bit != 0 {
			return s.name
		}
	}
	return ""
}
