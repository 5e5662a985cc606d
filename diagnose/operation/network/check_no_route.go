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
		Run: inspect(h, findPath, func(_ context.Context, _ *operation.Call, p *routePath,
			r *operation.Finding) (*operation.Verdict, error) {
			defer p.view.Close()
			if p.route.Errno == 0 {
				return nil, operation.RefutedBy("RoutePresent", "%s in %s: %s, table %s", p.to, p.place, p.route.String(), table(p.route.Table))
			}
			p.report(r)
			return operation.VerdictOf("NoRoute", "%s in %s: %s", p.to, p.place, p.route.String()), nil
		}),
	}
}
