package operation

import (
	"fmt"
	"net/netip"
	"slices"
	"strconv"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/kernosis/kernosis/collector/hostfs"
	"github.com/kernosis/kernosis/collector/netlook"
)

// netPathParameters name where packets come from and go to.
func netPathParameters(more ...Parameter) []Parameter {
	p := []Parameter{
		{Name: "address", Doc: "IP address that packets go to", Kind: Address, Required: true},
		{Name: "source", Doc: "IP address that they come from; left aside where it is not one of the namespace's", Kind: Address},
	}
	return slices.Concat(p, netPlaceParameters(), more)
}

// netPath is the way of packets out of a namespace.
type netPath struct {
	place netPlace
	view  *netlook.View
	to    netip.Addr
	route netlook.Route
}

func (p *netPath) close() { p.view.Close() }

// netPath opens the namespace that the parameters name, and asks for the route. The
// caller must close it.
func (h Host) netPath(v Values, r *finding) (*netPath, error) {
	place, err := h.netPlace(v)
	if err != nil {
		return nil, err
	}
	r.text("targetNetNS", strconv.FormatUint(uint64(place.inode), 10))
	view, err := h.netOpen(&place)
	if err != nil {
		return nil, err
	}
	p := &netPath{place: place, view: view, to: netAddress(v, "address")}
	source := netAddress(v, "source")
	usable := source.IsValid() && source.Is4() == p.to.Is4()
	if usable {
		if usable, err = view.Has(source); err != nil {
			p.close()
			return nil, fmt.Errorf("source %s in %s: %w", source, &place, err)
		}
	}
	if source.IsValid() && !usable {
		r.note("source %s is no address of the namespace that could be used: asked for packets from any", source)
		source = netip.Addr{}
	}
	if p.route = view.RouteFrom(source, p.to); !p.route.Known {
		p.close()
		return nil, fmt.Errorf("the kernel has no answer about the route to %s in %s", p.to, &place)
	}
	return p, nil
}

// netRouteResults declares the given results, and those of netPath.report.
func netRouteResults(own ...Result) []Result {
	return netResults(append([]Result{
		{"route", "the route in words, or why there is none"},
		{"routeError", "what connect() returns without one: ENETUNREACH"},
		{"link", "device that packets leave by"},
		{"nextHop", "address that they are handed to; the destination itself where it is on the link"},
		{"routeSource", "source address that the kernel chooses"},
		{"table", "routing table that has the route"},
		{"routeMTU", "of the route, set or learned; not set: the device's"},
	}, own...)...)
}

// report keeps what the route is.
func (p *netPath) report(r *finding) {
	r.text("route", p.route.String())
	r.text("routeError", hostfs.ErrnoName(int32(p.route.Errno)))
	if p.route.Errno != 0 {
		return
	}
	r.text("link", p.route.Dev)
	if !p.route.Local {
		r.text("nextHop", p.route.Via.String())
	}
	if p.route.Source.IsValid() {
		r.text("routeSource", p.route.Source.String())
	}
	r.text("table", netTable(p.route.Table))
	if p.route.MTU > 0 {
		r.uint("routeMTU", uint64(p.route.MTU))
	}
}

func (p *netPath) family() int {
	if p.to.Is4() {
		return netlink.FAMILY_V4
	}
	return netlink.FAMILY_V6
}

func netTable(n int) string {
	switch n {
	case 0:
		return ""
	case unix.RT_TABLE_MAIN:
		return "main"
	case unix.RT_TABLE_LOCAL:
		return "local"
	case unix.RT_TABLE_DEFAULT:
		return "default"
	}
	return strconv.Itoa(n)
}
