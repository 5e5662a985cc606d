package agent

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/kernosis/kernosis/collector/event"
	"github.com/kernosis/kernosis/collector/logsource"
	"github.com/kernosis/kernosis/detector"
	"github.com/kernosis/kernosis/detector/problem"
	"github.com/kernosis/kernosis/reporter/console"
	"github.com/kernosis/kernosis/reporter/journal"
	"github.com/kernosis/kernosis/reporter/metrics"
	"github.com/kernosis/kernosis/vmtest/testenv"
)

// rulesOf loads rules with nothing else in force.
func rulesOf(t testing.TB, text string) *detector.RuleSet {
	t.Helper()
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "own.yaml"), []byte("apiVersion: rules.kernosis.io/v1\n"+text), 0o600); err != nil {
		t.Fatal(err)
	}
	set, err := detector.LoadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	return set
}

// newLogAgent returns the agent's pipeline, with a real journal and metrics, and a log file
// as its source.
func newLogAgent(t testing.TB, set *detector.RuleSet, path string) (*pipeline, *logsource.Sources) {
	t.Helper()
	return newAgentOf(t, set, logsource.Config{Name: "kern", Plugin: logsource.File, Path: path})
}

// newAgentOf is like newLogAgent, for any log.
func newAgentOf(t testing.TB, set *detector.RuleSet, log logsource.Config) (*pipeline, *logsource.Sources) {
	t.Helper()
	state := t.TempDir()
	store, err := journal.Open(filepath.Join(state, JournalDir), journal.Options{MaxBytes: 64 << 20})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { store.Close() })
	quiet := slog.New(slog.DiscardHandler)
	a := &pipeline{
		stateDir: state, log: quiet, metrics: metrics.New("test", ""), journal: store, out: console.NewText(io.Discard),
		engine: detector.NewEngine(set), wake: make(chan struct{}, 1),
	}
	logs, err := logsource.New([]logsource.Config{log}, set.PatternSet(),
		logsource.Options{StateDir: state, Log: quiet})
	if err != nil {
		t.Fatal(err)
	}
	a.patterns = logs.SetPatterns
	return a, logs
}

// runLogs runs log sources and waits until the log is read.
func runLogs(t testing.TB, a *pipeline, logs *logsource.Sources) {
	t.Helper()
	up := make(chan struct{}, 1)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() {
		done <- logs.Run(ctx, func(ev *event.Event) {
			a.takeLine(ev)
			if ev.SourceUp != nil && ev.SourceUp.Up {
				up <- struct{}{}
			}
		}, a.settle)
	}()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	select {
	case <-up:
	case <-time.After(testenv.Within(20 * time.Second)):
		t.Fatal("the log is not read")
	}
}

const floodRules = `
conditions:
  Flooded: {healthyReason: Dry, healthyMessage: dry}
rules:
- {name: told, events: [log], pattern: 'I/O error, dev (?P<device>\w+), sector (?P<sector>\d+)', groupBy: [match.device], reason: IOError, message: "${match.device} at ${match.sector}", rateLimit: {count: 50000, within: 1s}}
- {name: kept, events: [log], pattern: 'I/O error, dev (?P<device>\w+)', groupBy: [match.device], condition: Flooded, reason: IOError, message: "${match.device}", clearAfter: 1h, rateLimit: {count: 50000, within: 1s}}
- {name: spans, events: [log], pattern: 'blk_update_request\n.*I/O error', reason: Two, message: "${log.text}"}
`

// floodPieces returns lines in pieces of 50, as a syslog daemon writes them. Every tenth line
// matches a rule.
func floodPieces(lines int) (pieces [][]byte, wanted int) {
	const piece = 50
	for n := 0; n < lines; {
		var b bytes.Buffer
		for range min(piece, lines-n) {
			if n%10 == 0 {
				fmt.Fprintf(&b, "Nov 21 11:00:00 node kernel: [12345.678901] I/O error, dev sd%c, sector %d op 0x0:(READ)\n", 'a'+n/10%7, n)
				wanted++
			} else {
				fmt.Fprintf(&b, "Nov 21 11:00:00 node kernel: [12345.678901] usb 1-%d: new high-speed USB device number %d using xhci_hcd\n", n%9, n)
			}
			n++
		}
		pieces = append(pieces, b.Bytes())
	}
	return pieces, wanted
}

