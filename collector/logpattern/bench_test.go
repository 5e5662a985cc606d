package logpattern_test

import (
	"fmt"
	"regexp"
	"runtime"
	"strconv"
	"strings"
	"testing"

	"github.com/kernosis/kernosis/collector/logpattern"
)

// generated returns n patterns like those of rules, each with a literal of its own, made of words
// of which many also occur in a boot's lines.
func generated(n int) []logpattern.Pattern {
	what := strings.Fields(`memory device clocksource driver ACPI PCI bridge interrupt timer clock CPU cache table zone
		node bus port hub link queue buffer page block sector journal inode filesystem mount partition disk RAID array
		controller firmware sensor thermal watchdog scheduler task thread process cgroup namespace socket connection
		packet route neighbour conntrack bond VLAN adapter channel request command transaction checksum metadata log
		superblock extent snapshot volume mapping`)
	happened := []string{
		"failed with", "timed out after", "is not responding for", "was reset by", "went offline at", "is corrupted at",
		"exceeded limit of", "overflowed at", "stalled for", "lost after", "not found in", "cannot allocate", "cannot be read at",
		"aborted due to", "rejected because of", "disabled after", "error detected at", "mismatch between", "stuck for", "leaked in",
		"registered twice with", "initialized without", "enabled on wrong", "mapped outside of", "reserved twice at", "removed while in",
		"blocked by", "throttled to", "dropped at", "retried more than", "degraded to", "suspended for", "detached from",
		"invalid in", "missing from", "full at", "dead since", "frozen at", "hung in", "late by", "refused by", "denied to",
		"expired at", "changed during", "poisoned at", "unrecoverable on", "inconsistent with", "misaligned by", "exhausted on",
		"flapping on", "rolled back to", "skipped by", "truncated at", "unreachable via", "shut down by", "uncorrectable in",
		"deadlocked with", "interrupted by", "starved for", "rate limited by", "without backing of", "at risk of", "in violation of",
	}
	rest := []string{`\d+`, `\S+.*`, `0x[0-9a-f]+`, `(?P<object>\S+)`, `(?:status|code) -?\d+`, `.* \d+ (?:s|ms)`}
	patterns := make([]logpattern.Pattern, n)
	for i := range patterns {
		patterns[i] = logpattern.Pattern{Name: fmt.Sprintf("g%d", i), Expr: fmt.Sprintf(`\w+.*%s %s %s`,
			what[i%len(what)], happened[(i+i/len(what))%len(happened)], rest[i%len(rest)])}
	}
	return patterns
}

func set(tb testing.TB, patterns []logpattern.Pattern) *logpattern.Set {
	tb.Helper()
	s, err := logpattern.Compile(patterns)
	if err != nil {
		tb.Fatal(err)
	}
	return s
}

// bench matches the lines of a log repeatedly; ns/op is per line.
func bench(b *testing.B, s *logpattern.Set, log [][]byte) {
	b.Helper()
	m := s.NewMatcher("kernel")
	var hits logpattern.Hits
	size := 0
	for _, line := range log {
		size += len(line)
		m.Match(line, &hits)
	}
	b.SetBytes(int64(size / len(log)))
	b.ReportAllocs()
	before, n, found := m.Runs(), 0, 0
	for b.Loop() {
		m.Match(log[n%len(log)], &hits)
		found += len(hits.Hits)
		n++
	}
	b.ReportMetric(float64(m.Runs()-before)/float64(n), "runs/line")
	b.ReportMetric(float64(found)/float64(n), "hits/line")
}

// BenchmarkKernelMonitor measures NPD's 14 patterns on a boot's lines, none of which matches, and
// on those of real faults.
func BenchmarkKernelMonitor(b *testing.B) {
	for _, log := range []string{"boot-6.1", "boot-7.2", "faults-6.18"} {
		b.Run(log, func(b *testing.B) { bench(b, set(b, kernelMonitor()), readLog(b, log)) })
	}
	b.Run("oom-kill", func(b *testing.B) {
		bench(b, set(b, kernelMonitor()), [][]byte{[]byte("Memory cgroup out of memory: Killed process 18709 (kn-oom-child) total-vm:1974756kB, anon-rss:32000kB, file-rss:18884kB, shmem-rss:0kB, UID:0 pgtables:344kB oom_score_adj:500")})
	})
	b.Run("task-hung", func(b *testing.B) {
		bench(b, set(b, kernelMonitor()), [][]byte{[]byte("INFO: task kworker/u8:3:1234 blocked for more than 120 seconds.")})
	})
}

