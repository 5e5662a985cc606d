package netlab

import (
	"errors"
	"fmt"
	"net"
	"net/netip"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// Kind is how a route without a next hop handles packets.
type Kind int

// The kinds of such routes, with the error that connect() returns for each.
const (
	Blackhole   Kind = unix.RTN_BLACKHOLE   // EINVAL
	Prohibit    Kind = unix.RTN_PROHIBIT    // EACCES
	Unreachable Kind = unix.RTN_UNREACHABLE // EHOSTUNREACH
)

// AddRoute adds a route without a next hop to a subnet.
func (n *Net) AddRoute(subnet string, kind Kind) {
	n.t.Helper()
	n.route("add", netlink.RouteAdd, netlink.Route{Dst: n.subnet(subnet), Type: int(kind)})
}

// RemoveRoute removes a route added by AddRoute.
func (n *Net) RemoveRoute(subnet string, kind Kind) {
	n.t.Helper()
	n.route("remove", netlink.RouteDel, netlink.Route{Dst: n.subnet(subnet), Type: int(kind)})
}

// AddRouteVia adds a route to a subnet through a next hop.
func (n *Net) AddRouteVia(subnet, hop string) {
	n.t.Helper()
	n.route("add", netlink.RouteAdd, netlink.Route{Dst: n.subnet(subnet), Gw: net.ParseIP(hop)})
}

func (n *Net) route(what string, change func(*netlink.Route) error, r netlink.Route) {
	n.t.Helper()
	n.In(func() error {
		if err := change(&r); err != nil {
			return fmt.Errorf("%s route %s: %w", what, r, err)
		}
		return nil
	})
}

func (n *Net) subnet(s string) *net.IPNet {
	n.t.Helper()
	p, err := netip.ParsePrefix(s)
	if err != nil {
		n.t.Fatal(err)
	}
	return ipNet(p)
}

func ipNet(p netip.Prefix) *net.IPNet {
	return &net.IPNet{IP: p.Addr().AsSlice(), Mask: net.CIDRMask(p.Bits(), p.Addr().BitLen())}
}

// AddGhost adds a permanent neighbour entry with a link address that no device has: packets to addr
// are sent and lost.
func (n *Net) AddGhost(addr string) {
	n.t.Helper()
	n.neighbour("add", netlink.NeighSet, addr)
}

// ForgetNeighbour removes an entry added by AddGhost, or one that the kernel has learned: it
// resolves the address again for the next packet.
func (n *Net) ForgetNeighbour(addr string) {
	n.t.Helper()
	n.neighbour("forget", func(neigh *netlink.Neigh) error {
		if err := netlink.NeighDel(neigh); !errors.Is(err, unix.ENOENT) {
			return err
		}
		return nil
	}, addr)
}

func (n *Net) neighbour(what string, change func(*netlink.Neigh) error, addr string) {
	n.t.Helper()
	ip, err := netip.ParseAddr(addr)
	if err != nil {
		n.t.Fatal(err)
	}
	n.In(func() error {
		l, err := netlink.LinkByName(device)
		if err == nil {
			err = change(&netlink.Neigh{
				LinkIndex: l.Attrs().Index, IP: ip.AsSlice(), State: netlink.NUD_PERMANENT,
				HardwareAddr: net.HardwareAddr{0x02, 0, 0, 0, 0xde, 0xad}, // locally administered address
			})
		}
		if err != nil {
			return fmt.Errorf("%s neighbour %s: %w", what, addr, err)
		}
		return nil
	})
}
