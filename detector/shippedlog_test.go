package detector_test

import (
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/kernosis/kernosis/collector/event"
	"github.com/kernosis/kernosis/collector/logpattern"
	"github.com/kernosis/kernosis/detector"
	"github.com/kernosis/kernosis/detector/problem"
)

const kernelLogs = "../collector/logpattern/testdata"

func shipped(tb testing.TB) *detector.RuleSet {
	tb.Helper()
	set, err := detector.Load(detector.Shipped())
	if err != nil {
		tb.Fatal(err)
	}
	return set
}

// kernelLog returns the records of a kernel log, with /dev/kmsg's escapes resolved.
func kernelLog(tb testing.TB, path string) [][]byte {
	tb.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		tb.Fatal(err)
	}
	lines := bytes.Split(bytes.TrimSuffix(data, []byte("\n")), []byte("\n"))
	for i, l := range lines {
		l = bytes.ReplaceAll(l, []byte(`\x09`), []byte("\t"))
		lines[i] = bytes.ReplaceAll(l, []byte(`\x0a`), []byte("\n"))
	}
	return lines
}

func bootLogs(tb testing.TB) []string {
	tb.Helper()
	paths, err := filepath.Glob(kernelLogs + "/boot-*.log")
	if err != nil || len(paths) < 2 {
		tb.Fatalf("logs of boots: %v (%v)", paths, err)
	}
	return paths
}

// TestShippedPatternsOnHealthyBoots checks that no shipped rule matches the messages of
// a healthy kernel.
func TestShippedPatternsOnHealthyBoots(t *testing.T) {
	set := shipped(t).PatternSet()
	for _, path := range bootLogs(t) {
		m := set.NewMatcher("kmsg", event.KernelLogs)
		var hits logpattern.Hits
		for i, line := range kernelLog(t, path) {
			m.Match(line, &hits)
			for _, h := range hits.Hits {
				t.Errorf("%s:%d: %s matches %q", filepath.Base(path), i+1, set.Pattern(h.Pattern).Name, line)
			}
		}
	}
}

// TestShippedPatternsHaveLiterals checks that no pattern runs on every line.
func TestShippedPatternsHaveLiterals(t *testing.T) {
	set := shipped(t).PatternSet()
	for _, i := range set.Unfiltered() {
		t.Errorf("%s has no literal, so its expression runs on every line", set.Pattern(i).Name)
	}
}

// TestShippedLogRulesAskForTheKernel checks that the rules require lines of the kernel, because
// processes may write to the kernel log too.
func TestShippedLogRulesAskForTheKernel(t *testing.T) {
	for _, r := range shipped(t).Rules() {
		kernel := `log.origin == "kernel"`
		if r.Condition == "" && r.Name == "segfault" {
			kernel = `log.origin == "process"`
		}
		logs := []string{event.KernelLogs}
		if r.Name == "kernel-panic" {
			logs = []string{event.CrashLog}
		}
		switch {
		case r.Pattern == "":
		case !slices.Equal(r.Logs, logs) || !strings.HasPrefix(r.When, kernel):
			t.Errorf("rule %s: logs %v, when %q: want kernel and %s", r.Name, r.Logs, r.When, kernel)
		case r.ClearPattern != "":
			t.Errorf("rule %s: clearPattern is matched whoever wrote the line: use clearWhen", r.Name)
		case r.ClearWhen != "" && !strings.HasPrefix(r.ClearWhen, kernel):
			t.Errorf("rule %s: clearWhen %q: want %s", r.Name, r.ClearWhen, kernel)
		}
	}
}

// TestShippedFaultsAreNoRules checks that shared faults are not named after rules: otherwise a rule
// that replaces a shipped one, perhaps with other groups, would share the fault unintentionally.
func TestShippedFaultsAreNoRules(t *testing.T) {
	set := shipped(t)
	for _, r := range set.Rules() {
		if _, ok := set.Rule(r.Fault); ok && r.Fault != r.Name {
			t.Errorf("rule %s: its fault %s is the name of a rule, so of all that replace it", r.Name, r.Fault)
		}
	}
}

