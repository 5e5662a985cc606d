package logsource

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/kernosis/kernosis/collector/document"
	"github.com/kernosis/kernosis/collector/event"
	"github.com/kernosis/kernosis/collector/logpattern"
	"github.com/kernosis/kernosis/collector/logs"
	"github.com/kernosis/kernosis/collector/logs/file"
)

func equal(t *testing.T, have, want []string) {
	t.Helper()
	if !slices.Equal(have, want) {
		t.Errorf("have %q\nwant %q", have, want)
	}
}

func TestLinesOfAFile(t *testing.T) {
	f := newFile(t, "kern.log")
	f.add("oops of before\n")
	set, err := logpattern.Compile([]logpattern.Pattern{
		{Name: "a", Expr: "oops"}, {Name: "b", Expr: `BUG.*\n.*RIP`}, {Name: "other", Expr: "usb", Logs: []string{"kmsg"}},
	})
	if err != nil {
		t.Fatal(err)
	}
	r := run(t, open(t, set, Options{}, f.config("kern")), newRecorder())
	r.rec.until(t, "end of the start", r.rec.has("-log: this log is not configured"))
	f.add("usb 1\noops 1\noops 1\nBUG\nthe oops has RIP\nquiet\noops \xff\n")
	r.rec.until(t, "last line", r.rec.has("oops \ufffd"))
	r.stop()
	equal(t, r.rec.reported(), []string{
		"+log/kern", "-log: this log is not configured", "oops 1", "oops 1", "BUG\nthe oops has RIP", "oops \ufffd",
	})
	var last uint64
	for _, ev := range r.rec.all()[2:] {
		d := ev.Log
		if ev.Kind != event.Log || d.Log != "kern" || d.Origin != f.path || d.Seq <= last || ev.CPU != event.NoCPU ||
			ev.Source != "log/kern" || time.Since(ev.Time) > patience {
			t.Errorf("event %+v of line %+v behind %d", ev, d, last)
		}
		last = d.Seq
	}
	s := r.Stats()[0]
	if s.Lines != 7 || s.Matched != 4 || s.Bytes != uint64(len("usb 1oops 1oops 1BUGthe oops has RIPquietoops x")) || len(s.Lost) != 0 {
		t.Errorf("stats %+v", s)
	}
}

func TestNoLogs(t *testing.T) {
	r := run(t, open(t, patterns(t, "x"), Options{}), newRecorder())
	r.rec.until(t, "word on logs", r.rec.has("-log: no log is configured"))
}

// Lines of two units are not adjacent lines, whoever writes first.
func TestUnitsAreNotNeighbours(t *testing.T) {
	s := open(t, patterns(t, `first\nsecond`, "part"), Options{}, Config{Name: "j", Plugin: Journald})
	rec := newRecorder()
	scripted(s, 0, func(ctx context.Context, handle func(logs.Item) error, status func(error)) error {
		status(nil)
		for _, l := range []struct{ unit, origin, text string }{
			{"a", "", "first"}, {"b", "", "second"}, {"a", "", "second"},
			{"", "x", "first"}, {"", "y", "second"}, {"", "x", "second"},
			{"c", "", "first\nsecond\npart 2\nno\npart 4"},
		} {
			item := line(l.text)
			item.Line.Unit, item.Line.Origin, item.Line.Seq = l.unit, l.origin, 7
			if err := handle(item); err != nil {
				t.Error(err)
			}
		}
		// More units than are followed: the oldest are dropped.
		for i := range maxStreams + 1 {
			item := line("first")
			item.Line.Unit = strconv.Itoa(i)
			handle(item)
		}
		item := line("second")
		item.Line.Unit = "0"
		handle(item)
		item.Line.Unit = "2" // 1 was dropped for 0
		handle(item)
		handle(line("part of the end"))
		<-ctx.Done()
		return nil
	})
	r := run(t, s, rec)
	rec.until(t, "end", rec.has("part of the end"))
	r.stop()
	equal(t, rec.lines(), []string{"first\nsecond", "first\nsecond", "first\nsecond", "part 2", "part 4", "first\nsecond", "part of the end"})
	var parts []uint32
	for _, ev := range rec.all() {
		if ev.Log != nil {
			parts = append(parts, ev.Log.Part)
		}
	}
	if !slices.Equal(parts, []uint32{0, 0, 1, 2, 4, 0, 0}) {
		t.Errorf("parts %v", parts)
	}
	if s := s.Stats()[0]; s.Lines != 7+maxStreams+1+3 || s.Matched != 5 {
		t.Errorf("stats %+v", s)
	}
}

