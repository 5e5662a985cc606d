package vitals

import (
	"time"

	"github.com/kernosis/kernosis/collector/hostfs"
)

const (
	// every and samples result in the ten seconds for which throttling is reported, which is the
	// usual period of a probe.
	every   = 2 * time.Second
	samples = 6
	// levels: a container's own limit and its pod's. If a pod has one container, kubelet sets
	// both to the same value, and it is a matter of chance which one the kernel charges
	// (docs/kernel-quirks.md).
	levels = 2
)

// counters are the samples of one group in the last ten seconds.
type counters struct {
	ring [samples]sample // the newest at (n-1) % samples
	n    int
}

type sample struct {
	at time.Time
	hostfs.CgroupCPU
}

func (c *counters) add(s sample) {
	c.ring[c.n%samples] = s
	c.n++
}

// oldest returns the earliest sample of the last ten seconds, or the newest one if all are older.
func (c *counters) oldest(now time.Time) (s sample, ok bool) {
	for i := max(0, c.n-samples); i < c.n; i++ {
		if s = c.ring[i%samples]; now.Sub(s.at) <= (samples-1)*every {
			break
		}
	}
	return s, c.n > 0
}

// throttling adds the limit that throttled a container most.
func (w *Watcher) throttling(layout hostfs.CgroupLayout, c *watched, now time.Time, f *Facts) {
	for i, path := range c.groups.limits() {
		if path == "" {
			continue
		}
		t, ok := w.throttled(layout, path, &c.counters[i], now)
		if ok && (f.ThrottledIn == 0 || t.percent > f.Throttled) {
			f.Throttled, f.ThrottledIn, f.Quota, f.Period, f.PodLimit = t.percent, t.in, t.limit.Quota, t.limit.Period, i > 0
		}
	}
}

// throttle is the effect of a limit on a group.
type throttle struct {
	percent uint32 // of in
	in      time.Duration
	limit   hostfs.CgroupCPULimit
}

// throttled compares a group's counters with those of up to ten seconds ago. It returns false if
// they can't be compared, or if the group has no limit.
func (w *Watcher) throttled(layout hostfs.CgroupLayout, path string, c *counters, now time.Time) (t throttle, ok bool) {
	oldest, ok := c.oldest(now)
	if !ok {
		return t, false
	}
	cpu, err := w.fs.CgroupCPU(layout, path)
	if err != nil {
		return t, false
	}
	t.in = now.Sub(oldest.at)
	if t.in < every/4 || cpu.Periods < oldest.Periods {
		return t, false
	}
	if t.limit, err = w.fs.CgroupCPULimit(layout, path); err != nil || t.limit.Quota == 0 {
		return t, false // the limit was removed
	}
	// The time is the sum over all CPUs, and periods are counted as a whole although the group is
	// throttled only at their end. Both overestimate, so take the smaller one.
	waited := cpu.ThrottledTime - oldest.ThrottledTime
	periods := time.Duration(cpu.Throttled-oldest.Throttled) * t.limit.Period
	t.percent = uint32(min(100, max(0, 100*min(waited, periods)/t.in)))
	return t, true
}
