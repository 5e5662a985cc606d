package main

import (
	"path/filepath"
	"testing"
	"time"

	"github.com/kernosis/kernosis/detector/problem"
	"github.com/kernosis/kernosis/reporter/journal"
)

// A missing line is a problem until it comes. After a kill the agent continues to wait, and a line
// that came in the meantime counts.
func TestALineThatDoesNotCome(t *testing.T) {
	rules := writeRules(t, `
conditions:
  BackupMissing: {healthyReason: BackupDone, healthyMessage: the backup is done}
rules:
- {name: backup, events: [log], logs: [backup], pattern: '^backup done', absentFor: 3s, condition: BackupMissing, reason: NoBackup, message: no backup for 3 s}
`)
	l := &rotatedLog{t: t, path: filepath.Join(t.TempDir(), "backup.log")}
	l.add("made today\n")
	p := newAgent(t, "--rules-dir", rules, "--log", "backup=file:"+l.path)
	changes := func(want ...problem.Status) {
		t.Helper()
		p.Wait("condition", 60*time.Second, func(entries []journal.Entry) bool {
			var have []problem.Status
			for _, e := range entries {
				for _, tr := range e.Transitions {
					if c := tr.Condition; c != nil && c.Type == "BackupMissing" && c.Status != problem.Unknown {
						have = append(have, c.Status)
					}
				}
			}
			if len(have) > len(want) {
				t.Fatalf("condition was %v, want %v", have, want)
			}
			return len(have) == len(want)
		})
	}
	p.Start()
	changes(problem.True)
	l.add("backup done\n")
	changes(problem.True, problem.False)
	changes(problem.True, problem.False, problem.True)
	p.Kill()
	l.add("backup done\n")
	p.Start()
	changes(problem.True, problem.False, problem.True, problem.False)
	p.Stop()
}
