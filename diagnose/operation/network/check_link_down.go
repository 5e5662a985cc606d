package network

import (
	"context"
	"fmt"
	"slices"

	"github.com/kernosis/kernosis/collector/display"
	"github.com/kernosis/kernosis/diagnose/operation"
)

func CheckLinkDown(h operation.Host) operation.Builtin {
	return operation.Builtin{
		Name: "check-link-down",
		Doc: "Checks whether a network device is down or has no carrier. Verdict LinkDown. Checks the named device, else the outgoing device for the " +
			"address, else every device of the namespace that should carry packets. Members of a bond or bridge count with it.",
		Effect: operation.Check,
		Parameters: append([]operation.Parameter{
			linkParameter(),
			{Name: "address", Doc: "IP address whose route has the device", Kind: operation.Address},
		}, placeParameters()...),
		Results: results(
			operation.Result{Name: "link", Doc: "the device that is down"},
			operation.Result{Name: "faults", Doc: "all checked devices that are down, at most 8"},
		),
		Run: inspect(h, findPlace, func(_ context.Context, call *operation.Call, p *place,
			r *operation.Finding) (*operation.Verdict, error) {
			v := call.Parameters
			view, err := open(h, p)
			if err != nil {
				return nil, err
			}
			defer view.Close()
			links, whole, err := links(view, r)
			if err != nil {
				return nil, err
			}
			var looked []link
			why := "that should carry packets"
			name := v["link"]
			if to := address(v, "address"); name == "" && to.IsValid() {
				// If there is no route, the device that had it may be down: check all devices.
				if route := view.RouteTo(to); route.Known && route.Errno == 0 {
					name = route.Dev
				} else {
					why = fmt.Sprintf("that should carry packets, as there is no route to %s", to)
				}
			}
			if name != "" {
				why = "used for sending"
				looked = slices.DeleteFunc(slices.Clone(links), func(l link) bool { return l.name != name && !carries(links, &l, name) })
				if len(looked) == 0 {
					return nil, noDevice(p, name, whole)
				}
			} else {
				looked = slices.DeleteFunc(slices.Clone(links), func(l link) bool { return !l.shouldCarry() })
			}
			return linkVerdict(p, looked, whole, why, r)
		}),
	}
}

// linkVerdict judges the devices that were looked at; if the list is not whole, others may be down.
func linkVerdict(p *place, looked []link, whole bool, why string, r *operation.Finding) (*operation.Verdict, error) {
	var down, fine []string
	for i := range looked {
		l := &looked[i]
		if f := l.fault(); f != "" {
			if len(down) == 0 {
				r.Text("link", l.name)
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
	switch {
	case len(down) > 0:
		r.Text("faults", display.List(down, shown))
		return operation.VerdictOf("LinkDown", "in %s %s; healthy devices %s: %s", p, display.List(down, shown), why, display.List(fine, shown)), nil
	case !whole:
		return nil, fmt.Errorf("devices of %s changed each time they were listed: some may be missing", p)
	}
	return nil, operation.RefutedBy("LinksUp", "devices of %s %s: %s", p, why, display.List(fine, shown))
}

// carries reports whether packets of the device with a name pass through l, because l is a member
// of that bond or bridge, or the device below it.
func carries(links []link, l *link, name string) bool {
	for i := range links {
		if of := &links[i]; of.name == name {
			// The index of a veth's peer is one of another namespace.
			return l.bondSlave != "" && l.masterIndex == of.index || of.kind == "vlan" && of.parent == l.index
		}
	}
	return false
}

// shouldCarry reports whether it is a fault if the device is down: it is administratively up, or of
// a kind that is always created for use.
func (l *link) shouldCarry() bool {
	if l.name == "lo" {
		return false
	}
	switch l.kind {
	case "device", "veth", "bond", "vlan", "macvlan", "ipvlan":
		return true
	case "bridge":
		return false // it has no carrier while no member is up, like the node's docker0
	}
	return l.up
}
