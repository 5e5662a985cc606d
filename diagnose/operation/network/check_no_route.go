package network

import (
	"context"

	"github.com/kernosis/kernosis/diagnose/operation"
)

func CheckNoRoute(h operation.Host) operation.Builtin {
	return operation.Builtin{
		Name: "check-no-route",
		Doc: "Checks whether the kernel has no route to an address. Verdict NoRoute: the network namespace has none, or one that refuses: blackhole, " +
			"prohibit, unreachable.",
		Effect:     operation.Check,
		Parameters: pathParameters(),
		Results:    routeResults(),
		Run: func(_ context.Context, call *operation.Call) (operation.Output, error) {
			p, r, err := findPath(h, call.Parameters)
			if err != nil {
				return operation.Output{}, err
			}
			defer p.view.Close()
			if p.route.Errno == 0 {
				return operation.Output{}, operation.RefutedBy("RoutePresent", "%s in %s: %s, table %s", p.to, &p.place, p.route.String(), table(p.route.Table))
			}
			p.report(r)
			return r.Output(operation.VerdictOf("NoRoute", "%s in %s: %s", p.to, &p.place, p.route.String())), nil
		},
	}
}