// Rules change between two lines: nothing that old and new ones match is lost, nor the earlier
// lines of a pattern of several lines.
func TestReload(t *testing.T) {
	s := open(t, patterns(t, `number \d+`, `begin\nend`), Options{}, Config{Name: "k", Plugin: KMsg})
	const lines = 20_000
	reloads := 0
	scripted(s, 0, func(ctx context.Context, handle func(logs.Item) error, status func(error)) error {
		status(nil)
		for i := range lines {
			if i%100 == 0 {
				reloads++
				s.SetPatterns(patterns(t, `begin\nend`, `number \d+`, fmt.Sprint("something else ", i)))
			}
			handle(line(fmt.Sprint("number ", i)))
			if i%1000 == 0 {
				handle(line("begin"))
				s.SetPatterns(patterns(t, `begin\nend`, `number \d+`))
				handle(line("end"))
			}
		}
		handle(line("number of the end 1"))
		handle(line("number 0"))
		<-ctx.Done()
		return nil
	})
	rec := newRecorder()
	r := run(t, s, rec)
	rec.until(t, "last line", func() bool { return s.Stats()[0].Lines == lines+lines/1000*2+2 })
	r.stop()
	numbers, spans := 0, 0
	for _, text := range rec.lines() {
		switch {
		case text == fmt.Sprint("number ", numbers):
			numbers++
		case text == "begin\nend":
			spans++
		case text != "number 0":
			t.Fatalf("%q, number %d was due", text, numbers)
		}
	}
	if numbers != lines || spans != lines/1000 {
		t.Errorf("%d numbers and %d spans over %d reloads, want %d and %d", numbers, spans, reloads, lines, lines/1000)
	}
}

// A reader that ends is restarted, after pauses that grow until one has read something, and the source
// is down in the meantime; the same reason is reported once.
func TestReaderThatEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := open(t, patterns(t, "x"), Options{}, Config{Name: "k", Plugin: KMsg})
		began := time.Now()
		var starts []time.Duration
		scripted(s, 0, func(ctx context.Context, handle func(logs.Item) error, status func(error)) error {
			starts = append(starts, time.Since(began))
			switch len(starts) {
			case 3:
				return nil
			case 5:
				if err := handle(line("a")); err != nil {
					return err
				}
			case 8:
				status(nil)
				time.Sleep(2 * time.Minute)
				return errors.New("broken pipe")
			case 10:
				status(nil)
				<-ctx.Done()
				return nil
			}
			return errors.New("no permission")
		})
		rec := newRecorder()
		ctx, cancel := context.WithCancel(t.Context())
		go s.Run(ctx, rec.emit, func() {})
		time.Sleep(10 * time.Minute)
		synctest.Wait()
		cancel()
		synctest.Wait()
		const n = time.Second
		want := []time.Duration{0, n, 3 * n, 7 * n, 15 * n, 16 * n, 18 * n, 22 * n, 143 * n, 145 * n}
		if !slices.Equal(starts, want) {
			t.Errorf("started after %v, want %v", starts, want)
		}
		equal(t, rec.reported(), []string{
			"-log/k: no permission", "-log: this log is not configured", "-log/k: reading has ended", "-log/k: no permission", "+log/k",
			"-log/k: broken pipe", "-log/k: no permission", "+log/k",
		})
	})
}

const lossesWant = `
# HELP kernosis_log_lines_cut_total Lines that were cut because they were too long.
# TYPE kernosis_log_lines_cut_total counter
kernosis_log_lines_cut_total{log="k"} 1
# HELP kernosis_log_lines_lost_total Lines that were lost, by reason, where their number is known.
# TYPE kernosis_log_lines_lost_total counter
kernosis_log_lines_lost_total{log="k",reason="malformed"} 1000
kernosis_log_lines_lost_total{log="k",reason="overrun"} 2005
kernosis_log_lines_lost_total{log="k",reason="too-long"} 1
kernosis_log_lines_lost_total{log="k",reason="truncated"} 0
# HELP kernosis_log_lines_total Lines of a log that were read.
# TYPE kernosis_log_lines_total counter
kernosis_log_lines_total{log="k"} 4
# HELP kernosis_log_losses_total Times that lines of a log were or may have been lost, by reason.
# TYPE kernosis_log_losses_total counter
kernosis_log_losses_total{log="k",reason="malformed"} 1000
kernosis_log_losses_total{log="k",reason="overrun"} 1001
kernosis_log_losses_total{log="k",reason="too-long"} 1
kernosis_log_losses_total{log="k",reason="truncated"} 1
`

