package testenv

import (
	"fmt"
	"os"
	"runtime"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// mostSlower bounds [Within], because a test that hangs must fail eventually.
const mostSlower = 10

// Within converts a time limit for an idle machine with two current cores, d, to one for this
// machine at this moment. It returns at least d and at most ten times d. It is for deadlines that
// fail a test. A time that a test asserts about the product, such as "reported within 3 s", stays
// as it is.
//
// Two things make a machine slow, and neither measurement shows the other. A slow CPU, such as an
// emulated one, is slow even when idle. Its speed is measured once, in CPU time, which does not
// depend on other load. On a busy machine tasks wait for a CPU, even a fast one. So each call reads
// the kernel's count of runnable tasks.
func Within(d time.Duration) time.Duration {
	slower := slowCPU()
	if text, err := os.ReadFile("/proc/loadavg"); err == nil {
		slower *= busy(string(text), runtime.NumCPU())
	}
	return time.Duration(float64(d) * min(slower, mostSlower))
}

// busy returns how many runnable tasks there are for each CPU, at least 1. It takes the
// higher of the current number and the average of the last minute: the current number
// can be low for a moment on a busy machine, and the average is low when the load has
// just begun. The average also counts tasks that wait for a disk.
func busy(loadavg string, cpus int) float64 {
	var average, skip, running float64
	if _, err := fmt.Sscanf(loadavg, "%g %g %g %g/", &average, &skip, &skip, &running); err != nil {
		return 1 // unknown
	}
	return max(1, max(average, running)/float64(cpus))
}

// referenceTime is the most time that [work] takes on a current core.
const referenceTime = 10 * time.Millisecond

// slowCPU returns how much slower this CPU is than a current one, at least 1.
//
//nolint:gochecknoglobals // measured once
var slowCPU = sync.OnceValue(func() float64 {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	begin := threadTime()
	runtime.KeepAlive(work())
	return max(1, float64(threadTime()-begin)/float64(referenceTime))
})

// work does a fixed amount of computation. The race detector must not slow it down: most tests wait
// for the kernel and other processes, which it does not slow down either.
//
//go:norace
func work() (sum uint32) {
	var table [1 << 12]uint32
	x := uint32(1)
	for range 2_500_000 {
		x = x*1664525 + 1013904223
		i := x >> 20
		table[i] ^= x
		x += table[i] >> 31
	}
	for _, v := range table {
		sum ^= v
	}
	return sum
}

// threadTime returns the CPU time of the calling thread, or 0 if it is unknown.
func threadTime() time.Duration {
	var u unix.Rusage
	if unix.Getrusage(unix.RUSAGE_THREAD, &u) != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
