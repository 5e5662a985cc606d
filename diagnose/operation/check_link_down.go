package operation

import (
	"context"
	"fmt"
	"slices"

	"github.com/kernosis/kernosis/collector/display"
)

// CheckLinkDown checks whether a network device is down.
func CheckLinkDown(h Host) Builtin {
	return Builtin{
		Name: "check-link-down",
		Doc: "Checks whether a network device is down or has no carrier: the one named, else the one by which packets to the " +
			"address leave, else any of the namespace that should carry packets. Members of a bond or bridge count with it. The verdict " +
			"is LinkDown.",
		Effect: Check,
		Parameters: append([]Parameter{
			netLinkParameter(),
			{Name: "address", Doc: "IP address whose route has the device", Kind: Address},
		}, netPlaceParameters()...),
		Results: netResults(
			Result{"link", "the device that is down"},
			Result{"faults", "all that are down of those looked at, at most 8"},
		),
		Run: func(_ context.Context, call *Call) (Output, error) {
			v := call.Parameters
			p, err := h.netPlace(v)
			if err != nil {
				return Output{}, err
			}
			view, err := h.netOpen(&p)
			if err != nil {
				return Output{}, err
			}
			defer view.Close()
			r := newNetReport(&p)
			links, err := netLinks(view, r)
			if err != nil {
				return Output{}, err
			}
			var looked []netLink
			why := "that should carry packets"
			name := v["link"]
			if to := netAddress(v, "address"); name == "" && to.IsValid() {
				// Without a route the device that had it may be down: all are looked at.
				if route := view.RouteTo(to); route.Known && route.Errno == 0 {
					name = route.Dev
				} else {
					why = fmt.Sprintf("that should carry packets, as there is no route to %s", to)
				}
			}
			if name != "" {
				why = "that packets leave by"
				looked = slices.DeleteFunc(slices.Clone(links), func(l netLink) bool { return l.name != name && !netCarries(links, &l, name) })
				if len(looked) == 0 {
					return Output{}, fmt.Errorf("%s has no device %q", &p, name)
				}
			} else {
				looked = slices.DeleteFunc(slices.Clone(links), func(l netLink) bool { return !l.shouldCarry() })
			}
			var down, fine []string
			for i := range looked {
				l := &looked[i]
				if f := l.fault(); f != "" {
					if len(down) == 0 {
						r.text("link", l.name)
					}
					down = append(down, l.name+" is "+f)
				} else {
					fine = append(fine, l.String())
				}
			}
			const shown = 8
			if len(fine) == 0 {
				fine = []string{"none"}
			}
			if len(down) == 0 {
				return Output{}, refutedBy("LinksUp", "devices of %s %s: %s", &p, why, display.List(fine, shown))
			}
			r.text("faults", display.List(down, shown))
			return r.output(verdictOf("LinkDown", "in %s %s; devices %s that are in order: %s", &p, display.List(down, shown), why, display.List(fine, shown))), nil
		},
	}
}

// netCarries tells whether packets of the device with a name go through l: a member of
// that bond or bridge, or the device below it.
func netCarries(links []netLink, l *netLink, name string) bool {
	for i := range links {
		if of := &links[i]; of.name == name {
			// A veth's peer has an index of another namespace.
			return l.bondSlave != "" && l.masterIndex == of.index || of.kind == "vlan" && of.parent == l.index
		}
	}
	return false
}

// shouldCarry tells whether a device that is down is a fault: one that is administratively
// up, or of a kind that nobody makes without using it.
func (l *netLink) shouldCarry() bool {
	if l.name == "lo" {
		return false
	}
	switch l.kind {
	case "device", "veth", "bond", "vlan", "macvlan", "ipvlan":
		return true
	case "bridge":
		return false // without carrier while no member is up: as the node's docker0
	}
	return l.up
}
