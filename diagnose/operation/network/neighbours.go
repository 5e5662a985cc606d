package network

import (
	"context"
	"net/netip"

	"github.com/vishvananda/netlink"

	"github.com/kernosis/kernosis/collector/netlook"
	"github.com/kernosis/kernosis/diagnose/operation"
)

func Neighbours(h operation.Host) operation.Builtin {
	return operation.Builtin{
		Name: "neighbours",
		Doc: "Reports the next hop to an address in the neighbour table (ARP, NDP), and the number of entries by state. Artifact neighbours.txt has the " +
			"entries.",
		Effect:     operation.Collect,
		Parameters: pathParameters(),
		Results: routeResults(
			operation.Result{Name: "nextHopState", Doc: "REACHABLE, STALE, FAILED …; none: no entry"},
			operation.Result{Name: "linkAddress", Doc: "link address of the next hop"},
			operation.Result{Name: "entries", Doc: "entries of that address family by state"},
		),
		Run: inspect(h, findPath, func(_ context.Context, call *operation.Call, p *routePath,
			r *operation.Finding) (*operation.Verdict, error) {
			defer p.view.Close()
			p.report(r)
			switch {
			case p.route.Errno != 0:
			case p.route.Local:
				r.Note("%s is an address of the namespace itself: there is no next hop", p.to)
			default:
				n := p.view.Neighbor(&p.route)
				if !n.Known {
					r.Note("the kernel does not report the state of %s", p.route.Via)
				}
				r.Text("nextHopState", n.State)
				r.Text("linkAddress", n.Address)
			}
			list, _, err := listed(p.view, r, "neighbours", func(h *netlink.Handle) ([]netlink.Neigh, error) { return h.NeighList(0, p.family()) })
			if err != nil {
				r.Note("neighbour table: %v", err)
			}
			names, states := p.linkNames(r), map[string]int{}
			for i := range list {
				states[netlook.NeighborState(list[i].State)]++
			}
			r.Text("entries", counts(states))
			err = r.Artifact(call, "neighbours.txt", func(w *operation.Page) {
				for i := range list {
					n := &list[i]
					ip, _ := netip.AddrFromSlice(n.IP)
					w.Printf("%s dev %s lladdr %s %s\n", ip, names[n.LinkIndex], n.HardwareAddr, netlook.NeighborState(n.State))
				}
			})
			return nil, err
		}),
	}
}
