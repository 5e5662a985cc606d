package vmtest

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/kernosis/kernosis/collector/event"
	"github.com/kernosis/kernosis/detector/problem"
	"github.com/kernosis/kernosis/reporter/journal"
	"github.com/kernosis/kernosis/vmtest/agenttest"
)

// reported waits, in parallel with other rows, until the errors have ended, and fails the test if
// the agent's reports are wrong.
func (l *fsLab) reported(t *testing.T, f *fsFault) {
	t.Helper()
	t.Parallel()
	entries := l.agent.WaitIn(t, "end of the errors of "+f.fs.source, 60*time.Second, func(entries []journal.Entry) bool {
		states := agenttest.States(entries, fsErrorRule, f.isSubject)
		return f.errors == 0 || len(states) > 0 && states[len(states)-1] == problem.Resolved
	})
	f.checkErrors(t, entries)
	f.checkReadOnly(t, entries)
	f.checkProblem(t, entries)
}

func (f *fsFault) checkErrors(t *testing.T, entries []journal.Entry) {
	t.Helper()
	events := f.events(entries, event.FSError)
	if len(events) != f.errors {
		t.Errorf("%d errors gave %d events", f.errors, len(events))
	}
	for i, ev := range events {
		d := *ev.FSError
		if (d.Line == 0) != f.placeless || d.Function == "" || !strings.HasSuffix(d.Function, f.function) {
			t.Errorf("error %d: %+v, want one in %s", i, d, f.function)
		}
		if want := []event.Mount{{Path: f.fs.dir, FSType: f.fs.fsType}}; !slices.Equal(ev.Device.Mounts, want) {
			t.Errorf("error %d: at %v, want %v", i, ev.Device.Mounts, want)
		}
		if ev.Task == nil || f.function != "" && (int(ev.Task.TGID) != os.Getpid() || ev.Task.Comm != attribute("/proc/self/comm")) {
			t.Errorf("error %d: found by %v, want this process", i, ev.Task)
		}
		if place := fmt.Sprintf("%s:%d", d.Function, d.Line); i < len(f.places) && place != f.places[i] {
			t.Errorf("error %d: in %s, the kernel logged %s", i, place, f.places[i])
		}
	}
}

// checkReadOnly requires one event each time that writes are refused, and one each time this ends.
func (f *fsFault) checkReadOnly(t *testing.T, entries []journal.Entry) {
	t.Helper()
	began, ended := f.events(entries, event.MountReadOnly), f.events(entries, event.MountWritable)
	if len(began) != f.readOnly || len(ended) != f.readOnly {
		t.Errorf("read-only %d times: reported %d times, its end %d times", f.readOnly, len(began), len(ended))
	}
	for _, ev := range began {
		if ev.Mount.FSType != f.fs.fsType || !slices.Contains(f.reasons, ev.Mount.Reason) {
			t.Errorf("read-only: %+v, want %s for one of %v", *ev.Mount, f.fs.fsType, f.reasons)
		}
	}
	for _, ev := range ended {
		if ev.Mount.Reason != "unmounted" {
			t.Errorf("writable: %+v", *ev.Mount)
		}
	}
	if n := len(problems(entries, readOnlyRule, f.isSubject)); n != 2*f.readOnly {
		t.Errorf("the read-only problem changed %d times, want %d beginnings and ends", n, f.readOnly)
	}
}

// checkProblem requires that the rule reports each error and their end.
func (f *fsFault) checkProblem(t *testing.T, entries []journal.Entry) {
	t.Helper()
	firing, ended := 0, map[string]bool{}
	for _, p := range problems(entries, fsErrorRule, f.isSubject) {
		if p.State == problem.Firing {
			if firing++; firing == 1 {
				t.Log(p.Message)
			}
		}
		ended[p.Group] = p.State == problem.Resolved
		if !strings.Contains(p.Message, f.function) || p.Reason != "FilesystemError" {
			t.Errorf("problem %+v", p)
		}
	}
	if firing != f.errors {
		t.Errorf("%d errors, reported %d times", f.errors, firing)
	}
	for group, is := range ended {
		if !is {
			t.Errorf("no end of the errors of %s", group)
		}
	}
}
