package network

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/kernosis/kernosis/collector/display"
	"github.com/kernosis/kernosis/collector/hostfs"
	"github.com/kernosis/kernosis/collector/netlook"
	"github.com/kernosis/kernosis/diagnose/operation"
)

// maxRoutes bounds the artifact: more than a node has in a cluster with one route per node.
const maxRoutes = 8192

func Routes(h operation.Host) operation.Builtin {
	return operation.Builtin{
		Name:       "routes",
		Doc:        "Queries the kernel's route to an address, and lists the rules and routes of that address family. Artifact routes.txt has all tables.",
		Effect:     operation.Collect,
		Parameters: pathParameters(),
		Results: routeResults(
			operation.Result{Name: "linkMTU", Doc: "MTU of the device"},
			operation.Result{Name: "rules", Doc: "rules that select a table, at most 12"},
			operation.Result{Name: "routes", Doc: "routes in all tables except the local one"},
			operation.Result{Name: "defaultRoute", Doc: "true: the main table has a default route; not set if routes may be missing"},
		),
		Run: inspect(h, findPath, func(_ context.Context, call *operation.Call, p *routePath,
			r *operation.Finding) (*operation.Verdict, error) {
			defer p.view.Close()
			p.report(r)
			if p.route.Errno == 0 {
				l, err := netlook.Ask(p.view, func(h *netlink.Handle) (netlink.Link, error) { return h.LinkByIndex(p.route.Index) })
				if err == nil {
					r.Uint("linkMTU", uint64(max(0, l.Attrs().MTU)))
				}
			}
			rules, err := p.rules(r)
			if err != nil {
				r.Note("no rules: %v", err) // a kernel without policy routing
			}
			const shown = 12
			r.Text("rules", display.List(rules, shown))
			routes, whole, err := p.routes(r)
			if err != nil {
				r.Note("routes: %v", err)
			}
			reportTables(r, routes, whole)
			names := p.linkNames(r)
			err = r.Artifact(call, "routes.txt", func(w *operation.Page) {
				w.Printf("to %s in %s: %s\n\nrules\n", p.to, p.place, p.route.String())
				for _, rule := range rules {
					w.Printf("  %s\n", rule)
				}
				w.Printf("\nroutes\n")
				for i := range routes {
					if i == maxRoutes {
						w.Printf("  … and %d more\n", len(routes)-i)
						break
					}
					w.Printf("  %s\n", routeText(&routes[i], names))
				}
			})
			return nil, err
		}),
	}
}

// reportTables stores what is known of the routes. If they are not whole, the default route may be
// missing.
func reportTables(r *operation.Finding, routes []netlink.Route, whole bool) {
	byDefault := false
	for i := range routes {
		byDefault = byDefault || routes[i].Table == unix.RT_TABLE_MAIN && isDefault(&routes[i])
	}
	if whole || len(routes) > 0 {
		r.Uint("routes", uint64(len(routes)))
	}
	if whole || byDefault {
		r.Bool("defaultRoute", byDefault)
	}
}

// rules lists the rules of the address' family, in the order in which the kernel evaluates them.
func (p *routePath) rules(r *operation.Finding) ([]string, error) {
	rules, _, err := listed(p.view, r, "rules", func(h *netlink.Handle) ([]netlink.Rule, error) { return h.RuleList(p.family()) })
	if err != nil {
		return nil, err
	}
	out := make([]string, len(rules))
	for i, rule := range rules {
		from, to, more := "all", "", ""
		if rule.Src != nil {
			from = rule.Src.String()
		}
		if rule.Dst != nil {
			to = " to " + rule.Dst.String()
		}
		if rule.Mark != 0 {
			more = fmt.Sprintf(" mark %#x", rule.Mark)
		}
		if rule.IifName != "" {
			more += " iif " + rule.IifName
		}
		if rule.OifName != "" {
			more += " oif " + rule.OifName
		}
		if rule.Invert {
			more += " inverted"
		}
		out[i] = fmt.Sprintf("%d: from %s%s%s lookup %s", max(0, rule.Priority), from, to, more, table(rule.Table))
	}
	return out, nil
}