// Losses are reported with their number, at once and then once a second, and at the latest at the
// end. Lines before and after a loss are not adjacent.
func TestLosses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := open(t, patterns(t, `first\nsecond`), Options{}, Config{Name: "k", Plugin: KMsg})
		lose := func(reason logs.Reason, lines, bytes uint64) logs.Item {
			return logs.Item{Loss: &logs.Loss{Reason: reason, Lines: lines, Bytes: bytes}}
		}
		scripted(s, 0, func(ctx context.Context, handle func(logs.Item) error, status func(error)) error {
			status(nil)
			handle(line("first"))
			handle(lose(logs.Overrun, 5, 0))
			handle(line("second"))
			for range 1000 {
				handle(lose(logs.Overrun, 2, 0))
				handle(lose(logs.Malformed, 1, 0))
			}
			time.Sleep(5 * time.Second)
			handle(lose(logs.Truncated, 0, 0))
			handle(line("first"))
			handle(lose(logs.TooLong, 1, 100)) // only its end
			handle(line("second"))
			handle(lose(logs.TooLong, 1, 0))
			<-ctx.Done()
			return nil
		})
		rec := newRecorder()
		ctx, cancel := context.WithCancel(t.Context())
		go s.Run(ctx, rec.emit, func() {})
		time.Sleep(5 * time.Second)
		synctest.Wait()
		cancel()
		synctest.Wait()
		equal(t, rec.reported()[2:], []string{
			"lost log/k 5 overrun", "lost log/k 1000 malformed", "lost log/k 2000 overrun", "lost log/k 0 truncated",
			"first\nsecond", "lost log/k 1 too-long",
		})
		st := s.Stats()[0]
		registry := prometheus.NewPedanticRegistry()
		registry.MustRegister(s)
		if err := testutil.GatherAndCompare(registry, strings.NewReader(lossesWant), "kernosis_log_lines_total", "kernosis_log_lines_cut_total", "kernosis_log_lines_lost_total", "kernosis_log_losses_total"); err != nil {
			t.Error(err)
		}
		if st.Lost[logs.Overrun] != (Lost{Times: 1001, Lines: 2005}) || st.Lost[logs.Truncated] != (Lost{Times: 1}) || st.Cut != 1 {
			t.Errorf("stats %+v", st)
		}
	})
}

// Lines that were logged before this boot, or too early in it, are not reported but counted.
func TestBoots(t *testing.T) {
	now := time.Now()
	for _, tt := range []struct {
		plugin string
		delay  time.Duration
		line   logs.Line
		skip   bool
	}{
		{Journald, 0, logs.Line{Time: now.Add(-1000 * 24 * time.Hour)}, true},
		{Journald, 0, logs.Line{Time: now.Add(-1000 * 24 * time.Hour), BootTime: 1}, false}, // before the clock was set
		{Journald, 0, logs.Line{Time: now}, false},
		{Journald, time.Minute, logs.Line{Time: now, BootTime: 59 * time.Second}, true},
		{Journald, time.Minute, logs.Line{Time: now, BootTime: time.Minute}, false},
		{File, 0, logs.Line{Time: now.Add(-1000 * 24 * time.Hour)}, true},
		{File, 10000 * time.Hour, logs.Line{Time: now}, true},
		{KMsg, 0, logs.Line{}, false},
		{KMsg, time.Minute, logs.Line{}, true},
		{Crash, 0, logs.Line{Time: now.Add(-1000 * 24 * time.Hour)}, false},
	} {
		c := Config{Name: "l", Plugin: tt.plugin, Path: "/x", Delay: tt.delay}
		if tt.plugin == Crash {
			c = Config{Name: Crash, Plugin: Crash}
		}
		l := open(t, patterns(t, "x"), Options{}, c).logs[0]
		if got := l.tooEarly(&tt.line); got != tt.skip {
			t.Errorf("%s after %v, %+v: skipped %v", tt.plugin, tt.delay, tt.line, got)
		}
	}
	if d := thisBoot(time.Hour, time.Minute); d != time.Minute {
		t.Errorf("lookback %v within a minute of the boot", d)
	}
}

