package hostfs

import (
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/kernosis/kernosis/collector/event"
)

// clockResample: NTP slews by at most 500 ppm, 5 ms in 10 s.
const clockResample = 10 * time.Second

// Clock turns the kernel's time since boot (CLOCK_BOOTTIME, suspend included)
// into wall clock time. Their offset changes when the wall clock is set or
// slewed, so it is sampled again while Wall is used. It is safe for concurrent
// use.
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

// Wall returns the wall clock time, in UTC, of a time since boot. It does not
// allocate. A time of before the wall clock was set is given in the new time,
// which is presumably the right one.
func (c *Clock) Wall(boot time.Duration) time.Time {
	// An event's own time serves as the clock, so the common case makes no
	// system call; an old event never causes a sample.
	if int64(boot)-c.sampled.Load() >= int64(clockResample) {
		c.resample()
	}
	return time.Unix(0, int64(boot)+c.offset.Load()).UTC()
}

func (c *Clock) resample() {
	if !c.mu.TryLock() {
		return // somebody is at it
	}
	defer c.mu.Unlock()
	c.offset.Store(c.sample())
}

// sample returns wall - boot from the tightest of three bracketed readings, so
// that a preemption between two clocks does not count as an offset.
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
	var b, w, a unix.Timespec
	// None of these can fail: both clocks exist since 2.6.39.
	_ = unix.ClockGettime(unix.CLOCK_BOOTTIME, &b)
	_ = unix.ClockGettime(unix.CLOCK_REALTIME, &w)
	_ = unix.ClockGettime(unix.CLOCK_BOOTTIME, &a)
	return w.Nano(), b.Nano(), a.Nano()
}

// BootTime returns the time since boot, suspend included.
func BootTime() time.Duration {
	var t unix.Timespec
	_ = unix.ClockGettime(unix.CLOCK_BOOTTIME, &t)
	return time.Duration(t.Nano())
}

// Stamped returns an event that does not come from a kernel record, with the time of now.
func Stamped(ev event.Event) *event.Event {
	ev.Time, ev.BootTime, ev.CPU = time.Now(), event.Duration(BootTime()), event.NoCPU
	return &ev
}

// Monotonic returns the time since boot without that in suspend (CLOCK_MONOTONIC).
func Monotonic() time.Duration {
	var t unix.Timespec
	_ = unix.ClockGettime(unix.CLOCK_MONOTONIC, &t)
	return time.Duration(t.Nano())
}

// BootID returns the random ID of this boot; "": it can't be read.
func BootID() string {
	raw, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(raw))
}

// Timekeeper reads the wall clock and the time since boot together, without a system call:
// Go's monotonic clock runs as the time since boot does, except while the machine sleeps.
// Then, and when somebody sets the wall clock, the two clocks of a [time.Time] disagree, and
// the time since boot is read again. It is not safe for concurrent use.
type Timekeeper struct {
	// The last reading that took a system call.
	read time.Time     // by the monotonic clock
	wall time.Time     // by the wall clock
	boot time.Duration // since boot
}

// sleepAtLeast is far less than a machine sleeps, and more than rounding.
const sleepAtLeast = time.Millisecond

// Now returns the wall clock and, as [BootTime] does, the time since boot.
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

// UntilBeat returns how long it is until [BootTime] is a whole multiple of every: more than
// nothing, at most every. Whatever looks at something from time to time does so at such
// moments, so that one wake-up serves all; that costs a quiet process several times what a
// look does. Machines booted at different times are not in step.
func UntilBeat(every time.Duration) time.Duration { return every - BootTime()%every }
