package testenv

import (
	"fmt"
	"os"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"time"

	"go.uber.org/goleak"
	"golang.org/x/sys/unix"
)

// CheckLeaks runs the tests and returns their exit code. If they passed, it checks for goroutines
// that still run and for file descriptors that were not open before. If it finds such leaks, it
// prints them to stderr and returns 1.
//
// run must stop everything that would otherwise be reported, such as a server that the tests share.
func CheckLeaks(run func() int) int {
	before := openFiles()
	code := run()
	if code != 0 {
		return code
	}
	// The garbage collector would close files that the tests forgot before they are detected.
	defer debug.SetGCPercent(debug.SetGCPercent(-1))
	if err := goleak.Find(); err != nil {
		_, _ = fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	if leaked := leakedFiles(before); len(leaked) > 0 {
		_, _ = fmt.Fprintf(os.Stderr, "leaked file descriptors: %q\n", leaked)
		code = 1
	}
	return code
}

// leakedFiles returns the files that are open now and were not before. It waits up to a second, on
// an idle machine, for them to be closed. It does not collect garbage, which would close files that
// the tests forgot.
func leakedFiles(before []string) []string {
	for start := time.Now(); ; time.Sleep(10 * time.Millisecond) {
		leaked := openFiles()
		for _, file := range before {
			if i := slices.Index(leaked, file); i >= 0 {
				leaked = slices.Delete(leaked, i, i+1)
			}
		}
		if len(leaked) == 0 || time.Since(start) > Within(time.Second) {
			return leaked
		}
	}
}

// openFiles lists the files that the descriptors of this process refer to. It omits those that Go
// opens at their first use and keeps: the event descriptors of the runtime's poller and the pipes
// for splice(2). A pidfd counts: package os closes it when the process has been waited for or
// released.
func openFiles() (files []string) {
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		return nil
	}
	for _, e := range entries {
		target, err := os.Readlink("/proc/self/fd/" + e.Name())
		if err != nil || strings.HasPrefix(target, "anon_inode:[event") || isSplicePipe(e.Name()) {
			continue
		}
		files = append(files, target)
	}
	return files
}

// isSplicePipe reports whether a pipe belongs to internal/poll, judging by its size: 1 MiB
// (maxSpliceSize) instead of the kernel's default of 64 KiB.
func isSplicePipe(name string) bool {
	fd, err := strconv.Atoi(name)
	if err != nil {
		return false
	}
	size, err := unix.FcntlInt(uintptr(fd), unix.F_GETPIPE_SZ, 0)
	return err == nil && size == 1<<20
}
