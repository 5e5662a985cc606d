package agent

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/kernosis/kernosis/collector/logs/journald"
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
