package network

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"testing"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/kernosis/kernosis/collector/netlook"
	"github.com/kernosis/kernosis/diagnose/operation"
	"github.com/kernosis/kernosis/vmtest/netlab"
)

func TestRoutes(t *testing.T) {
	n, _ := netlab.PairIn(t, 33)
	n.AddRouteVia("10.98.0.0/24", "10.97.33.2")
	n.AddRoute("10.98.1.0/24", netlab.Prohibit)
	n.In(func() error {
		l, err := netlink.LinkByName("probe0")
		if err != nil {
			return err
		}
		_, to, _ := net.ParseCIDR("10.98.2.0/24")
		if err := netlink.RouteAdd(&netlink.Route{Dst: to, LinkIndex: l.Attrs().Index, Gw: net.IPv4(10, 97, 33, 2), Table: 77, MTU: 1400, Flags: int(netlink.FLAG_ONLINK)}); err != nil {
			return fmt.Errorf("add a route: %w", err)
		}
		rule := netlink.NewRule()
		rule.Dst, rule.Table, rule.Priority = to, 77, 99
		return netlink.RuleAdd(rule)
	})
	ask := func(address string, more ...string) map[string]string {
		p := map[string]string{"netns": inode(n), "address": address}
		for i := 0; i < len(more); i += 2 {
			p[more[i]] = more[i+1]
		}
		return p
	}
	routes, check := Routes(host()), CheckNoRoute(host())
	out, files := must(t, routes, ask("10.98.0.7"))
	wantResults(t, out, map[string]string{
		"route": "via probe0, next hop 10.97.33.2", "link": "^probe0$", "nextHop": "^10.97.33.2$", "routeSource": "^10.97.33.1$",
		"table": "^main$", "linkMTU": "^1500$", "routeError": "^$", "rules": "99: from all to 10.98.2.0/24 lookup 77", "defaultRoute": "^false$", "routes": "^4$",
	})
	text := files.Read(t, "routes.txt")
	for _, want := range []string{`prohibit 10.98.1.0/24`, `10.98.2.0/24 via 10.97.33.2 dev probe0 mtu 1400 table 77`, `10.97.33.0/24 dev probe0 src 10.97.33.1 table main`} {
		if !matches(text, want) {
			t.Errorf("no %s in\n%s", want, text)
		}
	}
	out, _ = must(t, routes, ask("10.98.2.7", "source", "10.97.33.1"))
	wantResults(t, out, map[string]string{"table": "^77$", "routeMTU": "^1400$", "note": "^$"})
	out, _ = must(t, routes, ask("10.97.33.2", "source", "10.9.9.9"))
	wantResults(t, out, map[string]string{"link": "^probe0$", "note": "source 10.9.9.9 is not a usable address"})
	out, _ = must(t, routes, ask("fd97:33::2"))
	wantResults(t, out, map[string]string{"link": "^probe0$", "nextHop": "^fd97:33::2$"})
	refute(t, check, ask("10.98.2.7"), "RoutePresent", "10.98.2.7 in network namespace .*: route: via probe0, next hop 10.97.33.2, table 77")

	for address, want := range map[string]string{"10.99.0.1": `route: none \(ENETUNREACH\)`, "10.98.1.7": `route: prohibit \(EACCES\)`, "fd99::1": "ENETUNREACH"} {
		out, _ = must(t, routes, ask(address))
		wantResults(t, out, map[string]string{"route": want, "link": "^$", "nextHop": "^$", "routeError": "^E"})
		confirm(t, check, ask(address), "NoRoute", address+" in network namespace .*: .*"+want)
	}
	fail(t, check, map[string]string{"netns": inode(n)}, "parameter address is required")
	fail(t, routes, map[string]string{"netns": "77", "address": "10.0.0.1"}, "network namespace 77")
}

