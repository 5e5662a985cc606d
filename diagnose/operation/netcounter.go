package operation

import (
	"context"
	"time"
)

// netReadEvery is how often counters are read while one is waited for.
const netReadEvery = 200 * time.Millisecond

// netGrowth watches the counters of a namespace for the window, or until enough have
// grown, and returns how much those grew that did, and how long that took.
func (h Host) netGrowth(ctx context.Context, p *netPlace, window time.Duration, enough func(grew map[string]uint64) bool) (map[string]uint64, time.Duration, error) {
	began := time.Now()
	before, err := h.FS.NetCounters(p.pid)
	if err != nil {
		return nil, 0, err
	}
	for {
		if err := pauseFor(ctx, min(netReadEvery, window-time.Since(began))); err != nil {
			return nil, 0, err
		}
		after, err := h.FS.NetCounters(p.pid)
		if err != nil {
			return nil, 0, err
		}
		grew := netGrew(before, after)
		if took := time.Since(began); took >= window || enough(grew) {
			return grew, took.Round(time.Millisecond), nil
		}
	}
}

// netGrew returns how much those counters grew that did.
func netGrew(before, after map[string]uint64) map[string]uint64 {
	grew := map[string]uint64{}
	for name, n := range after {
		if d := netIncrease(before[name], n); d > 0 {
			grew[name] = d
		}
	}
	return grew
}
