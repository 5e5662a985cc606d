package block

import (
	"runtime"
	"time"

	"golang.org/x/sys/unix"

	"github.com/kernosis/kernosis/collector/hostfs"
)

// lastRan reports how long ago tasks were last on a CPU. The scheduler stamps a task
// with the clock of its CPU, and these clocks differ: each leaves out what
// interrupts and the hypervisor took from its CPU. So the same CPU's time is asked
// for "now". Not safe for concurrent use.
type lastRan struct {
	fs  hostfs.FS
	now map[int]time.Duration // by CPU; negative: not known
}

func newLastRan(fs hostfs.FS) *lastRan { return &lastRan{fs: fs, now: map[int]time.Duration{}} }

// ago returns how long ago a task that sleeps was last on its CPU. It is a lower
// bound: time that the CPU's clock leaves out is missing, and suspends. False where
// the kernel doesn't report (/proc/PID/sched).
func (l *lastRan) ago(tid, cpu int) (time.Duration, bool) {
	then, err := l.fs.ExecStart(tid)
	if err != nil || cpu < 0 || then == 0 { // 0: moved to that CPU, and has not run there yet
		return 0, false
	}
	now, ok := l.now[cpu]
	if !ok {
		now = schedClock(cpu)
		l.now[cpu] = now
	}
	if now < 0 || now < then {
		return 0, false // or it ran meanwhile
	}
	return now - then, true
}

// schedClock returns the scheduler's clock of one CPU, from a task that runs there:
// a thread of this process, for a moment. Negative where it may not run there
// (cpuset, offline).
func schedClock(cpu int) time.Duration {
	const unknown = -1
	var was, set unix.CPUSet
	runtime.LockOSThread()
	if unix.SchedGetaffinity(0, &was) != nil {
		runtime.UnlockOSThread()
		return unknown
	}
	set.Set(cpu)
	now, err := time.Duration(unknown), unix.SchedSetaffinity(0, &set)
	if err == nil {
		// Our own process: our own /proc, not the node's.
		if now, err = hostfs.New("/").ExecStart(unix.Gettid()); err != nil {
			now = unknown
		}
		if unix.SchedSetaffinity(0, &was) != nil {
			return now // the thread stays locked, and ends with its goroutine
		}
	}
	// Not left to end: a child with a parent-death signal dies with the thread that
	// started it.
	runtime.UnlockOSThread()
	return now
}
