package network

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/kernosis/kernosis/collector/display"
	"github.com/kernosis/kernosis/collector/netlook"
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
		Run: inspect(h, findPlace, func(ctx context.Context, call *operation.Call, p *place,
			r *operation.Finding) (*operation.Verdict, error) {
			before, _, err := linksOf(h, p, r)
			if err != nil {
				return nil, err
			}
			if err := operation.Pause(ctx, call.Parameters.Duration("window")); err != nil {
				return nil, err
			}
			after, whole, err := linksOf(h, p, r)
			if err != nil {
				return nil, err
			}
			if name := call.Parameters["link"]; name != "" {
				after = slices.DeleteFunc(after, func(l link) bool { return l.name != name })
				if len(after) == 0 {
					return nil, noDevice(p, name, whole)
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
			return nil, err
		}),
	}
}

func linkParameter() operation.Parameter {
	return operation.Parameter{Name: "link", Doc: "name of one network device; none: all", Kind: operation.String}
}

// link is a network device at one moment.
type link struct {
	index, parent, masterIndex, mtu int
	name, kind, master              string // safe to print
	up                              bool   // administratively
	carrier                         bool
	oper                            string
	bondSlave                       string // state as a member of a bond; empty: it is not a member
	mii                             string // link state of a member according to the bond
	stats                           netlink.LinkStatistics
	qdiscDrops                      uint64
	qdiscsKnown                     bool // all are in qdiscDrops
}

// linksOf lists the devices of a namespace, like links.
func linksOf(h operation.Host, p *place, r *operation.Finding) (out []link, whole bool, err error) {
	view, err := open(h, p)
	if err != nil {
		return nil, false, err
	}
	defer view.Close()
	return links(view, r)
}

// noDevice returns the error for a device that is not in the list; if that is not whole, the device
// may exist.
func noDevice(p *place, name string, whole bool) error {
	if !whole {
		return fmt.Errorf("devices of %s changed each time they were listed: %q may be missing", p, name)
	}
	return fmt.Errorf("%s has no device %q", p, name)
}

// links lists the devices of a namespace, sorted by index, with the drops of their qdiscs. If it is
// not whole, some may be missing.
func links(view *netlook.View, r *operation.Finding) (out []link, whole bool, err error) {
	list, whole, err := listed(view, r, "devices", (*netlink.Handle).LinkList)
	if err != nil {
		return nil, false, fmt.Errorf("list devices: %w", err)
	}
	drops := map[int]uint64{}
	qdiscs, known, err := listed(view, r, "qdiscs", func(h *netlink.Handle) ([]netlink.Qdisc, error) { return h.QdiscList(nil) })
	if err != nil {
		r.Note("can't read qdisc counters: %v", err)
	}
	for _, q := range qdiscs {
		// Parents also count the drops of their children.
		if a := q.Attrs(); a.Statistics != nil && a.Statistics.Queue != nil && (a.Parent == netlink.HANDLE_ROOT || a.Parent == netlink.HANDLE_INGRESS) {
			drops[a.LinkIndex] += uint64(a.Statistics.Queue.Drops)
		}
	}
	names := map[int]string{}
	links := make([]link, 0, len(list))
	for _, l := range list {
		a := l.Attrs()
		n := link{
			index: a.Index, parent: a.ParentIndex, masterIndex: a.MasterIndex, mtu: a.MTU,
			name: display.Safe(a.Name, maxName), kind: display.Safe(l.Type(), maxName),
			up: a.RawFlags&unix.IFF_UP != 0, carrier: a.RawFlags&unix.IFF_LOWER_UP != 0,
			oper: a.OperState.String(), qdiscDrops: drops[a.Index], qdiscsKnown: known,
		}
		if a.Statistics != nil {
			n.stats = *a.Statistics
		}
		if s, ok := a.Slave.(*netlink.BondSlave); ok {
			n.bondSlave, n.mii = s.State.String(), s.MiiStatus.String()
		}
		names[a.Index] = n.name
		links = append(links, n)
	}
	for i := range links {
		links[i].master = names[links[i].masterIndex]
	}
	slices.SortFunc(links, func(a, b link) int { return cmp.Compare(a.index, b.index) })
	return links, whole, nil
}

// listed lists something of a namespace like undisturbed, and notes if the list is not whole.
func listed[T any](view *netlook.View, r *operation.Finding, what string, list func(*netlink.Handle) ([]T, error)) (out []T, whole bool, err error) {
	out, whole, err = undisturbed(func() ([]T, error) { return netlook.Ask(view, list) })
	if err == nil && !whole {
		r.Note("%s changed meanwhile: some may be missing", what)
	}
	return out, whole, err
}

// undisturbed lists something again while changes interrupt the list. It gives up after a few
// attempts, because a node that starts pods may interrupt each one; then the list is incomplete.
func undisturbed[T any](list func() (T, error)) (out T, whole bool, err error) {
	const attempts = 5
	for range attempts {
		if out, err = list(); !errors.Is(err, netlink.ErrDumpInterrupted) {
			return out, err == nil, err
		}
	}
	return out, false, nil
}

// fault describes what is wrong with a device; empty: nothing.
func (l *link) fault() string {
	switch {
	case !l.up:
		return "administratively down"
	case !l.carrier:
		return "up, but without carrier"
	case l.oper == "down" || l.oper == "lower-layer-down":
		return "up, but its state is " + l.oper
	case l.mii == "DOWN" || l.mii == "GOING_DOWN":
		return "up, but its bond " + l.master + " reports its link as " + l.mii
	}
	return ""
}

// String formats the device in one line.
func (l *link) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s %s", l.name, l.kind)
	switch f := l.fault(); f {
	case "":
		b.WriteString(" up")
	default:
		b.WriteString(" " + f)
	}
	fmt.Fprintf(&b, " mtu %d", l.mtu)
	if l.master != "" {
		b.WriteString(" of " + l.master)
	}
	if l.bondSlave != "" {
		fmt.Fprintf(&b, " (%s, link %s)", l.bondSlave, l.mii)
	}
	return b.String()
}

// linksGrew lists the devices whose loss counters have grown, and by how much. It identifies a
// device by index and name.
func linksGrew(before, after []link) []string {
	var out []string
	for i := range after {
		now := &after[i]
		at, found := slices.BinarySearchFunc(before, now.index, func(l link, index int) int { return cmp.Compare(l.index, index) })
		if !found || before[at].name != now.name {
			continue
		}
		was := &before[at]
		qdiscsWere := now.qdiscDrops
		if was.qdiscsKnown && now.qdiscsKnown {
			qdiscsWere = was.qdiscDrops
		}
		var parts []string
		for _, c := range []struct {
			was, now uint64
			text     string
		}{
			{was.stats.RxDropped, now.stats.RxDropped, "received and dropped"}, {was.stats.TxDropped, now.stats.TxDropped, "dropped on sending"},
			{was.stats.RxErrors, now.stats.RxErrors, "receive errors"}, {was.stats.TxErrors, now.stats.TxErrors, "send errors"},
			{qdiscsWere, now.qdiscDrops, "dropped by the qdisc"},
		} {
			if n := increase(c.was, c.now); n > 0 {
				parts = append(parts, fmt.Sprintf("%d %s", n, c.text))
			}
		}
		if len(parts) > 0 {
			out = append(out, now.name+": "+strings.Join(parts, ", "))
		}
	}
	return out
}
