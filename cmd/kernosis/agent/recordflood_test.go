package agent

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/kernosis/kernosis/detector"
	"github.com/kernosis/kernosis/reporter/journal"
	"github.com/kernosis/kernosis/vmtest/testenv"
)

const recordRules = `
rules:
- {name: rare, events: [log], pattern: '^the rare one', reason: Rare, message: m}
- {name: flooded, events: [log], pattern: '^flood (?P<who>\w+)', groupBy: [match.who], reason: Flood, message: "${match.who}"}
`

// A writer that floods a log which a rule reads can't push other entries out of the journal, and
// each line counts, also after a restart.
func TestAFloodLeavesTheJournalToOthers(t *testing.T) {
	const lines, wide = 20_000, 200
	path := filepath.Join(t.TempDir(), "app.log")
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	set := rulesOf(t, recordRules)
	a, logs := newLogAgent(t, set, path)
	dir := t.TempDir()
	small, err := journal.Open(dir, journal.Options{MaxBytes: 4 << 20})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { small.Close() })
	a.journal = small
	runLogs(t, a, logs)
	pieces := [][]byte{[]byte("the rare one\n")}
	for n := range lines {
		pieces = append(pieces, fmt.Appendf(nil, "flood %c %0*d\n", 'a'+n%3, wide, n))
	}
	flood(t, path, pieces, 0)
	testenv.Until(t, "every line", time.Minute, func() bool { return logs.Stats()[0].Lines == lines+1 })
	a.flush()
	counts := func(e *detector.Engine) map[string]uint64 {
		have := map[string]uint64{}
		for _, p := range e.Problems() {
			have[p.Rule] += p.Count
		}
		return have
	}
	if have := counts(a.engine); have["flooded"] != lines || have["rare"] != 1 {
		t.Errorf("%v counted, want %d and 1", have, lines)
	}
	if n := a.engine.Stats().Limited["flooded"]; n == 0 {
		t.Error("no event was limited")
	}
	if s := small.Stats(); s.DroppedSegments > 0 || s.Appended > 1100 {
		t.Errorf("%d entries written, %d segments dropped; want about 1000 and none", s.Appended, s.DroppedSegments)
	}
	again := detector.NewEngine(set)
	if _, err := journal.Read(dir, 0, func(e journal.Entry) error {
		if e.Event != nil && !again.Seen(e.Event) {
			again.Observe(e.Event, e.Moment())
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	if have := counts(again); have["flooded"] != lines || have["rare"] != 1 {
		t.Errorf("%v counted from the journal, want %d and 1", have, lines)
	}
}
