package agenttest

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/kernosis/kernosis/collector/hostfs"
)

// Memory is the memory use of a process, in bytes.
type Memory struct {
	RSS       float64
	Anonymous float64 // RSS without file pages
	BPF       float64 // kernel memory of its BPF maps and programs; not in RSS
}

// MemoryOf reads the memory use of a process from /proc/PID/status and fdinfo.
func MemoryOf(tb testing.TB, pid int) Memory {
	tb.Helper()
	s, err := hostfs.New("/").ProcStatus(pid)
	if err != nil {
		tb.Fatal(err)
	}
	return Memory{RSS: float64(s.RSS), Anonymous: float64(s.AnonRSS), BPF: bpfMemory(tb, pid)}
}

func bpfMemory(tb testing.TB, pid int) (bytes float64) {
	tb.Helper()
	dir := filepath.Join("/proc", strconv.Itoa(pid), "fdinfo")
	fds, err := os.ReadDir(dir)
	if err != nil {
		tb.Fatal(err)
	}
	seen := map[string]bool{}
	for _, fd := range fds {
		raw, err := os.ReadFile(filepath.Join(dir, fd.Name()))
		if err != nil {
			continue // closed meanwhile
		}
		var id string
		var size float64
		for line := range strings.Lines(string(raw)) {
			name, value, _ := strings.Cut(strings.TrimSpace(line), ":")
			switch value = strings.TrimSpace(value); name {
			case "map_id", "prog_id":
				id = name + value
			case "memlock":
				size, _ = strconv.ParseFloat(value, 64)
			}
		}
		if id != "" && !seen[id] { // a link has its program's ID too
			seen[id] = size > 0
			bytes += size
		}
	}
	return bytes
}

// CPUTime returns the CPU time used by a process, in nanosecond resolution.
func CPUTime(tb testing.TB, pid int) time.Duration {
	tb.Helper()
	var ts unix.Timespec
	const scheduler = 2 // CPUCLOCK_SCHED, for the whole process
	if err := unix.ClockGettime(int32(^pid<<3|scheduler), &ts); err != nil {
		tb.Fatal(err)
	}
	return time.Duration(ts.Nano())
}
