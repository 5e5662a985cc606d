package detector_test

import (
	"maps"
	"os"
	"testing"
	"time"

	"go.yaml.in/yaml/v4"

	"github.com/kernosis/kernosis/collector/event"
	"github.com/kernosis/kernosis/detector"
	"github.com/kernosis/kernosis/detector/problem"
)

// kernelLine is an item of testdata/kernellines.yaml.
type kernelLine struct {
	Rule, Kernel, Source, Text string
	Times                      int
	Absent, Ends               string
}

func kernelLines(tb testing.TB) []kernelLine {
	tb.Helper()
	data, err := os.ReadFile("testdata/kernellines.yaml")
	if err != nil {
		tb.Fatal(err)
	}
	var file struct{ Lines []kernelLine }
	if err := yaml.Unmarshal(data, &file); err != nil {
		tb.Fatal(err)
	}
	if len(file.Lines) < 120 {
		tb.Fatalf("%d lines", len(file.Lines))
	}
	return file.Lines
}

// TestKernelLines checks that each line fires the rule that it is listed with, on a node where the
// log is the only source, and nothing if a process has written it.
func TestKernelLines(t *testing.T) {
	set := shipped(t)
	for _, l := range kernelLines(t) {
		if l.Ends != "" {
			continue
		}
		for _, origin := range []string{event.OriginKernel, "user"} {
			e := detector.NewEngine(set)
			var reported []string
			for i := range max(l.Times, 1) {
				now := at(time.Duration(i) * time.Second)
				ev := logged(time.Duration(i)*time.Second, l.Text)
				ev.BootTime, ev.Log.Log, ev.Log.Origin = event.Duration(now.Boot), "kmsg", origin
				for _, tr := range e.Observe(ev, now) {
					if p := tr.Problem; p != nil && p.State == problem.Firing && p.SuppressedBy == "" {
						reported = append(reported, p.Rule)
					}
				}
			}
			switch found := len(reported) > 0 && reported[len(reported)-1] == l.Rule || len(reported) > 1 && reported[0] == l.Rule; {
			case origin != event.OriginKernel && reported != nil:
				t.Errorf("%q of %s: reported by %v", l.Text, origin, reported)
			case origin == event.OriginKernel && !found:
				t.Errorf("%q (%s, %s): reported by %v, want %s", l.Text, l.Kernel, l.Source, reported, l.Rule)
			}
		}
	}
}

// TestKernelLinesThatEnd checks that a line ends the rule's problem, unless a process has written
// it.
func TestKernelLinesThatEnd(t *testing.T) {
	set := shipped(t)
	for _, l := range kernelLines(t) {
		if l.Ends == "" {
			continue
		}
		for _, origin := range []string{"user", event.OriginKernel} {
			e := detector.NewEngine(set)
			ended := false
			for i, line := range []struct{ text, origin string }{{l.Ends, event.OriginKernel}, {l.Text, origin}} {
				now := at(time.Duration(i) * time.Second)
				ev := logged(time.Duration(i)*time.Second, line.text)
				ev.BootTime, ev.Log.Log, ev.Log.Origin = event.Duration(now.Boot), "kmsg", line.origin
				for _, tr := range e.Observe(ev, now) {
					if p := tr.Problem; p != nil && p.Rule == l.Rule {
						ended = p.State == problem.Resolved
					}
				}
			}
			if want := origin == event.OriginKernel; ended != want {
				t.Errorf("%q of %s (%s, %s) after %q: ended %s: %t, want %t", l.Text, origin, l.Kernel, l.Source, l.Ends, l.Rule, ended, want)
			}
		}
	}
}

// Each rule gets a kernel message in several logs once, even if it reads only the log that
// contains it last.
func TestKernelMessageInSeveralLogs(t *testing.T) {
	set := ruleSet(t, `
- {name: a, events: [log], logs: [kernel], pattern: oops, reason: R, message: m}
- {name: b, events: [log], logs: [journald], pattern: oops, reason: R, message: m}
- {name: c, events: [log], logs: [kmsg, journald], pattern: oops, reason: R, message: m}
- {name: d, events: [log], pattern: oops, reason: R, message: m}
`)
	in := func(log string) *event.Event {
		ev := logged(0, "oops")
		ev.Log.Log, ev.Log.Stamp, ev.Log.Seq = log, event.Duration(time.Second), uint64(len(log))
		return ev
	}
	for _, order := range [][2]string{{"kmsg", "journald"}, {"journald", "kmsg"}} {
		e := detector.NewEngine(set)
		fired := make(map[string]int)
		for n, log := range []string{order[0], order[0], order[1], order[1], order[0], order[1]} {
			now := time.Duration(n) * time.Minute // apart, or they would count as one report
			if seen := e.Seen(in(log)); seen != (n != 0 && (n != 2 || log == "kmsg")) {
				t.Errorf("%v: reading %d is seen: %t", order, n, seen)
			}
			for _, tr := range e.Observe(in(log), at(now)) {
				if tr.Problem != nil && tr.Problem.State == problem.Firing {
					fired[tr.Problem.Rule]++
				}
			}
			e = restarted(t, e, set, now)
		}
		if want := map[string]int{"a": 1, "b": 1, "c": 1, "d": 1}; !maps.Equal(fired, want) {
			t.Errorf("%v: %v fired, want %v", order, fired, want)
		}
	}
}

// A flood of kernel messages in two logs is limited for the rules of each log, and counted once.
func TestRateLimitOfKernelMessagesInSeveralLogs(t *testing.T) {
	r := &recorder{e: detector.NewEngine(ruleSet(t, `
- {name: told, events: [log], logs: [kernel], pattern: oops, reason: R, message: m, rateLimit: {count: 10, within: 10m}}
- {name: b, events: [log], logs: [journald], pattern: oops, reason: R, message: m, rateLimit: {count: 10, within: 10m}}
`))}
	for n := range 100 {
		for _, log := range []string{"kmsg", "journald"} {
			d := time.Duration(n) * time.Millisecond
			ev := logged(d, "oops")
			ev.Log.Log, ev.Log.Stamp, ev.Log.Seq = log, event.Duration(d+1), uint64(n+1)
			r.take(ev, d)
		}
	}
	r.release(5 * time.Minute)
	if n := len(r.recorded); n != 10+10+1 || r.count("told") != 100 || r.count("b") > 100 {
		t.Errorf("%d and %d counted in %d events, want 100, at most 100, and 21", r.count("told"), r.count("b"), n)
	}
}
