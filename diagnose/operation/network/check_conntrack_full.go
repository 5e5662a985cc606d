package network

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/kernosis/kernosis/collector/netlook"
	"github.com/kernosis/kernosis/diagnose/operation"
)

func CheckConntrackFull(h operation.Host) operation.Builtin {
	return operation.Builtin{
		Name: "check-conntrack-full",
		Doc: "Checks whether the connection tracking table is full. Verdict ConntrackFull: the table of the given namespace or of the node, which most " +
			"pods' packets pass, is filled to at least threshold, or dropped packets for lack of space during window.",
		Effect: operation.Check,
		Parameters: append(placeParameters(), windowParameter("1s"),
			operation.Parameter{Name: "threshold", Doc: "percent of the table's size", Kind: operation.Integer, Default: "95", Max: 100}),
		Results: results(
			operation.Result{Name: "conntrack", Doc: "tracked connections and their maximum"},
			operation.Result{Name: "conntrackDropped", Doc: "packets dropped because the table was full, during window"},
		),
		Run: inspect(h, findPlace, func(ctx context.Context, call *operation.Call, p *place,
			r *operation.Finding) (*operation.Verdict, error) {
			places := []*place{p}
			if !p.node {
				node, err := findNode(h)
				if err != nil {
					return nil, err
				}
				places = append(places, node)
			}
			before := make([]conntrack, len(places))
			for i, p := range places {
				var err error
				before[i], err = readConntrack(h, p)
				// A namespace without a table can't have a full one; the node's table must be
				// readable.
				if err != nil && (!errors.Is(err, netlook.ErrNoConntrack) || p.node) {
					return nil, err
				}
			}
			window := call.Parameters.Duration("window")
			if err := operation.Pause(ctx, window); err != nil {
				return nil, err
			}
			var evidence []string
			for i, p := range places {
				after, err := readConntrack(h, p)
				if errors.Is(err, netlook.ErrNoConntrack) {
					continue
				}
				if err != nil {
					return nil, err
				}
				grew := after.since(&before[i])
				dropped := grew.noPlace()
				text := fmt.Sprintf("%s: %s, %d packets dropped for lack of space in %s", p, &after, dropped, window)
				if after.full(uint64(call.Parameters.Int("threshold")), dropped) {
					r.Uint("targetNetNS", uint64(p.inode))
					r.Text("conntrack", after.String())
					r.Uint("conntrackDropped", dropped)
					return operation.VerdictOf("ConntrackFull", "%s", text), nil
				}
				evidence = append(evidence, text)
			}
			return nil, operation.RefutedBy("ConntrackNotFull", "%s", strings.Join(evidence, "; "))
		}),
	}
}

// full reports whether the table is filled to at least threshold percent, or packets were dropped.
// A limit of 0 means no limit.
func (c *conntrack) full(threshold, dropped uint64) bool {
	return dropped > 0 || c.Max > 0 && c.percent() >= threshold
}