// flood writes pieces to a file, spread evenly over a period.
func flood(t testing.TB, path string, pieces [][]byte, within time.Duration) {
	t.Helper()
	f, err := os.OpenFile(path, os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	began := time.Now()
	timer := time.NewTimer(0)
	defer timer.Stop()
	for i, p := range pieces {
		if due := within * time.Duration(i) / time.Duration(len(pieces)); time.Since(began) < due {
			timer.Reset(due - time.Since(began))
			<-timer.C
		}
		if _, err := f.Write(p); err != nil {
			t.Fatal(err)
		}
	}
}

// TestLogFlood: 56,000 lines in three seconds, which made other agents lose the kernel's log,
// pass through source, matcher, engine and journal with every line accounted for.
func TestLogFlood(t *testing.T) {
	testenv.OnlyInTestAll(t)
	const lines = 56_000
	path := filepath.Join(t.TempDir(), "kern.log")
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	a, logs := newLogAgent(t, rulesOf(t, floodRules), path)
	runLogs(t, a, logs)
	pieces, wanted := floodPieces(lines)
	before := processTime(t)
	began := time.Now()
	flood(t, path, pieces, 3*time.Second)
	written := time.Now()
	var s logsource.Stats
	testenv.Until(t, "every line", time.Minute, func() bool { s = logs.Stats()[0]; return s.Lines >= lines })
	t.Logf("%d lines written in %v, handled %v later; %v of CPU with the writer's", lines,
		written.Sub(began).Round(time.Millisecond), time.Since(written).Round(time.Millisecond), (processTime(t) - before).Round(time.Millisecond))
	if len(s.Lost) > 0 || s.Skipped > 0 || s.Lines != lines || s.Matched != uint64(wanted) {
		t.Errorf("%d lines written, %d wanted; stats %+v", lines, wanted, s)
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.flushEntries()
	counts := map[string]uint64{}
	for _, p := range a.engine.Problems() {
		if p.State == problem.Firing {
			counts[p.Rule] += p.Count
		}
	}
	if counts["told"] != uint64(wanted) || counts["kept"] != uint64(wanted) || counts["spans"] != 0 {
		t.Errorf("counted %v of %d", counts, wanted)
	}
	if s := a.engine.Stats(); s.Duplicates != 0 || s.Unmatched != 0 || s.Matches["told/pattern"] != uint64(wanted) {
		t.Errorf("engine %+v", s)
	}
	if n := a.journal.Stats(); n.Failed != 0 || n.Appended < uint64(wanted) {
		t.Errorf("journal %+v", n)
	}
}

func processTime(t testing.TB) time.Duration {
	t.Helper()
	var u unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &u); err != nil {
		t.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// BenchmarkLogLines measures the whole processing of a line: it is read and matched, and every
// tenth is reported, journaled and printed. Lines are written in advance.
func BenchmarkLogLines(b *testing.B) {
	for _, bb := range []struct{ name, rules string }{
		{"no line is wanted", "rules:\n- {name: r, events: [log], pattern: 'EXT4-fs error', reason: R, message: m}\n"},
		{"every tenth counts up", "conditions:\n  C: {healthyReason: Dry, healthyMessage: dry}\nrules:\n- {name: r, events: [log], pattern: 'I/O error', condition: C, reason: R, message: m, clearAfter: 1h, rateLimit: {count: 50000, within: 1s}}\n"},
		{"every tenth is reported", "rules:\n- {name: r, events: [log], pattern: 'I/O error, dev (?P<device>\\w+)', groupBy: [match.device], reason: R, message: \"${match.device}\", rateLimit: {count: 50000, within: 1s}}\n"},
		{"every tenth is beyond the limit", "rules:\n- {name: r, events: [log], pattern: 'I/O error, dev (?P<device>\\w+)', groupBy: [match.device], reason: R, message: \"${match.device}\"}\n"},
	} {
		b.Run(bb.name, func(b *testing.B) {
			path := filepath.Join(b.TempDir(), "kern.log")
			if err := os.WriteFile(path, nil, 0o600); err != nil {
				b.Fatal(err)
			}
			a, logs := newLogAgent(b, rulesOf(b, bb.rules), path)
			runLogs(b, a, logs)
			const lines = 50_000
			pieces, _ := floodPieces(lines)
			b.ReportAllocs()
			total, before := uint64(0), processTime(b)
			for b.Loop() {
				flood(b, path, pieces, 0)
				total += lines
				testenv.Until(b, "every line", time.Minute, func() bool { return logs.Stats()[0].Lines >= total })
			}
			// CPU time, which varies less on a busy machine than elapsed time.
			b.ReportMetric(float64((processTime(b)-before).Nanoseconds())/float64(total), "cpu-ns/line")
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(total), "ns/line")
		})
	}
}
