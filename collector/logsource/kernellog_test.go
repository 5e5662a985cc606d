package logsource

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/kernosis/kernosis/collector/event"
	"github.com/kernosis/kernosis/collector/hostfs"
	"github.com/kernosis/kernosis/collector/logs"
	"github.com/kernosis/kernosis/collector/logs/file"
	"github.com/kernosis/kernosis/detector"
)

const stalled = "BUG: workqueue lockup - pool cpus=0 node=0 flags=0x0 nice=0 stuck for 32s!"

// loadShipped loads the shipped rules once, because under the race detector that takes a second.
var loadShipped = sync.OnceValues(func() (*detector.RuleSet, error) { return detector.Load(detector.Shipped()) })

func shippedRules(t *testing.T) *detector.RuleSet {
	t.Helper()
	set, err := loadShipped()
	if err != nil {
		t.Fatal(err)
	}
	return set
}

// firing returns the problems that fire in the shipped rules after the events, with counts.
func firing(t *testing.T, events []*event.Event) (out []string) {
	t.Helper()
	e := detector.NewEngine(shippedRules(t))
	now := event.Moment{Wall: time.Now(), Boot: hostfs.BootTime()}
	for _, ev := range events {
		e.Observe(ev, now)
	}
	for _, p := range e.Problems() {
		out = append(out, fmt.Sprintf("%s %d", p.Rule, p.Count))
	}
	slices.Sort(out)
	return out
}

// eventsOf returns the events that a log emits for what feed passes to it.
func eventsOf(t *testing.T, c Config, feed func(handle func(logs.Item) error)) (out []*event.Event) {
	t.Helper()
	s := open(t, shippedRules(t).PatternSet(), Options{}, c)
	s.logs[0].emit = func(ev *event.Event) { out = append(out, ev.Clone()) }
	feed(s.logs[0].handle)
	s.logs[0].end() // emits what is held back
	return out
}

// TestKernelsLinesOfTheJournal checks that the shipped rules get the kernel's lines of a journal
// with any name, as from /dev/kmsg.
func TestKernelsLinesOfTheJournal(t *testing.T) {
	lines := []forgery{{text: stalled}}
	events := eventsOf(t, Config{Name: "journal", Plugin: Journald}, func(handle func(logs.Item) error) {
		feedJournal(t, lines, handle)
	})
	equal(t, firing(t, events), []string{"workqueue-lockup 1"})
}

// kernLog returns a file of kernel messages as rsyslog writes it, each with its time stamp.
func kernLog(layout string, lines ...string) string {
	var b strings.Builder
	for _, l := range lines {
		fmt.Fprintf(&b, "%s node kernel: %s\n", time.Now().Format(layout), l)
	}
	return b.String()
}

const rfc3339Micro = "2006-01-02T15:04:05.000000Z07:00"

// TestKernLog checks that the shipped rules get the lines of a file that is declared as the
// kernel's, and none of the same file if it is not.
func TestKernLog(t *testing.T) {
	chosen := file.Format{Message: `kernel: (\[.*BUG: .*)`}
	for _, tt := range []struct {
		name, text string
		kernel     bool
		want       []string
		skip       []string
		format     file.Format
	}{
		{name: "traditional", text: kernLog(time.Stamp, "[  123.456789] "+stalled), kernel: true, want: []string{"workqueue-lockup 1"}},
		{name: "RFC 3339", text: kernLog(rfc3339Micro, "[  123.456789] "+stalled), kernel: true, want: []string{"workqueue-lockup 1"}},
		{name: "caller of printk", text: kernLog(time.Stamp, "[  123.456789][   T12] "+stalled), kernel: true, want: []string{"workqueue-lockup 1"}},
		{name: "not declared", text: kernLog(time.Stamp, "[  123.456789] "+stalled)},
		{name: "another program", text: strings.ReplaceAll(kernLog(time.Stamp, "[  123.456789] "+stalled), "kernel:", "app[1]:"), kernel: true},
		{name: "the header's words in the text", text: kernLog(time.Stamp, "[  123.456789] app: node kernel: [  1.000000] "+stalled), kernel: true},
		{name: "without a stamp", text: kernLog(time.Stamp, stalled), kernel: true, want: []string{"records-lost 1"}},
		{name: "crash", text: kernLog(time.Stamp, "[  123.456789] app[12]: segfault at 0 ip 00 sp 00 error 4 in app[1000+1000]"), kernel: true, want: []string{"segfault 1"}},
		// A process can be named "a\nBUG: workq" and its file anything: imklog makes separate
		// lines of it.
		{name: "forged by a newline", text: kernLog(time.Stamp, "[  123.456789] app[12]: segfault at 0 ip 00 sp 00 error 4 in x", "[  123.456789] "+stalled+"[1000+1000]"), kernel: true, want: []string{"segfault 1"}},
		{name: "forged before a newline", text: kernLog(time.Stamp, "[  123.456789] "+stalled, "[  123.456789] : app: potentially unexpected fatal signal 11."), kernel: true},
		{name: "forged by an escaped newline", text: kernLog(time.Stamp, "[  123.456789] app[12]: segfault at 0 ip 00 sp 00 error 4 in x#012"+stalled), kernel: true, want: []string{"segfault 1"}},
		{name: "forged by a newline, skipped before it", text: kernLog(time.Stamp, "[  123.456789] app[12]: segfault at 0 ip 00 sp 00 error 4 in x", "[  123.456789] "+stalled+"[1000+1000]"), kernel: true, skip: []string{"app["}},
		{name: "forged by a newline, not chosen before it", text: kernLog(time.Stamp, "[  123.456789] app[12]: segfault at 0 ip 00 sp 00 error 4 in x", "[  123.456789] "+stalled+"[1000+1000]"), kernel: true, format: chosen},
		{name: "forged before a newline, skipped behind it", text: kernLog(time.Stamp, "[  123.456789] "+stalled, "[  123.456789] : app: potentially unexpected fatal signal 11."), kernel: true, skip: []string{": app:"}},
		{name: "forged before a newline, not chosen behind it", text: kernLog(time.Stamp, "[  123.456789] "+stalled, "[  123.456789] : app: potentially unexpected fatal signal 11."), kernel: true, format: chosen},
		{name: "another message skipped", text: kernLog(time.Stamp, "[  123.456788] audit: x", "[  123.456789] "+stalled, "[  123.456790] audit: y"), kernel: true, skip: []string{"audit"}, want: []string{"workqueue-lockup 1"}},
		{name: "another message not chosen", text: kernLog(time.Stamp, "[  123.456788] audit: x", "[  123.456789] "+stalled, "[  123.456790] audit: y"), kernel: true, format: chosen, want: []string{"workqueue-lockup 1"}},
		{name: "without a stamp, skipped", text: kernLog(time.Stamp, stalled), kernel: true, skip: []string{"BUG"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			f := newFile(t, "kern.log")
			f.add(tt.text)
			events := eventsOf(t, Config{Name: "kern", Plugin: File, Path: f.path, Format: file.Format{Kernel: tt.kernel}}, func(handle func(logs.Item) error) {
				tt.format.Kernel = tt.kernel
				r, err := file.New(file.Config{Path: f.path, Format: tt.format, Skip: tt.skip, Lookback: map[bool]time.Duration{true: time.Hour}[tt.kernel]})
				if err != nil {
					t.Fatal(err)
				}
				if err := r.Once(t.Context(), handle); err != nil {
					t.Fatal(err)
				}
			})
			equal(t, firing(t, events), tt.want)
		})
	}
}

