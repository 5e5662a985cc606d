package operation

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/kernosis/kernosis/collector/display"
	"github.com/kernosis/kernosis/collector/netlook"
)

// errNetManySockets is returned where a namespace has more sockets than can be listed, so
// that none being found proves nothing.
var errNetManySockets = errors.New("the namespace has more sockets than can be listed")

// CheckNoListener checks whether nothing listens at an address and port.
func CheckNoListener(h Host) Builtin {
	return Builtin{
		Name:       "check-no-listener",
		Doc:        "Checks whether nothing listens at an address and TCP port. The verdict NoListener names what listens there instead.",
		Effect:     Check,
		Parameters: netPortRequired(netTargetParameters()),
		Results: netResults(
			Result{"listeners", "what listens in the namespace, those of the port first, at most 8"},
		),
		Run: func(ctx context.Context, call *Call) (Output, error) {
			p, err := h.netTarget(call.Parameters, false)
			if err != nil {
				return Output{}, err
			}
			t, err := h.netSockets(ctx, &p, call.Parameters, false)
			if err != nil {
				return Output{}, err
			}
			where := netWhere(call.Parameters)
			if l := t.listening; l != nil {
				return Output{}, refutedBy("ListenerPresent", "%s listens at %s, queue %d/%d", t.owners[l.Inode], l.Local, l.RQueue, l.WQueue)
			}
			if !t.whole {
				return Output{}, errNetManySockets
			}
			others, err := h.netListeners(ctx, &p, netAt(call.Parameters).Port())
			if err != nil {
				return Output{}, err
			}
			r := newNetReport(&p)
			const shown = 8
			list := display.List(others, shown)
			r.text("listeners", list)
			if list == "" {
				list = "nothing"
			}
			return r.output(verdictOf("NoListener", "nothing listens at %s in %s; what listens there: %s", where, &p, list)), nil
		},
	}
}

// netListeners tells what listens in a namespace, those of the port first.
func (h Host) netListeners(ctx context.Context, p *netPlace, port uint16) ([]string, error) {
	t, err := h.netSockets(ctx, p, Values{}, false)
	if err != nil {
		return nil, err
	}
	slices.SortStableFunc(t.list, func(a, b netlook.Socket) int {
		rank := func(s *netlook.Socket) int {
			if s.Local.Port() == port {
				return 0
			}
			return 1
		}
		return rank(&a) - rank(&b)
	})
	return t.listeners(), nil
}

// netWhere names the address and port of a run.
func netWhere(v Values) string {
	at := netAt(v)
	if at.Addr().IsValid() {
		return at.String()
	}
	return fmt.Sprintf(":%d", at.Port())
}

// netPortRequired has the port be given.
func netPortRequired(parameters []Parameter) []Parameter {
	return netRequire(parameters, "port")
}

func netRequire(parameters []Parameter, names ...string) []Parameter {
	for i := range parameters {
		if slices.Contains(names, parameters[i].Name) {
			parameters[i].Required = true
		}
	}
	return parameters
}
