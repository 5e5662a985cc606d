package network

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/kernosis/kernosis/collector/display"
	"github.com/kernosis/kernosis/collector/netlook"
	"github.com/kernosis/kernosis/diagnose/operation"
)

func CheckNoListener(h operation.Host) operation.Builtin {
	return operation.Builtin{
		Name:       "check-no-listener",
		Doc:        "Checks whether nothing listens at an address and TCP port. Verdict NoListener, which names what listens there instead.",
		Effect:     operation.Check,
		Parameters: portRequired(targetParameters()),
		Results: results(
			operation.Result{Name: "listeners", Doc: "listeners of the namespace, those of the port first, at most 8"},
		),
		Run: inspect(h, findTarget, func(ctx context.Context, call *operation.Call, p *place,
			r *operation.Finding) (*operation.Verdict, error) {
			t, err := sockets(h, ctx, p, call.Parameters, false)
			if err != nil {
				return nil, err
			}
			where := where(call.Parameters)
			if l := t.listening; l != nil {
				return nil, operation.RefutedBy("ListenerPresent", "%s listens at %s, queue %d/%d", t.owners[l.Inode], l.Local, l.RQueue, l.WQueue)
			}
			if !t.whole { // otherwise finding none proves nothing
				return nil, errors.New("the namespace has more sockets than can be listed")
			}
			others, err := listeners(h, ctx, p, at(call.Parameters).Port())
			if err != nil {
				return nil, err
			}
			const shown = 8
			list := display.List(others, shown)
			r.Text("listeners", list)
			return operation.VerdictOf("NoListener", "nothing listens at %s in %s; other listeners: %s", where, p, cmp.Or(list, "none")), nil
		}),
	}
}

// listeners lists the listeners of a namespace, those of the port first.
func listeners(h operation.Host, ctx context.Context, p *place, port uint16) ([]string, error) {
	t, err := sockets(h, ctx, p, operation.Values{}, false)
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

// where formats the address and port of a run.
func where(v operation.Values) string {
	at := at(v)
	if at.Addr().IsValid() {
		return at.String()
	}
	return fmt.Sprintf(":%d", at.Port())
}

// portRequired makes the parameter port required.
func portRequired(parameters []operation.Parameter) []operation.Parameter {
	for i := range parameters {
		parameters[i].Required = parameters[i].Required || parameters[i].Name == "port"
	}
	return parameters
}