// A part of the routes does not exclude a default route.
func TestRoutesThatChange(t *testing.T) {
	other, def := netlink.Route{Table: unix.RT_TABLE_MAIN, Dst: &net.IPNet{IP: net.IPv4(10, 0, 0, 0), Mask: net.CIDRMask(8, 32)}}, netlink.Route{Table: unix.RT_TABLE_MAIN}
	for _, c := range []struct {
		routes []netlink.Route
		whole  bool
		want   string
	}{
		{[]netlink.Route{other}, true, "false"}, {[]netlink.Route{other}, false, ""}, {[]netlink.Route{other, def}, false, "true"}, {nil, false, ""},
	} {
		r := newReport(nil)
		reportTables(r, c.routes, c.whole)
		if got := r.Results["defaultRoute"]; got != c.want {
			t.Errorf("%d routes, whole %v: %q, want %q", len(c.routes), c.whole, got, c.want)
		}
	}
}

func TestNeighbours(t *testing.T) {
	n, target := netlab.PairIn(t, 33)
	neighbours, check := Neighbours(host()), CheckNeighbourFailed(host())
	ask := func(address string) map[string]string {
		return map[string]string{"netns": inode(n), "address": address}
	}
	refute(t, check, ask("10.97.33.2"), "NeighbourUnknown", "next hop 10.97.33.2 on probe0 in .*: no entry")
	target.Listen("10.97.33.2:80", 3)
	n.Dial("10.97.33.2:80")
	refute(t, check, ask("10.97.33.2"), "NeighbourPresent", "(REACHABLE|STALE), ..:..:")
	n.AddGhost("10.97.33.50")
	refute(t, check, ask("10.97.33.50"), "NeighbourPresent", "PERMANENT, 02:00:00:00:de:ad")
	n.AddRouteVia("10.98.0.0/24", "10.97.33.77")
	_ = n.Probe("10.98.0.1:80", 1, "") // triggers resolution of a next hop that does not exist
	out, _ := must(t, neighbours, ask("10.98.0.1"))
	wantResults(t, out, map[string]string{"nextHop": "^10.97.33.77$", "nextHopState": "^(INCOMPLETE|FAILED)$"})
	confirm(t, check, ask("10.98.0.1"), "NeighbourFailed", "next hop 10.97.33.77 on probe0 .*does not answer")

	out, files := must(t, neighbours, ask("10.97.33.2"))
	wantResults(t, out, map[string]string{"nextHopState": "REACHABLE|STALE", "linkAddress": "^..:..:..:..:..:..$", "entries": "PERMANENT 1"})
	if text := files.Read(t, "neighbours.txt"); !matches(text, "10.97.33.50 dev probe0 lladdr 02:00:00:00:de:ad PERMANENT") {
		t.Errorf("artifact\n%s", text)
	}
	refute(t, check, ask("10.97.33.1"), "NoNextHop", "local to the opener's namespace")
	refute(t, check, ask("10.99.0.1"), "NoNextHop", "route: none")
	out, _ = must(t, neighbours, ask("10.97.33.1"))
	wantResults(t, out, map[string]string{"note": "is an address of the namespace itself", "nextHopState": "^$"})
}

// A next hop whose state the kernel does not report is not ruled out.
func TestNeighbourThatIsNotReported(t *testing.T) {
	n := netlab.New(t)
	p := &routePath{place: &place{inode: n.Inode, pid: holder(n)}, route: netlook.Route{Dev: "gone0", Index: 4711, Via: netip.MustParseAddr("10.97.33.2")}}
	var err error
	if p.view, err = open(host(), p.place); err != nil {
		t.Fatal(err)
	}
	defer p.view.Close()
	verdict, err := p.neighbourVerdict(t.Context(), 0, newReport(p.place))
	var no *operation.Refuted
	if verdict != nil || err == nil || errors.As(err, &no) {
		t.Errorf("verdict %v, error %v; want an error that rules nothing out", verdict, err)
	}
}
