package network

import (
	"fmt"
	"net/netip"
	"slices"
	"strconv"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/kernosis/kernosis/collector/hostfs"
	"github.com/kernosis/kernosis/collector/netlook"
	"github.com/kernosis/kernosis/diagnose/operation"
)

// pathParameters returns the parameters that select the source and destination of packets.
func pathParameters(more ...operation.Parameter) []operation.Parameter {
	p := []operation.Parameter{
		{Name: "address", Doc: "destination IP address", Kind: operation.Address, Required: true},
		{Name: "source", Doc: "source IP address; ignored if it does not belong to the namespace", Kind: operation.Address},
	}
	return slices.Concat(p, placeParameters(), more)
}

// routePath is the path of packets out of a namespace.
type routePath struct {
	place place
	view  *netlook.View
	to    netip.Addr
	route netlook.Route
}

// findPath opens the namespace that the parameters select, queries the route, and starts a report.
// The caller must close the path's view.
func findPath(h operation.Host, v operation.Values) (*routePath, *operation.Finding, error) {
	place, err := findPlace(h, v)
	if err != nil {
		return nil, nil, err
	}
	view, err := open(h, &place)
	if err != nil {
		return nil, nil, err
	}
	r := newReport(&place)
	p := &routePath{place: place, view: view, to: address(v, "address")}
	source := address(v, "source")
	usable := source.IsValid() && source.Is4() == p.to.Is4()
	if usable {
		if usable, err = view.Has(source); err != nil {
			view.Close()
			return nil, nil, fmt.Errorf("source %s in %s: %w", source, &place, err)
		}
	}
	if source.IsValid() && !usable {
		r.Note("source %s is not a usable address of the namespace: ignored", source)
		source = netip.Addr{}
	}
	if p.route = view.RouteFrom(source, p.to); !p.route.Known {
		view.Close()
		return nil, nil, fmt.Errorf("the kernel did not report the route to %s in %s", p.to, &place)
	}
	return p, r, nil
}

// routeResults adds the results of routePath.report.
func routeResults(own ...operation.Result) []operation.Result {
	return results(append([]operation.Result{
		{Name: "route", Doc: "the route, or why there is none"},
		{Name: "routeError", Doc: "error of connect() without a route: ENETUNREACH"},
		{Name: "link", Doc: "outgoing device"},
		{Name: "nextHop", Doc: "next hop; the destination itself if it is on the link"},
		{Name: "routeSource", Doc: "source address chosen by the kernel"},
		{Name: "table", Doc: "routing table with the route"},
		{Name: "routeMTU", Doc: "MTU of the route, set or learned; not set: the device's applies"},
	}, own...)...)
}

// report stores the route.
func (p *routePath) report(r *operation.Finding) {
	r.Text("route", p.route.String())
	r.Text("routeError", hostfs.ErrnoName(int32(p.route.Errno)))
	if p.route.Errno != 0 {
		return
	}
	r.Text("link", p.route.Dev)
	if !p.route.Local {
		r.Text("nextHop", p.route.Via.String())
	}
	if p.route.Source.IsValid() {
		r.Text("routeSource", p.route.Source.String())
	}
	r.Text("table", table(p.route.Table))
	if p.route.MTU > 0 {
		r.Uint("routeMTU", uint64(p.route.MTU))
	}
}

func (p *routePath) family() int {
	if p.to.Is4() {
		return netlink.FAMILY_V4
	}
	return netlink.FAMILY_V6
}

func table(n int) string {
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
