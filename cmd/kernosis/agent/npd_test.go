package agent

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/kernosis/kernosis/collector/logs/journald"
	"github.com/kernosis/kernosis/collector/logsource"
	"github.com/kernosis/kernosis/detector/npd"
)

// A journal that node-problem-detector's files expect on disk is read where journald keeps it.
func TestNPDJournalInMemory(t *testing.T) {
	set := &npd.Set{Logs: []npd.LogSource{{Name: "j", Plugin: "journald", Path: journald.Folder}, {Name: "own", Plugin: "journald", Path: "/own"}}}
	root := t.TempDir()
	look := func(want string) {
		t.Helper()
		logs := npdLogs(nil, set, root)
		if logs[0].Path != want || logs[1].Path != "/own" {
			t.Errorf("paths %q, %q; want %q, /own", logs[0].Path, logs[1].Path, want)
		}
	}
	look("")
	folder := filepath.Join(root, journald.Folder, "0123456789abcdef0123456789abcdef")
	if err := os.MkdirAll(folder, 0o700); err != nil {
		t.Fatal(err)
	}
	look("")
	if err := os.WriteFile(filepath.Join(folder, "system.journal"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	look(journald.Folder)
}

// The rules of all share a log that is read once: a monitor's delay must not hide the first lines
// after a boot from the shipped rules.
func TestNPDDelayOfASharedLog(t *testing.T) {
	for configured, want := range map[time.Duration]time.Duration{0: 0, time.Minute: time.Minute, time.Hour: 5 * time.Minute} {
		kmsg := parseLog("kmsg")
		kmsg.Delay = configured
		set := &npd.Set{Logs: []npd.LogSource{{Name: "kmsg", Plugin: "kmsg", Delay: 5 * time.Minute}}}
		if logs := npdLogs([]logsource.Config{kmsg}, set, t.TempDir()); len(logs) != 1 || logs[0].Delay != want {
			t.Errorf("configured delay %v: %+v", configured, logs)
		}
	}
}