// TestOneMessageOfThreeLogs checks that one message in kmsg, a journal and a file is one
// occurrence of one problem, in whatever order they are read; the same text at another time is
// another occurrence.
func TestOneMessageOfThreeLogs(t *testing.T) {
	stamp := hostfs.BootTime() - time.Second
	var all [][]*event.Event
	fromFile := func(text string) []*event.Event {
		f := newFile(t, "kern.log")
		f.add(text)
		return eventsOf(t, Config{Name: "kern", Plugin: File, Path: f.path, Format: file.Format{Kernel: true}}, func(handle func(logs.Item) error) {
			r, err := file.New(file.Config{Path: f.path, Format: file.Format{Kernel: true}, Lookback: time.Hour})
			if err != nil {
				t.Fatal(err)
			}
			if err := r.Once(t.Context(), handle); err != nil {
				t.Fatal(err)
			}
		})
	}
	inFile := func(at time.Duration) string {
		return fmt.Sprintf("[%5d.%06d] %s", at/time.Second, at%time.Second/time.Microsecond, stalled)
	}
	at := stamp.Truncate(time.Microsecond)
	all = append(all, fromFile(kernLog(rfc3339Micro, inFile(at))))
	for plugin, feed := range map[string]func(*testing.T, []forgery, func(logs.Item) error){KMsg: feedKmsg, Journald: feedJournal} {
		events := eventsOf(t, Config{Name: plugin, Plugin: plugin}, func(handle func(logs.Item) error) {
			feed(t, []forgery{{text: stalled, stamp: at}}, handle)
		})
		all = append(all, events)
	}
	for i := range all {
		order := slices.Concat(all[i], all[(i+1)%3], all[(i+2)%3])
		if len(order) != 3 {
			t.Fatalf("%d events of three logs", len(order))
		}
		equal(t, firing(t, order), []string{"workqueue-lockup 1"})
	}
	again := fromFile(kernLog(rfc3339Micro, inFile(at+time.Microsecond)))
	equal(t, firing(t, slices.Concat(all[0], all[1], again)), []string{"workqueue-lockup 2"})
}

// TestKernLogIsFollowed checks that a message is reported without waiting for the next one, and
// that one that was not reported before a kill is reported after it, once.
func TestKernLogIsFollowed(t *testing.T) {
	f := newFile(t, "kern.log")
	state := t.TempDir()
	c := Config{Name: "kern", Plugin: File, Path: f.path, Format: file.Format{Kernel: true}}
	for i := range 3 {
		r := run(t, open(t, patterns(t, "oops"), Options{StateDir: state}, c), newRecorder())
		r.rec.until(t, "start", r.rec.has("+log/kern"))
		f.add(kernLog(time.Stamp, fmt.Sprintf("[  12%d.000000] oops %d", i, i), fmt.Sprintf("[  12%d.000000] second line", i)))
		want := fmt.Sprintf(`oops %d\x0asecond line`, i)
		r.rec.until(t, "message", r.rec.has(want))
		r.stop()
		equal(t, r.rec.lines(), []string{want})
	}
}
