package network

import (
	"context"
	"fmt"
	"slices"
	"text/tabwriter"

	"github.com/kernosis/kernosis/collector/display"
	"github.com/kernosis/kernosis/diagnose/operation"
)

func Links(h operation.Host) operation.Builtin {
	return operation.Builtin{
		Name: "links",
		Doc: "Lists the network devices of a namespace: state, carrier, MTU, bond or bridge membership, and drops and receive errors during window. " +
			"Artifact links.txt has all devices with their counters.",
		Effect:     operation.Collect,
		Parameters: append(placeParameters(), windowParameter("1s"), linkParameter()),
		Results: results(
			operation.Result{Name: "links", Doc: "devices, faulty ones first, at most 8"},
			operation.Result{Name: "linkCount", Doc: "number of devices"},
			operation.Result{Name: "faults", Doc: "devices except lo that are down or have no carrier, and why; at most 8"},
			operation.Result{Name: "linkDrops", Doc: "devices with drops or errors during window, at most 8"},
		),
		Run: func(ctx context.Context, call *operation.Call) (operation.Output, error) {
			p, err := findPlace(h, call.Parameters)
			if err != nil {
				return operation.Output{}, err
			}
			view, err := open(h, &p)
			if err != nil {
				return operation.Output{}, err
			}
			defer view.Close()
			r := newReport(&p)
			before, err := links(view, r)
			if err != nil {
				return operation.Output{}, err
			}
			if err := operation.Pause(ctx, call.Parameters.Duration("window")); err != nil {
				return operation.Output{}, err
			}
			after, err := links(view, r)
			if err != nil {
				return operation.Output{}, err
			}
			if name := call.Parameters["link"]; name != "" {
				after = slices.DeleteFunc(after, func(l link) bool { return l.name != name })
				if len(after) == 0 {
					return operation.Output{}, fmt.Errorf("%s has no device %q", &p, name)
				}
			}
			grown := linksGrew(before, after)
			var good, bad []string
			for i := range after {
				if l := &after[i]; l.fault() != "" && l.name != "lo" {
					bad = append(bad, l.String())
				} else {
					good = append(good, l.String())
				}
			}
			const shown = 8
			r.Uint("linkCount", uint64(len(after)))
			r.Text("links", display.List(slices.Concat(bad, good), shown))
			r.Text("faults", display.List(bad, shown))
			r.Text("linkDrops", display.List(grown, shown))
			err = r.Artifact(call, "links.txt", func(w *operation.Page) {
				tab := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
				rows := &operation.Page{Writer: tab}
				rows.Printf("LINK\tRX-PACKETS\tRX-DROPPED\tRX-ERRORS\tRX-MISSED\tTX-PACKETS\tTX-DROPPED\tTX-ERRORS\tTX-CARRIER\tQDISC-DROPS\n")
				for i := range after {
					l, s := &after[i], &after[i].stats
					rows.Printf("%s\t%d\t%d\t%d\t%d\t%d\t%d\t%d\t%d\t%d\n", l, s.RxPackets, s.RxDropped, s.RxErrors, s.RxMissedErrors,
						s.TxPackets, s.TxDropped, s.TxErrors, s.TxCarrierErrors, l.qdiscDrops)
				}
				for _, text := range grown {
					rows.Printf("during %s: %s\n", call.Parameters.Duration("window"), text)
				}
				_ = tab.Flush() // w keeps the error
			})
			return r.Output(nil), err
		},
	}
}

func linkParameter() operation.Parameter {
	return operation.Parameter{Name: "link", Doc: "name of one network device; none: all", Kind: operation.String}
}
