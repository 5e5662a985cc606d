package console_test

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/kernosis/kernosis/reporter/console"
	"github.com/kernosis/kernosis/reporter/journal"
)

func TestDiagnosis(t *testing.T) {
	now := time.Date(2026, 3, 1, 10, 41, 2, 118e6, time.Local)
	d := console.Diagnosis{
		ID: "hung-task-n7-1", Name: "hung-task-n7-1", OperationSet: "hung-task", Phase: "Succeeded", Reason: "PathSucceeded",
		Verdict: &console.Cause{Reason: "DiskStalled", Message: "sdb: 14 in flight"}, Path: []string{"blocked-stacks", "check-disk-stalled"},
		Excluded: []console.Cause{{Reason: "NoNFSMount", Message: "none"}, {Reason: "NoLockHeld"}}, Action: "cordon (would)",
		Files: []string{"/a/1-stacks.txt", "/a/2-kmsg.txt"}, After: 2060 * time.Millisecond,
	}
	for name, c := range map[string]struct {
		change func(*console.Diagnosis)
		want   string
	}{
		"found": {func(*console.Diagnosis) {}, "10:41:02.118 cause    DiskStalled          sdb: 14 in flight; by blocked-stacks → check-disk-stalled; not: NoNFSMount, NoLockHeld; cordon (would); 2 files in /a [hung-task hung-task-n7-1] (2.06s)\n"},
		"not found": {func(d *console.Diagnosis) {
			*d = console.Diagnosis{Name: "x", OperationSet: "s", Phase: "Failed", Reason: "NoPathSucceeded", Message: "paths that failed: 2"}
		}, "10:41:02.118 cause    NoCauseFound         paths that failed: 2 [s x]\n"},
		"refused": {func(d *console.Diagnosis) {
			*d = console.Diagnosis{Name: "x", OperationSet: "s", Phase: "Failed", Reason: "OperationSetNotFound"}
		}, "10:41:02.118 cause    Failed               OperationSetNotFound [s x]\n"},
		"one file": {func(d *console.Diagnosis) { d.Files, d.After = d.Files[:1], 0 }, "10:41:02.118 cause    DiskStalled          sdb: 14 in flight; by blocked-stacks → check-disk-stalled; not: NoNFSMount, NoLockHeld; cordon (would); 1 file in /a [hung-task hung-task-n7-1]\n"},
	} {
		var b strings.Builder
		one := d
		c.change(&one)
		w := console.NewText(&b)
		err := w.Diagnosis(now, &one)
		if lost, flushed := w.Flush(); err != nil || flushed != nil || lost != 0 || b.String() != c.want {
			t.Errorf("%s: %v, %v\n%swant\n%s", name, err, flushed, b.String(), c.want)
		}
	}
	// A reader of entries can distinguish the JSON line from an entry.
	var b strings.Builder
	w := console.NewJSON(&b)
	if err := w.Diagnosis(now, &d); err != nil {
		t.Fatal(err)
	}
	if _, err := w.Flush(); err != nil {
		t.Fatal(err)
	}
	var line struct {
		journal.Entry
		Diagnosis *console.Diagnosis `json:"diagnosis"`
	}
	if err := json.Unmarshal([]byte(b.String()), &line); err != nil || line.Seq != 0 || !line.Now.Equal(now) || line.Diagnosis.Verdict.Reason != "DiskStalled" || line.Diagnosis.After != d.After {
		t.Errorf("%v: %s", err, b.String())
	}
}
