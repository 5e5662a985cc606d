package hostfs

import (
	"sync"
	"testing"
	"time"
)

// fakeClocks is a wall clock that differs from the boot clock by offset. The readings of one sample
// have the widths in widths, in order.
type fakeClocks struct {
	boot, offset int64
	widths       []int64
	reads        int
}

func (f *fakeClocks) read() (wall, before, after int64) {
	var w int64
	if f.reads < len(f.widths) {
		w = f.widths[f.reads]
	}
	f.reads++
	before = f.boot
	f.boot += w
	// The wall clock is read at the very end of the bracket: the worst case.
	return f.boot + f.offset, before, f.boot
}

func TestClockWall(t *testing.T) {
	f := &fakeClocks{boot: int64(time.Hour), offset: 1_800_000_000e9}
	c := newClock(f.read)
	want := time.Unix(1_800_000_000, 0).Add(2 * time.Second).UTC()
	if got := c.Wall(2 * time.Second); !got.Equal(want) || got.Location() != time.UTC {
		t.Errorf("Wall = %v, want %v", got, want)
	}
	reads := f.reads
	c.Wall(time.Hour + clockResample - 1)
	c.Wall(0)
	if f.reads != reads {
		t.Error("sampled although the last sample is fresh")
	}

	// The clock is set ahead by an hour.
	f.boot += int64(clockResample)
	f.offset += int64(time.Hour)
	if got := c.Wall(time.Duration(f.boot)).UnixNano() - f.boot; got != f.offset {
		t.Errorf("offset = %d, want %d", got, f.offset)
	}
}

// A tight reading wins over one that was preempted in the middle.
func TestClockTightestSample(t *testing.T) {
	f := &fakeClocks{offset: 1000, widths: []int64{1e9, 200, 5e6}}
	c := newClock(f.read)
	if got := c.offset.Load(); got != 1000+200/2 {
		t.Errorf("offset = %d, want that of the tightest reading", got)
	}
}

func TestClockReal(t *testing.T) {
	c := NewClock()
	if d := time.Until(c.Wall(BootTime())).Abs(); d > 50*time.Millisecond {
		t.Errorf("now by the boot clock is %v off", d)
	}
	if n := testing.AllocsPerRun(100, func() { c.Wall(time.Hour) }); n != 0 {
		t.Errorf("Wall: %v allocations", n)
	}
}

func TestClockConcurrently(t *testing.T) {
	c := NewClock()
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for i := range 200 {
				c.Wall(BootTime() + time.Duration(i)*clockResample)
			}
		})
	}
	wg.Wait()
}

func BenchmarkClockWall(b *testing.B) {
	c := NewClock()
	boot := BootTime()
	b.ReportAllocs()
	for b.Loop() {
		c.Wall(boot)
	}
}

func TestUntilBeat(t *testing.T) {
	for _, every := range []time.Duration{time.Millisecond, 250 * time.Millisecond, 5 * time.Second, time.Hour} {
		before := BootTime()
		d := UntilBeat(every)
		after := BootTime()
		if d <= 0 || d > every {
			t.Errorf("%s until the next multiple of %s", d, every)
		}
		// The wait began at some moment between the two readings.
		if beat := (after + d).Truncate(every); beat < before+d {
			t.Errorf("%s after %s to %s since boot is no multiple of %s", d, before, after, every)
		}
	}
}

func TestTimekeeper(t *testing.T) {
	var k Timekeeper
	for range 1000 {
		before := BootTime()
		wall, boot := k.Now()
		if after := BootTime(); boot < before-sleepAtLeast || boot > after+sleepAtLeast {
			t.Fatalf("%v since boot, outside of %v to %v", boot, before, after)
		}
		if d := time.Since(wall.Round(0)); d < 0 || d > time.Minute {
			t.Fatalf("the wall clock is %v off", d)
		}
	}
	// After sleep or a change of the wall clock, only the wall clock has moved on, or back.
	for _, step := range []time.Duration{-8 * time.Hour, -time.Second, time.Second, 8 * time.Hour} {
		k.boot += time.Hour
		if _, boot := k.Now(); boot < BootTime()+time.Hour-time.Minute {
			t.Fatalf("%v since boot: read again without a reason", boot)
		}
		k.wall = k.wall.Add(step)
		if _, boot := k.Now(); boot > BootTime() {
			t.Errorf("%v since boot, although the clocks are %v apart", boot, step)
		}
	}
}
