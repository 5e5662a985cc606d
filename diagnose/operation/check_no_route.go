package operation

import "context"

// CheckNoRoute checks whether a namespace has no way to an address.
func CheckNoRoute(h Host) Builtin {
	return Builtin{
		Name: "check-no-route",
		Doc: "Checks whether the kernel has no route to an address in a network namespace, or one that refuses: blackhole, " +
			"prohibit, unreachable. The verdict is NoRoute.",
		Effect:     Check,
		Parameters: netPathParameters(),
		Results:    netRouteResults(),
		Run: func(_ context.Context, call *Call) (Output, error) {
			r := newNetReport(nil)
			p, err := h.netPath(call.Parameters, r)
			if err != nil {
				return Output{}, err
			}
			defer p.close()
			if p.route.Errno == 0 {
				return Output{}, refutedBy("RoutePresent", "%s in %s: %s, table %s", p.to, &p.place, p.route.String(), netTable(p.route.Table))
			}
			p.report(r)
			return r.output(verdictOf("NoRoute", "%s in %s: %s", p.to, &p.place, p.route.String())), nil
		},
	}
}
