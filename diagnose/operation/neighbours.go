package operation

import (
	"context"
	"errors"
	"net/netip"

	"github.com/vishvananda/netlink"

	"github.com/kernosis/kernosis/collector/netlook"
)

// Neighbours collects whether the next hop to an address is known on the link.
func Neighbours(h Host) Builtin {
	return Builtin{
		Name: "neighbours",
		Doc: "Tells the state of the next hop to an address in the neighbour table (ARP, NDP), and how many entries the table " +
			"has in which state. The artifact neighbours.txt has the entries.",
		Effect:     Collect,
		Parameters: netPathParameters(),
		Results: netRouteResults(
			Result{"nextHopState", "REACHABLE, STALE, FAILED …; none: there is no entry"},
			Result{"linkAddress", "of the next hop"},
			Result{"entries", "entries of the table of that family by state"},
		),
		Run: func(_ context.Context, call *Call) (Output, error) {
			r := newNetReport(nil)
			p, err := h.netPath(call.Parameters, r)
			if err != nil {
				return Output{}, err
			}
			defer p.close()
			p.report(r)
			switch {
			case p.route.Errno != 0:
			case p.route.Local:
				r.note("%s is the namespace's own: there is no next hop", p.to)
			default:
				n := p.view.Neighbor(&p.route)
				if !n.Known {
					r.note("the kernel does not report the state of %s", p.route.Via)
				}
				r.text("nextHopState", n.State)
				r.text("linkAddress", n.Address)
			}
			list, err := netlook.Ask(p.view, func(h *netlink.Handle) ([]netlink.Neigh, error) { return h.NeighList(0, p.family()) })
			if err != nil && !errors.Is(err, netlink.ErrDumpInterrupted) {
				r.note("neighbour table: %v", err)
			}
			names, states := p.linkNames(), map[string]int{}
			for i := range list {
				states[netlook.NeighborState(list[i].State)]++
			}
			r.text("entries", netCounts(states))
			err = r.artifact(call, "neighbours.txt", func(w *page) {
				for i := range list {
					n := &list[i]
					ip, _ := netip.AddrFromSlice(n.IP)
					netPrintf(w, "%s dev %s lladdr %s %s\n", ip, names[n.LinkIndex], n.HardwareAddr, netlook.NeighborState(n.State))
				}
			})
			return r.output(nil), err
		},
	}
}
