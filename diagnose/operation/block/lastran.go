package block

import (
	"runtime"
	"time"

	"golang.org/x/sys/unix"

	"github.com/kernosis/kernosis/collector/hostfs"
)

// lastRan determines how long ago tasks last ran on a CPU. The scheduler stamps a task with the
// clock of its CPU. These clocks differ, because each omits the time that interrupts and the
// hypervisor took from its CPU, so "now" must be the time of the same CPU. lastRan is not safe for
// concurrent use.
type lastRan struct {
	fs  hostfs.FS
	now map[int]time.Duration // by CPU; negative: unknown
}

func newLastRan(fs hostfs.FS) *lastRan { return &lastRan{fs: fs, now: map[int]time.Duration{}} }

// ago returns how long ago a sleeping task last ran on its CPU. It is a lower bound: it lacks
// suspends and the time that the CPU's clock omits. It returns false if the kernel doesn't report
// it (/proc/PID/sched).
func (l *lastRan) ago(tid, cpu int) (time.Duration, bool) {
	then, err := l.fs.ExecStart(tid)
	if err != nil || cpu < 0 || then == 0 { // 0: it was moved to that CPU, and has not run there yet
		return 0, false
	}
	now, ok := l.now[cpu]
	if !ok {
		now = schedClock(cpu)
		l.now[cpu] = now
	}
	if now < 0 || now < then {
		return 0, false // or it ran in the meantime
	}
	return now - then, true
}

// schedClock returns the scheduler's clock of a CPU. It reads the clock from a task that runs
// there: a thread of this process, which it moves there for a moment. The result is negative if the
// thread can't run there (cpuset, offline).
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
		// This is our own process, so use our own /proc, not the node's.
		if now, err = hostfs.New("/").ExecStart(unix.Gettid()); err != nil {
			now = unknown
		}
		if unix.SchedSetaffinity(0, &was) != nil {
			return now // the thread stays locked, and ends with its goroutine
		}
	}
	// The thread must not end: a child with a parent-death signal dies with the thread that started
	// it.
	runtime.UnlockOSThread()
	return now
}