// TestShippedLogRulesOnFaults checks that the rules report real faults of a 6.18 kernel, and
// nothing if the kernel has not written the lines.
func TestShippedLogRulesOnFaults(t *testing.T) {
	want := []string{
		"oom-kill-log , /kernosis-inject-18522-oom firing",
		"oom-kill-victim-log kn-oom-child firing by oom-kill-log",
		"disk-io-error-log loop0 firing",
		"ext4-error-log loop0, trigger_test_error firing",
		"journal-aborted loop0 firing by filesystem-error",
		"readonly-filesystem-log loop0 firing",
		"ext4-error-log loop0, trigger_test_error firing",
		"disk-out-of-space-log loop0 firing",
		"ext4-error-log loop0, trigger_test_error firing",
		"readonly-filesystem-log loop0 resolved", // the device is mounted again
		"readonly-filesystem-log loop0 firing",
		"xfs-shutdown loop0 firing",
		"readonly-filesystem-log loop0 resolved",
		"xfs-shutdown loop0 resolved",
	}
	for _, origin := range []string{"kernel", "user"} {
		e := detector.NewEngine(shipped(t))
		var got []string
		for i, line := range kernelLog(t, kernelLogs+"/faults-6.18.log") {
			// Within 5 minutes, so that no problem ends by quiet.
			now := at(time.Duration(i) * time.Second)
			ev := logged(time.Duration(i)*time.Second, string(line))
			ev.BootTime, ev.Log.Log, ev.Log.Origin = event.Duration(now.Boot), "kmsg", origin
			for _, tr := range e.Observe(ev, now) {
				if p := tr.Problem; p != nil {
					got = append(got, reportedOf(p))
				}
			}
		}
		if origin == "kernel" && !slices.Equal(got, want) {
			t.Errorf("told:\n%s\nwant:\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
		}
		if origin != "kernel" && got != nil {
			t.Errorf("of lines that %s wrote is reported: %v", origin, got)
		}
		if failed := e.Stats().EvalErrors; len(failed) > 0 {
			t.Errorf("expressions failed: %v", failed)
		}
	}
}

func reportedOf(p *problem.Problem) string {
	reported := p.Rule + " " + p.Group + " " + strings.ToLower(string(p.State))
	if p.SuppressedBy != "" {
		reported += " by " + p.SuppressedBy
	}
	return reported
}

// TestFallbacksStandBack checks that the lines of a real dmesg create no additional problems while
// the BPF programs for the same faults are attached, and that they do otherwise.
func TestFallbacksStandBack(t *testing.T) {
	lines := kernelLog(t, kernelLogs+"/faults-6.18.log")
	for _, attached := range []bool{false, true} {
		e := detector.NewEngine(shipped(t))
		for _, stem := range []string{"oomkill", "diskio"} {
			e.Observe(source(stem, attached), at(0))
		}
		reported := make(map[string][]string) // by reason
		observe := func(ev *event.Event, now event.Moment) {
			for _, tr := range e.Observe(ev, now) {
				if p := tr.Problem; p != nil && p.State == problem.Firing && p.SuppressedBy == "" {
					reported[p.Reason] = append(reported[p.Reason], p.Rule)
				}
			}
		}
		for i, line := range lines {
			now := at(time.Duration(i) * time.Second)
			ev := logged(time.Duration(i)*time.Second, string(line))
			ev.BootTime, ev.Log.Log, ev.Log.Origin = event.Duration(now.Boot), "kmsg", event.OriginKernel
			observe(ev, now)
			if !attached {
				continue
			}
			fault := &event.Event{Time: now.Wall, BootTime: event.Duration(now.Boot), Device: &event.Device{Major: 7, Name: "loop0"}}
			switch text := string(line); {
			case strings.HasPrefix(text, "oom-kill:"):
				fault = oom(time.Duration(i)*time.Second, "/kernosis-inject-18522-oom")
			case strings.HasPrefix(text, "I/O error, dev "):
				fault.Kind, fault.DiskIO = event.DiskIO, &event.DiskIOData{Op: "write", Error: "EIO", Sector: 1296, Bytes: 4096}
			case strings.HasPrefix(text, "critical space allocation error, dev "):
				fault.Kind, fault.DiskIO = event.DiskIO, &event.DiskIOData{Op: "write", Error: "ENOSPC", Sector: 8, Bytes: 4096}
			default:
				continue
			}
			observe(fault, now)
		}
		want := map[string][]string{
			"OOMKilling": {"oom-kill-log"}, "DiskIOError": {"disk-io-error-log"}, "DiskOutOfSpace": {"disk-out-of-space-log"},
		}
		if attached { // the log's summary of the kill came first: the same problem, in the same group
			want = map[string][]string{"OOMKilling": {"oom-kill-log"}, "DiskIOError": {"disk-io-error"}, "DiskOutOfSpace": {"disk-out-of-space"}}
		}
		for reason, rules := range want {
			if !slices.Equal(reported[reason], rules) {
				t.Errorf("programs attached: %v: %s is reported by %v, want %v", attached, reason, reported[reason], rules)
			}
		}
	}
}

// A line of a healthy boot costs one search for the literals of all patterns, and rarely runs an
// expression: a pattern with too many alternatives once had ": " as its literal.
func TestShippedPatternsSeldomRun(t *testing.T) {
	set := shipped(t).PatternSet()
	m := set.NewMatcher("kmsg", event.KernelLogs)
	var hits logpattern.Hits
	var lines uint64
	for _, path := range bootLogs(t) {
		for _, line := range kernelLog(t, path) {
			m.Match(line, &hits)
			lines++
		}
	}
	if lines < 1000 || m.Runs()*100 > lines {
		t.Errorf("%d expressions were run for %d lines", m.Runs(), lines)
	}
}

// BenchmarkShippedPatterns measures the cost of a line for all shipped log rules, with boot logs,
// which none matches, and with real faults.
func BenchmarkShippedPatterns(b *testing.B) {
	set := shipped(b).PatternSet()
	for _, path := range append(bootLogs(b), kernelLogs+"/faults-6.18.log") {
		b.Run(strings.TrimSuffix(filepath.Base(path), ".log"), func(b *testing.B) {
			log := kernelLog(b, path)
			m := set.NewMatcher("kmsg", event.KernelLogs)
			var hits logpattern.Hits
			for _, line := range log {
				m.Match(line, &hits)
			}
			b.ReportAllocs()
			before, n := m.Runs(), 0
			for b.Loop() {
				m.Match(log[n%len(log)], &hits)
				n++
			}
			b.ReportMetric(float64(m.Runs()-before)/float64(n), "runs/line")
			b.ReportMetric(float64(set.Len()), "patterns")
		})
	}
}
