package agent

import (
	"bytes"
	"os"
	"strconv"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/kernosis/kernosis/collector/event"
	"github.com/kernosis/kernosis/collector/hostfs"
	"github.com/kernosis/kernosis/detector"
	"github.com/kernosis/kernosis/reporter/console"
	"github.com/kernosis/kernosis/vmtest/testenv"
)

const countedRules = `
apiVersion: rules.kernosis.io/v1
rules:
- {name: counted, events: [log], pattern: 'error on (?P<device>\w+)', groupBy: [match.device], reason: ManyErrors, message: "${match.device}", threshold: {count: 3, within: 1h}}
`

// An entry waits for its source to settle; an entry of a log that reports something only waits for a
// moment. It is neither printed before it is in the journal, nor after the next one.
func TestEntriesWait(t *testing.T) {
	rules, err := detector.Load(fstest.MapFS{"rules.yaml": {Data: []byte(countedRules)}})
	if err != nil {
		t.Fatal(err)
	}
	a, _ := restoredWith(t, t.TempDir(), rules)
	a.settle()
	was := a.journal.Seq() // entries that the start records
	var printed bytes.Buffer
	a.out = console.NewJSON(&printed)
	line := func(device string) *event.Event {
		return &event.Event{
			Kind: event.Log, Time: time.Now(), BootTime: event.Duration(hostfs.BootTime()), CPU: event.NoCPU,
			Source: "log/x", Log: &event.LogData{Log: "x", Seq: a.journal.Seq() + 1, Text: event.LogText("error on " + device)},
		}
	}
	want := func(when string, added, written int) {
		t.Helper()
		if seq, now := a.journal.Seq()-was, a.journal.Written()-was; seq != uint64(added) || now != uint64(written) {
			t.Errorf("%s: %d entries, %d written; want %d and %d", when, seq, now, added, written)
		}
		if lines := strings.Count(printed.String(), "\n"); lines != written {
			t.Errorf("%s: %d lines printed, want %d", when, lines, written)
		}
	}
	a.take(line("sda"))
	a.take(line("sdb"))
	want("two that report nothing", 2, 0)
	a.settle()
	want("settled", 2, 2)
	a.take(line("sda"))
	want("another one", 3, 2)
	a.take(line("sda"))
	want("one that reports", 4, 2)
	a.settle()
	want("settled again", 4, 4)
	a.takeLine(line("sdb"))
	want("a line that reports nothing", 5, 4)
	a.takeLine(line("sdb"))
	testenv.Until(t, "a line that reports is written", 10*time.Second, func() bool { return a.journal.Written()-was == 6 })
	a.settle() // it may not be printed yet
	want("both lines", 6, 6)
	a.observe(line("sdc"))
	want("of a source that does not settle", 7, 7)
	a.take(line("sdd"))
	a.tick()
	want("time has passed", 8, 8)
	for i, l := range strings.Split(strings.TrimSpace(printed.String()), "\n") {
		if prefix := `{"seq":` + strconv.Itoa(int(was)+1+i) + ","; !strings.HasPrefix(l, prefix) {
			t.Errorf("line %d is %s", i, l)
		}
	}
}

// Many lines that report something are flushed before that moment has passed.
func TestManyLinesAreReportedTogether(t *testing.T) {
	const each = "apiVersion: rules.kernosis.io/v1\nrules:\n- {name: r, events: [log], pattern: 'error on (?P<device>\\w+)', groupBy: [match.device], reason: R, message: m, rateLimit: {count: 1000, within: 1s}}\n"
	rules, err := detector.Load(fstest.MapFS{"rules.yaml": {Data: []byte(each)}})
	if err != nil {
		t.Fatal(err)
	}
	a, _ := restoredWith(t, t.TempDir(), rules)
	a.settle()
	var printed bytes.Buffer
	a.out = console.NewJSON(&printed)
	a.soon = time.AfterFunc(time.Hour, func() {}) // a line resets it; when it fires, it settles nothing
	for i := range reportTogether {
		a.takeLine(&event.Event{
			Kind: event.Log, Time: time.Now(), BootTime: event.Duration(hostfs.BootTime()), CPU: event.NoCPU,
			Source: "log/x", Log: &event.LogData{Log: "x", Seq: uint64(i + 1), Text: event.LogText("error on sd" + strconv.Itoa(i))},
		})
		want := 0
		if i+1 == reportTogether {
			want = reportTogether
		}
		if lines := strings.Count(printed.String(), "\n"); lines != want {
			t.Fatalf("%d printed after %d lines, want %d", lines, i+1, want)
		}
	}
}

// Lines that report nothing do not delay the report of an earlier line.
func TestAReportDoesNotWaitForAPauseOfItsLog(t *testing.T) {
	const counts = "apiVersion: rules.kernosis.io/v1\nconditions:\n  DiskBad: {healthyReason: DiskGood, healthyMessage: good}\nrules:\n- {name: r, events: [log], pattern: 'error on', condition: DiskBad, reason: R, message: m, clearAfter: 1h, rateLimit: {count: 50000, within: 1s}}\n"
	rules, err := detector.Load(fstest.MapFS{"rules.yaml": {Data: []byte(counts)}})
	if err != nil {
		t.Fatal(err)
	}
	a, _ := restoredWith(t, t.TempDir(), rules)
	a.settle()
	var printed bytes.Buffer
	a.out = console.NewText(&printed)
	for i, until := 0, time.Now().Add(10*time.Second); time.Now().Before(until); i++ {
		a.takeLine(&event.Event{
			Kind: event.Log, Time: time.Now(), BootTime: event.Duration(hostfs.BootTime()), CPU: event.NoCPU,
			Source: "log/x", Log: &event.LogData{Log: "x", Seq: uint64(i + 1), Text: "error on sda"},
		})
		a.mu.Lock()
		n := printed.Len()
		a.mu.Unlock()
		if n > 0 {
			return
		}
	}
	t.Error("nothing is printed while lines come")
}

// The loss of entries is logged once, not for each entry: the disk may be full.
func TestLostEntriesAreLoggedOnce(t *testing.T) {
	a, log := restored(t, t.TempDir())
	if err := a.journal.Close(); err != nil {
		t.Fatal(err)
	}
	for range 3 {
		a.observe(killedEvent())
	}
	if n := strings.Count(log.String(), "journal entries may be lost"); n != 1 {
		t.Errorf("logged %d times:\n%s", n, log)
	}
}

// A pipe without a reader loses all lines since the latest flush.
func TestOutputErrorsCountLines(t *testing.T) {
	a, _ := restored(t, t.TempDir())
	a.settle()
	reader, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	if err := reader.Close(); err != nil {
		t.Fatal(err)
	}
	a.out = console.NewJSON(w)
	for range 3 {
		a.take(killedEvent())
	}
	a.settle()
	a.observe(killedEvent())
	const want = `
# HELP kernosis_output_errors_total Lines that could not be written to the standard output.
# TYPE kernosis_output_errors_total counter
kernosis_output_errors_total 4
`
	if err := testutil.GatherAndCompare(a.metrics.Registry, strings.NewReader(want), "kernosis_output_errors_total"); err != nil {
		t.Error(err)
	}
}
