package network

import (
	"context"
	"errors"
	"fmt"
	"strings"

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
		Run: func(ctx context.Context, call *operation.Call) (operation.Output, error) {
			p, err := findPlace(h, call.Parameters)
			if err != nil {
				return operation.Output{}, err
			}
			places := []place{p}
			if !p.node {
				node, err := findNode(h)
				if err != nil {
					return operation.Output{}, err
				}
				places = append(places, node)
			}
			before := make([]conntrack, len(places))
			for i := range places {
				// A namespace without a table can't have a full one; the node's table must be
				// readable.
				before[i], err = readConntrack(h, &places[i])
				if err != nil && (!errors.Is(err, errNoConntrack) || places[i].node) {
					return operation.Output{}, err
				}
			}
			window := call.Parameters.Duration("window")
			if err := operation.Pause(ctx, window); err != nil {
				return operation.Output{}, err
			}
			var evidence []string
			for i := range places {
				after, err := readConntrack(h, &places[i])
				if errors.Is(err, errNoConntrack) {
					continue
				}
				if err != nil {
					return operation.Output{}, err
				}
				grew := after.since(&before[i])
				dropped := grew.noPlace()
				text := fmt.Sprintf("%s: %s, %d packets dropped for lack of space in %s", &places[i], &after, dropped, window)
				if after.full(uint64(call.Parameters.Int("threshold")), dropped) {
					r := newReport(&places[i])
					r.Text("conntrack", after.String())
					r.Uint("conntrackDropped", dropped)
					return r.Output(operation.VerdictOf("ConntrackFull", "%s", text)), nil
				}
				evidence = append(evidence, text)
			}
			return operation.Output{}, operation.RefutedBy("ConntrackNotFull", "%s", strings.Join(evidence, "; "))
		},
	}
}

// full reports whether the table is filled to at least threshold percent, or packets were dropped.
// A limit of 0 means no limit.
func (c *conntrack) full(threshold, dropped uint64) bool {
	return dropped > 0 || c.limit > 0 && c.percent() >= threshold
}
