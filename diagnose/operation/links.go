package operation

import (
	"context"
	"fmt"
	"slices"
	"text/tabwriter"

	"github.com/kernosis/kernosis/collector/display"
)

// Links collects the network devices of a namespace.
func Links(h Host) Builtin {
	return Builtin{
		Name: "links",
		Doc: "Lists the network devices of a namespace: whether they are up and have carrier, their MTU, of which bond or " +
			"bridge they are, and what they dropped or received in error during the window. The artifact links.txt has all " +
			"with their counters.",
		Effect:     Collect,
		Parameters: append(netPlaceParameters(), netWindowParameter("1s"), netLinkParameter()),
		Results: netResults(
			Result{"links", "the devices, at most 8; those with a fault first"},
			Result{"linkCount", "how many there are"},
			Result{"faults", "devices, but lo, that are down or have no carrier, and why; at most 8"},
			Result{"linkDrops", "devices that dropped packets or saw errors during the window, at most 8"},
		),
		Run: func(ctx context.Context, call *Call) (Output, error) {
			p, err := h.netPlace(call.Parameters)
			if err != nil {
				return Output{}, err
			}
			view, err := h.netOpen(&p)
			if err != nil {
				return Output{}, err
			}
			defer view.Close()
			r := newNetReport(&p)
			before, err := netLinks(view, r)
			if err != nil {
				return Output{}, err
			}
			if err := pauseFor(ctx, call.Parameters.Duration("window")); err != nil {
				return Output{}, err
			}
			after, err := netLinks(view, r)
			if err != nil {
				return Output{}, err
			}
			if name := call.Parameters["link"]; name != "" {
				after = slices.DeleteFunc(after, func(l netLink) bool { return l.name != name })
				if len(after) == 0 {
					return Output{}, fmt.Errorf("%s has no device %q", &p, name)
				}
			}
			grew := netLinksGrew(before, after)
			var good, bad, grown []string
			for i := range after {
				if l := &after[i]; l.fault() != "" && l.name != "lo" {
					bad = append(bad, l.String())
				} else {
					good = append(good, l.String())
				}
			}
			for _, g := range grew {
				grown = append(grown, g.String())
			}
			const shown = 8
			r.uint("linkCount", uint64(len(after)))
			r.text("links", display.List(slices.Concat(bad, good), shown))
			r.text("faults", display.List(bad, shown))
			r.text("linkDrops", display.List(grown, shown))
			err = r.artifact(call, "links.txt", func(w *page) {
				tab := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
				netPrintf(tab, "LINK\tRX-PACKETS\tRX-DROPPED\tRX-ERRORS\tRX-MISSED\tTX-PACKETS\tTX-DROPPED\tTX-ERRORS\tTX-CARRIER\tQDISC-DROPS\n")
				for i := range after {
					l, s := &after[i], &after[i].stats
					netPrintf(tab, "%s\t%d\t%d\t%d\t%d\t%d\t%d\t%d\t%d\t%d\n", l, s.RxPackets, s.RxDropped, s.RxErrors, s.RxMissedErrors,
						s.TxPackets, s.TxDropped, s.TxErrors, s.TxCarrierErrors, l.qdiscDrops)
				}
				for _, text := range grown {
					netPrintf(tab, "during %s: %s\n", call.Parameters.Duration("window"), text)
				}
				_ = tab.Flush() // w keeps the error
			})
			return r.output(nil), err
		},
	}
}

func netLinkParameter() Parameter {
	return Parameter{Name: "link", Doc: "name of one network device; default: all", Kind: String}
}
