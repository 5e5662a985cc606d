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
	// gcPercent has the collector run at half the garbage it would by default: an
	// agent makes little, and sits on each node for its memory, not for its speed.
	gcPercent = 50
	// startPercent holds while the agent starts, which makes six times the garbage that
	// stays: what the heap has grown to then it never gives back whole.
	startPercent = 25
	// settled is when what only the start needed is behind: rules compiled, kernel
	// types read, programs loaded, informers filled.
	settled = 15 * time.Second
	// forgetAgain is when the work that follows at leisure is done: reports of earlier faults,
	// first writes to the API server.
	forgetAgain = time.Minute
	// forgetEvery is how often pages of the program are forgotten after that: those that a
	// diagnosis has used would stay, and it may be the only one of a week.
	forgetEvery = 10 * time.Minute
)

// collectGarbage sets the collector's pace; whoever sets GOGC knows better.
func collectGarbage(percent int) {
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(percent)
	}
}

// smallFootprint gives back what only the start needed, and later what a diagnosis has,
// until ctx ends. See docs/performance.md.
func smallFootprint(ctx context.Context, log *slog.Logger) error {
	timer := time.NewTimer(settled)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return nil
	case <-timer.C:
	}
	collectGarbage(gcPercent)
	debug.FreeOSMemory()
	for wait := forgetAgain; ; wait = forgetEvery {
		if err := forgetPages(); err != nil {
			log.Debug("pages of the program are kept", "error", err)
		}
		timer.Reset(wait)
		select {
		case <-ctx.Done():
			return nil
		case <-timer.C:
		}
	}
}

// forgetPages unmaps the pages of the program's own code and constants. The next use
// of each finds it in the page cache; most were used by the start alone.
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
		// Of a private mapping of a file that is never written nothing can be lost.
		// Not unix.Madvise, which wants a slice: this is no memory of Go's.
		if _, _, errno := unix.Syscall(unix.SYS_MADVISE, m.StartAddr, m.EndAddr-m.StartAddr, unix.MADV_DONTNEED); errno != 0 {
			return fmt.Errorf("madvise: %w", errno)
		}
	}
	return nil
}
