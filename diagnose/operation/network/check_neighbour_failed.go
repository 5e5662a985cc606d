package network

import (
	"context"
	"fmt"
	"time"

	"github.com/kernosis/kernosis/diagnose/operation"
)

func CheckNeighbourFailed(h operation.Host) operation.Builtin {
	return operation.Builtin{
		Name: "check-neighbour-failed",
		Doc: "Checks whether the next hop to an address does not answer ARP or NDP. Verdict NeighbourFailed. Sends nothing itself. If a resolution is in " +
			"progress, waits for its result during window: the kernel asks three times, one second apart.",
		Effect:     operation.Check,
		Parameters: pathParameters(windowParameter("3s")),
		Results: routeResults(
			operation.Result{Name: "nextHopState", Doc: "state of its entry in the neighbour table"},
		),
		Run: inspect(h, findPath, func(ctx context.Context, call *operation.Call, p *routePath,
			r *operation.Finding) (*operation.Verdict, error) {
			defer p.view.Close()
			p.report(r)
			if p.route.Errno != 0 || p.route.Local {
				return nil, operation.RefutedBy("NoNextHop", "%s in %s: %s", p.to, p.place, p.route.String())
			}
			return p.neighbourVerdict(ctx, call.Parameters.Duration("window"), r)
		}),
	}
}

// neighbourVerdict judges the next hop of the route, after window if a resolution is in progress.
func (p *routePath) neighbourVerdict(ctx context.Context, window time.Duration, r *operation.Finding) (*operation.Verdict, error) {
	began := time.Now()
	for tried := true; ; {
		n := p.view.Neighbor(&p.route)
		tried = tried && n.Trying
		waited := time.Since(began)
		r.Text("nextHopState", n.State)
		what := "next hop " + p.route.Via.String() + " on " + p.route.Dev + " in " + p.place.String()
		switch {
		case n.Failed:
			return operation.VerdictOf("NeighbourFailed", "%s: FAILED, it does not answer on the link", what), nil
		case tried && waited >= window:
			return operation.VerdictOf("NeighbourFailed", "%s: INCOMPLETE for more than %s, it does not answer on the link", what, window), nil
		case !n.Known && waited >= window:
			return nil, fmt.Errorf("%s: the kernel did not report its state", what)
		case n.State == "none":
			return nil, operation.RefutedBy("NeighbourUnknown", "%s: no entry, so nothing was sent there recently", what)
		case n.Known && !n.Trying && (n.State != "PROBE" && n.State != "DELAY" || waited >= window):
			return nil, operation.RefutedBy("NeighbourPresent", "%s: %s, %s", what, n.State, n.Address)
		}
		if err := operation.Pause(ctx, lookEvery); err != nil {
			return nil, err
		}
	}
}