// BenchmarkPatterns measures the cost per line of a boot by the number of patterns.
func BenchmarkPatterns(b *testing.B) {
	for _, n := range []int{1, 14, 100, 1000, 4000} {
		b.Run(strconv.Itoa(n), func(b *testing.B) { bench(b, set(b, generated(n)), readLog(b, "boot-6.1")) })
	}
}

// BenchmarkNaive runs every expression on every line, for comparison.
func BenchmarkNaive(b *testing.B) {
	for _, n := range []int{14, 1000} {
		b.Run(strconv.Itoa(n), func(b *testing.B) {
			var exprs []*regexp.Regexp
			for _, p := range generated(n) {
				exprs = append(exprs, regexp.MustCompile(p.Expr))
			}
			log := readLog(b, "boot-6.1")
			i := 0
			for b.Loop() {
				for _, re := range exprs {
					re.Match(log[i%len(log)])
				}
				i++
			}
		})
	}
}

// BenchmarkSpanningLines measures patterns over 2 to 20 lines that don't match. In "seen" the
// literal is always in one of the last lines, so the expression runs; in "npd-class" a class
// matches newlines, so NPD's buffer is searched.
func BenchmarkSpanningLines(b *testing.B) {
	log := readLog(b, "boot-6.1")
	b.Run("unseen", func(b *testing.B) {
		bench(b, set(b, []logpattern.Pattern{
			{Name: "a", Expr: `BUG: .*\n.*Oops: \d+`},
			{Name: "b", Expr: `invoked oom-killer(.*\n)+.*Killed process`, Lines: 20},
			{Name: "c", Expr: `Kill process \d+ .*\nKilled process \d+.*`, AnchorEnd: true},
		}), log)
	})
	b.Run("seen", func(b *testing.B) {
		bench(b, set(b, []logpattern.Pattern{{Name: "a", Expr: `clocksource: \d{30}\n[^x]*`, Lines: 10}}), log)
	})
	b.Run("npd-class", func(b *testing.B) {
		bench(b, set(b, []logpattern.Pattern{{Name: "a", Expr: `pci [^\]]+\d{30}.*`, AnchorEnd: true}}), log)
	})
}

// BenchmarkUnfiltered measures the cost per line of a pattern without a literal.
func BenchmarkUnfiltered(b *testing.B) {
	bench(b, set(b, []logpattern.Pattern{{Name: "a", Expr: `\d+-\w+-\d{9}`}}), readLog(b, "boot-6.1"))
}

// BenchmarkWorstLine measures lines of maximum length, made of what patterns search for.
func BenchmarkWorstLine(b *testing.B) {
	for name, p := range map[string]logpattern.Pattern{
		"killed":  {Expr: kernelMonitor()[0].Expr, AnchorEnd: true},
		"mce":     {Expr: kernelMonitor()[9].Expr, AnchorEnd: true},
		"largest": {Expr: `(?:[a-z ]{0,235}.){2}Killed process \d\d`},
	} {
		p.Name = name
		b.Run(name, func(b *testing.B) {
			text := "Killed process 1 ( total-vm:1kB, anon-rss:1kB, [Hardware Error]: event severity: corrected "
			bench(b, set(b, []logpattern.Pattern{p}), [][]byte{[]byte(strings.Repeat(text, logpattern.MaxLine/len(text)))})
		})
	}
}

// BenchmarkFlood matches 56,000 lines at once, as on a node in NPD's issue 1168, which logged them
// in 3 s; each line is counted. ns/op is for all of them.
func BenchmarkFlood(b *testing.B) {
	s, log := set(b, append(kernelMonitor(), generated(1000)...)), readLog(b, "faults-6.18")
	for b.Loop() {
		m := s.NewMatcher("kernel")
		var hits logpattern.Hits
		for i := range 56_000 {
			m.Match(log[i%len(log)], &hits)
		}
	}
}

func BenchmarkCompile(b *testing.B) {
	patterns := generated(1000)
	b.ReportAllocs()
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	s := set(b, patterns)
	runtime.GC()
	runtime.ReadMemStats(&after)
	for b.Loop() {
		set(b, patterns)
	}
	b.ReportMetric(float64(after.HeapAlloc-before.HeapAlloc)/1024, "KiB-kept")
	runtime.KeepAlive(s)
}
