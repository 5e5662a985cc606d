package kmsg

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	before := openFiles()
	code := m.Run()
	if code == 0 {
		if err := goleak.Find(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			code = 1
		}
		if after := openFiles(); after > before {
			fmt.Fprintf(os.Stderr, "leaked file descriptors: %d before, %d after\n", before, after)
			code = 1
		}
	}
	os.Exit(code)
}

// openFiles counts descriptors but those of the Go runtime's poller, which it
// opens at the first need and keeps.
func openFiles() int {
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		return 0
	}
	n := 0
	for _, e := range entries {
		target, err := os.Readlink("/proc/self/fd/" + e.Name())
		if err == nil && !strings.HasPrefix(target, "anon_inode:[event") {
			n++
		}
	}
	return n
}
