package agent

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"runtime/debug"
	"time"

	"github.com/prometheus/procfs"
	"golang.org/x/sys/unix"
)

const (
	// gcPercent makes the garbage collector run at half the default's garbage: an agent makes
	// little garbage, and on each node its memory matters more than its speed.
	gcPercent = 50
	// startPercent applies while the agent starts. The start allocates six times what the agent
	// keeps, and the heap never fully shrinks from that size.
	startPercent = 25
	// settled is the time after which the start is over: rules compiled, kernel types read,
	// programs loaded, informers filled.
	settled = 15 * time.Second
	// forgetAgain is the time after which the work that follows the start is done: reports of
	// earlier faults, first writes to the API server.
	forgetAgain = time.Minute
	// forgetEvery is how often pages of the program are unmapped after that: the pages that a
	// diagnosis used would stay mapped, and it may be the only one in a week.
	forgetEvery = 10 * time.Minute
)

// collectGarbage sets the GC percentage, unless GOGC is set.
func collectGarbage(percent int) {
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(percent)
	}
}

// smallFootprint releases memory that only the start needed, and later what diagnoses used, until
// ctx ends. See docs/benchmarks.md.
func smallFootprint(ctx context.Context, log *slog.Logger) error {
	wait := settled
	for first := true; ; first = false {
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(wait):
		}
		wait = forgetEvery
		if first {
			wait = forgetAgain
			collectGarbage(gcPercent)
			debug.FreeOSMemory()
		}
		if err := forgetPages(); err != nil {
			log.Debug("can't release pages of the program", "error", err)
		}
	}
}

// forgetPages unmaps the pages of the program's own code and constants. Most were used only by the
// start; the next use of a page finds it in the page cache.
func forgetPages() error {
	program, err := os.Readlink("/proc/self/exe")
	if err != nil {
		return err
	}
	self, err := procfs.Self()
	if err != nil {
		return err
	}
	maps, err := self.ProcMaps()
	if err != nil {
		return err
	}
	for _, m := range maps {
		if m.Pathname != program || m.Perms.Write || !m.Perms.Private {
			continue
		}
		// Nothing can be lost from a private mapping of a file that is never written.
		// unix.Madvise takes a slice, but this memory is not Go's.
		if _, _, errno := unix.Syscall(unix.SYS_MADVISE, m.StartAddr, m.EndAddr-m.StartAddr, unix.MADV_DONTNEED); errno != 0 {
			return fmt.Errorf("madvise: %w", errno)
		}
	}
	return nil
}
