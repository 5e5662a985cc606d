package operation

import (
	"context"
	"errors"
	"fmt"
	"strings"
)

// CheckConntrackFull checks whether the table of tracked connections is full.
func CheckConntrackFull(h Host) Builtin {
	return Builtin{
		Name: "check-conntrack-full",
		Doc: "Checks whether the table of tracked connections is full, of the namespace given or of the node's own, which packets " +
			"of most pods pass: at least threshold percent of its size, or packets dropped for want of a place during the window. " +
			"The verdict is ConntrackFull.",
		Effect: Check,
		Parameters: append(netPlaceParameters(), netWindowParameter("1s"),
			Parameter{Name: "threshold", Doc: "percent of the table's size", Kind: Integer, Default: "95", Max: 100}),
		Results: netResults(
			Result{"conntrack", "tracked connections and how many there may be"},
			Result{"conntrackDropped", "packets dropped because the table was full, during the window"},
		),
		Run: func(ctx context.Context, call *Call) (Output, error) {
			p, err := h.netPlace(call.Parameters)
			if err != nil {
				return Output{}, err
			}
			places := []netPlace{p}
			if !p.node {
				node, err := h.netNode()
				if err != nil {
					return Output{}, err
				}
				places = append(places, node)
			}
			before := make([]netConntrack, len(places))
			for i := range places {
				// A namespace without the table can't have it full; the node's must be known.
				before[i], err = h.netConntrack(&places[i])
				if err != nil && (!errors.Is(err, errNoConntrack) || places[i].node) {
					return Output{}, err
				}
			}
			window := call.Parameters.Duration("window")
			if err := pauseFor(ctx, window); err != nil {
				return Output{}, err
			}
			var evidence []string
			for i := range places {
				after, err := h.netConntrack(&places[i])
				if errors.Is(err, errNoConntrack) {
					continue
				}
				if err != nil {
					return Output{}, err
				}
				dropped := netIncrease(before[i].drop, after.drop)
				text := fmt.Sprintf("%s: %s, %d packets dropped for want of a place in %s", &places[i], &after, dropped, window)
				if after.full(uint64(call.Parameters.Int("threshold")), dropped) {
					r := newNetReport(&places[i])
					r.text("conntrack", after.String())
					r.uint("conntrackDropped", dropped)
					return r.output(verdictOf("ConntrackFull", "%s", text)), nil
				}
				evidence = append(evidence, text)
			}
			return Output{}, refutedBy("ConntrackNotFull", "%s", strings.Join(evidence, "; "))
		},
	}
}

// full tells whether the table is full by so many percent, or has turned packets away. A
// limit of 0 is none.
func (c *netConntrack) full(threshold, dropped uint64) bool {
	return dropped > 0 || c.limit > 0 && c.percent() >= threshold
}
