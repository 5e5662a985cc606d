package agent

import (
	"bytes"
	"fmt"
	"os"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/kernosis/kernosis/collector/hostfs"
	"github.com/kernosis/kernosis/collector/logsource"
	"github.com/kernosis/kernosis/detector"
	"github.com/kernosis/kernosis/detector/problem"
	"github.com/kernosis/kernosis/vmtest/testenv"
)

// oomReport is the log of Linux 6.18 for one kill at a cgroup's limit, as read from
// /dev/kmsg: 81 records.
const oomReport = "testdata/oom-report-6.18.kmsg"

// kmsgPipe returns a pipe that replaces /dev/kmsg, whose ring buffer is the machine's. Like the
// device, it returns one record per read.
func kmsgPipe(t testing.TB) (path string, w *os.File) {
	t.Helper()
	var fds [2]int
	if err := unix.Pipe2(fds[:], unix.O_CLOEXEC|unix.O_DIRECT); err != nil {
		t.Fatal(err)
	}
	// 256 records; the kernel's buffer holds some thousand. With the default of 16, the flood
	// would wait for the reader, which waits for more.
	if _, err := unix.FcntlInt(uintptr(fds[1]), unix.F_SETPIPE_SZ, 1<<20); err != nil {
		t.Fatal(err)
	}
	// The reading end stays open too, because the reader opens the pipe again by its path.
	r, w := os.NewFile(uintptr(fds[0]), "kmsg"), os.NewFile(uintptr(fds[1]), "kmsg")
	t.Cleanup(func() { r.Close(); w.Close() })
	return fmt.Sprintf("/proc/self/fd/%d", fds[0]), w
}

// oomReports multiplies the report: each copy has its own record numbers, times and victim, in
// one of twenty cgroups.
type oomReports struct {
	records [][]byte // without number and time: flags, text
	seq     uint64
	buf     []byte
}

func readOOMReport(t testing.TB) *oomReports {
	t.Helper()
	raw, err := os.ReadFile(oomReport)
	if err != nil {
		t.Fatal(err)
	}
	r := &oomReports{seq: 1000}
	for line := range bytes.Lines(raw) {
		r.records = append(r.records, line)
	}
	return r
}

// write writes report n, one record per write.
func (r *oomReports) write(t testing.TB, w *os.File, n int) {
	t.Helper()
	for _, rec := range r.records {
		fields := bytes.SplitN(rec, []byte(","), 4) // priority, number, time, the rest
		rest := bytes.ReplaceAll(fields[3], []byte("915"), fmt.Append(nil, 10_000+n))
		rest = bytes.ReplaceAll(rest, []byte("/demo"), fmt.Appendf(nil, "/demo-%d", n%20))
		r.buf = fmt.Appendf(r.buf[:0], "%s,%d,%d,%s", fields[0], r.seq, hostfs.BootTime().Microseconds(), rest)
		if _, err := w.Write(r.buf); err != nil {
			t.Fatal(err)
		}
		r.seq++
	}
}

// TestOOMFlood: 4,500 reports of OOM kills, as a node once wrote in a minute, pass through the
// reader of the kernel's log, all shipped rules, engine and journal. Each line is accounted for
// and each kill is reported.
func TestOOMFlood(t *testing.T) {
	testenv.OnlyInTestAll(t)
	const reports = 4500
	set, err := detector.Load(detector.Shipped())
	if err != nil {
		t.Fatal(err)
	}
	path, w := kmsgPipe(t)
	a, logs := newAgentOf(t, set, logsource.Config{Name: "kmsg", Plugin: logsource.KMsg, Path: path})
	runLogs(t, a, logs)
	report := readOOMReport(t)
	lines := uint64(reports * len(report.records))
	before, began := processTime(t), time.Now()
	for n := range reports {
		report.write(t, w, n)
	}
	var s logsource.Stats
	testenv.Until(t, "every line", time.Minute, func() bool { s = logs.Stats()[0]; return s.Lines >= lines })
	reported := func() (counts map[string]uint64) {
		a.mu.Lock()
		defer a.mu.Unlock()
		counts = map[string]uint64{}
		for _, p := range a.engine.Problems() {
			if p.State == problem.Firing && p.SuppressedBy == "" {
				counts[p.Rule] += p.Count
			}
		}
		return counts
	}
	// The last ones are delayed to wait for the probe's event.
	testenv.Until(t, "every kill", time.Minute, func() bool { return reported()["oom-kill-log"] >= reports })
	t.Logf("%d reports, %d lines in %v; %v of CPU with the writer's", reports, lines,
		time.Since(began).Round(time.Millisecond), (processTime(t) - before).Round(time.Millisecond))
	// Two lines of each report match: its summary, and the one that names the victim.
	if len(s.Lost) > 0 || s.Skipped > 0 || s.Cut > 0 || s.Lines != lines || s.Matched != 2*reports {
		t.Errorf("%d lines written, %d reports; stats %+v", lines, reports, s)
	}
	if n := reported()["oom-kill-victim-log"]; n != 0 {
		t.Errorf("%d kills reported twice", n)
	}
	for _, rule := range []string{"oom-kill-log", "oom-kill-frequent-log"} {
		if n := reported()[rule]; n != reports {
			t.Errorf("%s counted %d of %d", rule, n, reports)
		}
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if s := a.engine.Stats(); s.Duplicates != 0 || s.Unmatched != 0 {
		t.Errorf("engine %+v", s)
	}
	if n := a.journal.Stats(); n.Failed != 0 || n.Appended < reports {
		t.Errorf("journal %+v", n)
	}
}
