package network

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/kernosis/kernosis/collector/display"
	"github.com/kernosis/kernosis/collector/netlook"
	"github.com/kernosis/kernosis/diagnose/operation"
)

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
}

// links lists the devices of a namespace, sorted by index, with the drops of their qdiscs.
func links(view *netlook.View, r *operation.Finding) ([]link, error) {
	list, err := netlook.Ask(view, (*netlink.Handle).LinkList)
	if errors.Is(err, netlink.ErrDumpInterrupted) {
		r.Note("devices changed meanwhile: some may be missing")
	} else if err != nil {
		return nil, fmt.Errorf("list devices: %w", err)
	}
	drops := map[int]uint64{}
	qdiscs, err := netlook.Ask(view, func(h *netlink.Handle) ([]netlink.Qdisc, error) { return h.QdiscList(nil) })
	if err != nil && !errors.Is(err, netlink.ErrDumpInterrupted) {
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
			oper: a.OperState.String(), qdiscDrops: drops[a.Index],
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
	return links, nil
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
		var parts []string
		for _, c := range []struct {
			was, now uint64
			text     string
		}{
			{was.stats.RxDropped, now.stats.RxDropped, "received and dropped"}, {was.stats.TxDropped, now.stats.TxDropped, "dropped on sending"},
			{was.stats.RxErrors, now.stats.RxErrors, "receive errors"}, {was.stats.TxErrors, now.stats.TxErrors, "send errors"},
			{was.qdiscDrops, now.qdiscDrops, "dropped by the qdisc"},
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
