package hostfs

import (
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/kernosis/kernosis/collector/event"
)

// clockResample is how often the offset is sampled: NTP slews by at most 500 ppm, 5 ms in 10 s.
const clockResample = 10 * time.Second

// Clock converts the kernel's time since boot (CLOCK_BOOTTIME, suspend included) into wall clock
// time. Their offset changes when the wall clock is set or slewed, so it is sampled again while
// Wall is used. It is safe for concurrent use.
type Clock struct {
	offset  atomic.Int64 // wall - boot, ns
	sampled atomic.Int64 // boot time of the last sample, ns
	mu      sync.Mutex   // one sampler at a time
	read    func() (wall, before, after int64)
}

// NewClock returns a Clock with a first sample taken.
func NewClock() *Clock { return newClock(readClocks) }

func newClock(read func() (wall, before, after int64)) *Clock {
	c := &Clock{read: read}
	c.offset.Store(c.sample())
	return c
}

// Wall returns the wall clock time, in UTC, for a time since boot. It does not allocate. Times
// before the wall clock was set are also converted with the new setting, which is presumably right.
func (c *Clock) Wall(boot time.Duration) time.Time {
	// The event's own time serves as the current time, so usually no system call is needed; an old
	// event never causes a sample.
	if int64(boot)-c.sampled.Load() >= int64(clockResample) && c.mu.TryLock() { // one samples for all
		c.offset.Store(c.sample())
		c.mu.Unlock()
	}
	return time.Unix(0, int64(boot)+c.offset.Load()).UTC()
}

// sample returns wall - boot from the tightest of three bracketed readings, so that a preemption
// between two readings does not distort the offset.
func (c *Clock) sample() int64 {
	var offset, width int64
	for i := range 3 {
		wall, before, after := c.read()
		if w := after - before; i == 0 || w < width {
			offset, width = wall-(before+w/2), w
		}
		c.sampled.Store(after)
	}
	return offset
}

// readClocks reads the wall clock between two readings of the boot clock.
func readClocks() (wall, before, after int64) {
	before = readClock(unix.CLOCK_BOOTTIME)
	wall = readClock(unix.CLOCK_REALTIME)
	after = readClock(unix.CLOCK_BOOTTIME)
	return wall, before, after
}

// readClock reads a clock, in nanoseconds. It can't fail: the clocks used here exist since 2.6.39.
func readClock(clock int32) int64 {
	var t unix.Timespec
	_ = unix.ClockGettime(clock, &t)
	return t.Nano()
}

// BootTime returns the time since boot, suspend included.
func BootTime() time.Duration { return time.Duration(readClock(unix.CLOCK_BOOTTIME)) }

// Stamped returns an event that does not come from a kernel record, with the current time.
func Stamped(ev event.Event) *event.Event {
	ev.Time, ev.BootTime, ev.CPU = time.Now(), event.Duration(BootTime()), event.NoCPU
	return &ev
}

// Monotonic returns the time since boot without suspend (CLOCK_MONOTONIC).
func Monotonic() time.Duration { return time.Duration(readClock(unix.CLOCK_MONOTONIC)) }

// BootID returns the random ID of this boot, or "" if it can't be read.
func BootID() string {
	id, _ := FS{}.Sysctl("kernel.random.boot_id")
	return id
}

// Timekeeper reads the wall clock and the time since boot together, without a system call: Go's
// monotonic clock advances like the time since boot, except while the machine sleeps. After a
// sleep, or when the wall clock was set, the two clocks of a [time.Time] disagree, and the time
// since boot is read again. It is not safe for concurrent use.
type Timekeeper struct {
	// The last reading with a system call.
	read time.Time     // by the monotonic clock
	wall time.Time     // by the wall clock
	boot time.Duration // since boot
}

// sleepAtLeast is far shorter than a machine sleeps, and longer than rounding errors.
const sleepAtLeast = time.Millisecond

// Now returns the wall clock time and, like [BootTime], the time since boot.
func (k *Timekeeper) Now() (wall time.Time, boot time.Duration) {
	wall = time.Now()
	ran := wall.Sub(k.read)
	slept := wall.Round(0).Sub(k.wall) - ran
	if k.boot == 0 || slept > sleepAtLeast || slept < -sleepAtLeast {
		k.read, k.wall, k.boot = wall, wall.Round(0), BootTime()
		return wall, k.boot
	}
	return wall, k.boot + ran
}

// UntilBeat returns the time until [BootTime] is a multiple of every: more than 0, at most every.
// All periodic checks use these moments, so that one wake-up serves all: in an idle process a
// wake-up costs as much as several checks. Machines booted at different times are not in step.
func UntilBeat(every time.Duration) time.Duration { return every - BootTime()%every }
