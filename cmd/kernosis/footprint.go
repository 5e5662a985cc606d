package main

import (
	"bufio"
	"context"
	"fmt"
	"log/slog"
	"os"
	"runtime/debug"
	"strconv"
	"strings"
	"time"

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
		if err := forgetPages("/proc/self/maps"); err != nil {
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
func forgetPages(maps string) error {
	self, err := os.Readlink("/proc/self/exe")
	if err != nil {
		return err
	}
	f, err := os.Open(maps)
	if err != nil {
		return err
	}
	defer f.Close()
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		start, length, ok := readOnly(lines.Text(), self)
		if !ok {
			continue
		}
		// Of a private mapping of a file that is never written nothing can be lost.
		// Not unix.Madvise, which wants a slice: this is no memory of Go's.
		if _, _, errno := unix.Syscall(unix.SYS_MADVISE, start, length, unix.MADV_DONTNEED); errno != 0 {
			return fmt.Errorf("madvise: %w", errno)
		}
	}
	return lines.Err()
}

// readOnly returns a mapping of the file that can't be written: a line such as
// "00400000-0173c000 r-xp 00000000 fe:00 10815514 /bin/kernosis".
func readOnly(line, file string) (start, length uintptr, ok bool) {
	fields := strings.Fields(line)
	if len(fields) != 6 || fields[5] != file || strings.Contains(fields[1], "w") || !strings.HasSuffix(fields[1], "p") {
		return 0, 0, false
	}
	from, to, _ := strings.Cut(fields[0], "-")
	first, err1 := strconv.ParseUint(from, 16, 64)
	end, err2 := strconv.ParseUint(to, 16, 64)
	if err1 != nil || err2 != nil || end <= first {
		return 0, 0, false
	}
	return uintptr(first), uintptr(end - first), true
}