// A line that is read after the clock was set belongs to this boot.
func TestBootAfterTheClockWasSet(t *testing.T) {
	l := open(t, patterns(t, "x"), Options{}, Config{Name: "l", Plugin: File, Path: "/x"}).logs[0]
	const uptime = time.Minute
	var set time.Duration
	began := time.Now().Round(0)
	l.now = func() (time.Time, time.Duration) { return began.Add(uptime + set), uptime }
	for _, tt := range []struct {
		set, logged time.Duration // since began
		skip        bool
	}{
		{0, 10 * time.Second, false},
		{0, -time.Second, true},
		{-8 * time.Hour, -8*time.Hour + 30*time.Second, false},
		{-8 * time.Hour, -8*time.Hour - time.Second, true},
		{8 * time.Hour, 8*time.Hour + 30*time.Second, false},
	} {
		set = tt.set
		if got := l.tooEarly(&logs.Line{Time: began.Add(tt.logged)}); got != tt.skip {
			t.Errorf("clock set by %v, line of %v: skipped %v", tt.set, tt.logged, got)
		}
	}
}

func TestConfig(t *testing.T) {
	for _, tt := range []struct {
		field, want string
		c           Config
	}{
		{"", "", Config{Name: "kmsg", Plugin: KMsg}},
		{"", "", Config{Name: "a.log", Plugin: File, Path: "/a.log"}},
		{"name", "at most 63", Config{Name: "a/b", Plugin: KMsg}},
		{"name", "at most 63", Config{Name: strings.Repeat("a", 64), Plugin: KMsg}},
		{"plugin", "want kmsg, journald, file or crash", Config{Name: "a"}},
		{"plugin", `"syslog"`, Config{Name: "a", Plugin: "syslog"}},
		{"path", "missing", Config{Name: "a", Plugin: File}},
		{"path", "absolute", Config{Name: "a", Plugin: File, Path: "a"}},
		{"lookback", "negative", Config{Name: "a", Plugin: KMsg, Lookback: -1}},
		{"lookback", "timestamp", Config{Name: "a", Plugin: File, Path: "/a", Lookback: 1}},
		{"delay", "negative", Config{Name: "a", Plugin: KMsg, Delay: -1}},
		{"identifiers", "journald only", Config{Name: "a", Plugin: KMsg, Identifiers: []string{"x"}}},
		{"plugin", "1 to", Config{Name: "a", Plugin: Journald, Identifiers: []string{""}}},
		{"", "", Config{Name: "a", Plugin: File, Path: "/a", Format: file.Format{Kernel: true}, Lookback: 1}},
		{"name", "is reserved", Config{Name: "kernel", Plugin: KMsg}},
		{"kernel", "files only", Config{Name: "a", Plugin: Journald, Format: file.Format{Kernel: true}}},
		{"format", "files only", Config{Name: "a", Plugin: KMsg, Format: file.Format{Message: "x"}}},
		{"skip", "files only", Config{Name: "a", Plugin: KMsg, Skip: []string{"x"}}},
		{"", "", Config{Name: "crash", Plugin: Crash, Lookback: 1}},
		{"name", "no other", Config{Name: "crash", Plugin: KMsg}},
		{"name", "has the name crash", Config{Name: "a", Plugin: Crash}},
		{"path", "own folders", Config{Name: "crash", Plugin: Crash, Path: "/a"}},
		{"delay", "earlier boots", Config{Name: "crash", Plugin: Crash, Delay: 1}},
	} {
		err := tt.c.Check().Err()
		if tt.field == "" {
			if err != nil {
				t.Errorf("%+v: %v", tt.c, err)
			}
			continue
		}
		e, ok := errors.AsType[*document.Error](err)
		if !ok || e.Field != tt.field || !strings.Contains(err.Error(), tt.want) || len(tt.c.Check()) != 1 {
			t.Errorf("%+v: %v, want one of %s with %q", tt.c, err, tt.field, tt.want)
		}
		if _, err := New([]Config{tt.c}, patterns(t, "x"), Options{}); err == nil {
			t.Errorf("%+v is opened", tt.c)
		}
	}
	twice := Config{Name: "a", Plugin: KMsg}
	if _, err := New([]Config{twice, twice}, patterns(t, "x"), Options{}); err == nil || !strings.Contains(err.Error(), "twice") {
		t.Errorf("a name stands twice: %v", err)
	}
}
