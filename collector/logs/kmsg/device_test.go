package kmsg

import (
	"testing"
	"time"
)

// Single records are read soon. Those of a storm are read in fewer and larger batches, which stay
// far below the size of the kernel's buffer.
func TestPause(t *testing.T) {
	d := &charDevice{}
	now := time.Unix(1000, 0)
	for i, step := range []struct {
		after   time.Duration // since the end of the previous pause
		records int           // read since
		want    time.Duration
	}{
		{time.Hour, 0, gather},
		{time.Second, 3, gather},
		{10 * time.Millisecond, 3, 2 * gather},
		{10 * time.Millisecond, 6, 4 * gather},
		{10 * time.Millisecond, 12, gatherStorm},
		{10 * time.Millisecond, gatherMost, gatherStorm},
		{10 * time.Millisecond, gatherMost + 1, gatherStorm / 2},
		{10 * time.Millisecond, 10 * gatherMost, gather},
		{10 * time.Millisecond, 10 * gatherMost, gather},
		{time.Second, 3, gather},
	} {
		now = now.Add(step.after)
		d.records = step.records
		if got := d.pause(now); got != step.want || d.records != 0 {
			t.Errorf("step %d: %s, want %s", i, got, step.want)
		}
		d.latest = now
	}
}