// routes lists the routes of the address' family in all tables except the local one.
func (p *routePath) routes(r *operation.Finding) (out []netlink.Route, whole bool, err error) {
	family := p.family()
	return listed(p.view, r, "routes", func(h *netlink.Handle) (out []netlink.Route, err error) {
		err = h.RouteListFilteredIter(family, &netlink.Route{Table: unix.RT_TABLE_UNSPEC}, netlink.RT_FILTER_TABLE, func(r netlink.Route) bool {
			if r.Table != unix.RT_TABLE_LOCAL {
				out = append(out, r)
			}
			return true
		})
		return out, err
	})
}

func (p *routePath) linkNames(r *operation.Finding) map[int]string {
	names := map[int]string{}
	links, _, err := listed(p.view, r, "devices", (*netlink.Handle).LinkList)
	if err != nil {
		r.Note("can't read device names: %v", err)
	}
	for _, l := range links {
		names[l.Attrs().Index] = display.Safe(l.Attrs().Name, maxName)
	}
	return names
}

func isDefault(r *netlink.Route) bool {
	if r.Dst == nil {
		return true
	}
	ones, _ := r.Dst.Mask.Size()
	return ones == 0
}

// routeText formats a route in one line.
func routeText(r *netlink.Route, links map[int]string) string {
	var b strings.Builder
	switch r.Type {
	case unix.RTN_BLACKHOLE:
		b.WriteString("blackhole ")
	case unix.RTN_PROHIBIT:
		b.WriteString("prohibit ")
	case unix.RTN_UNREACHABLE:
		b.WriteString("unreachable ")
	}
	if isDefault(r) {
		b.WriteString("default")
	} else {
		b.WriteString(r.Dst.String())
	}
	hop := func(via fmt.Stringer, some bool, link int) {
		if some {
			fmt.Fprintf(&b, " via %s", via)
		}
		if name := links[link]; name != "" {
			fmt.Fprintf(&b, " dev %s", name)
		}
	}
	hop(r.Gw, r.Gw != nil, r.LinkIndex)
	for _, m := range r.MultiPath {
		b.WriteString(" nexthop")
		hop(m.Gw, m.Gw != nil, m.LinkIndex)
	}
	if r.Src != nil {
		fmt.Fprintf(&b, " src %s", r.Src)
	}
	if r.Priority != 0 {
		fmt.Fprintf(&b, " metric %d", r.Priority)
	}
	if r.MTU != 0 {
		fmt.Fprintf(&b, " mtu %d", r.MTU)
	}
	fmt.Fprintf(&b, " table %s", table(r.Table))
	return b.String()
}

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
	place *place
	view  *netlook.View
	to    netip.Addr
	route netlook.Route
}

// findPath opens the namespace that the parameters select, queries the route, and starts a report.
// The caller must close the path's view.
func findPath(h operation.Host, v operation.Values) (*routePath, *operation.Finding, error) {
	place, r, err := findPlace(h, v)
	if err != nil {
		return nil, nil, err
	}
	view, err := open(h, place)
	if err != nil {
		return nil, nil, err
	}
	p := &routePath{place: place, view: view, to: address(v, "address")}
	source := address(v, "source")
	usable := source.IsValid() && source.Is4() == p.to.Is4()
	if usable {
		if usable, err = view.Has(source); err != nil {
			view.Close()
			return nil, nil, fmt.Errorf("source %s in %s: %w", source, place, err)
		}
	}
	if source.IsValid() && !usable {
		r.Note("source %s is not a usable address of the namespace: ignored", source)
		source = netip.Addr{}
	}
	if p.route = view.RouteFrom(source, p.to); !p.route.Known {
		view.Close()
		return nil, nil, fmt.Errorf("the kernel did not report the route to %s in %s", p.to, place)
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
