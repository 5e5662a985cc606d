package operation

import (
	"context"
	"time"
)

// netGrowth reads the counters of a namespace twice, the window apart, and returns how
// much those grew that did.
func (h Host) netGrowth(ctx context.Context, p *netPlace, window time.Duration) (map[string]uint64, error) {
	before, err := h.FS.NetCounters(p.pid)
	if err != nil {
		return nil, err
	}
	if err := netWait(ctx, window); err != nil {
		return nil, err
	}
	after, err := h.FS.NetCounters(p.pid)
	if err != nil {
		return nil, err
	}
	grew := map[string]uint64{}
	for name, n := range after {
		if d := netIncrease(before[name], n); d > 0 {
			grew[name] = d
		}
	}
	return grew, nil
}
