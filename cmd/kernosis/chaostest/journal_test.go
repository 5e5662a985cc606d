package chaostest_test

import (
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/kernosis/kernosis/collector/event"
	"github.com/kernosis/kernosis/reporter/journal"
)

// sameKill is by how much the times of a kill in the kernel's log and in its record may differ.
const sameKill = time.Second

// checkJournal reads the journal: its sequence numbers must increase, no truncated line may be left, and it
// must have each victim once.
func (w *world) checkJournal() {
	w.t.Helper()
	w.checked("the journal is intact")
	last := uint64(0)
	var entries []journal.Entry
	damaged, err := journal.Read(filepath.Join(w.agent.State, "journal"), 0, func(e journal.Entry) error {
		if e.Seq <= last {
			w.t.Errorf("journal: entry %d behind %d", e.Seq, last)
		}
		last = e.Seq
		entries = append(entries, e)
		return nil
	})
	if err != nil || damaged > w.journalFlips() {
		w.t.Errorf("journal: %d damaged lines, %v", damaged, err)
	}
	w.checkVictims(entries)
}

// checkVictims compares the kernel's victims with the entries of the journal, and with what the agent has printed.
func (w *world) checkVictims(entries []journal.Entry) {
	w.t.Helper()
	all := w.known()
	w.checked("no victim is journaled or printed twice")
	saved, printed := w.reportsOf(all, entries), w.reportsOf(all, w.agent.Entries())
	windows, missing := w.losses.now(), []victim(nil)
	for i, v := range all {
		if saved[i] > 1 || printed[i] > 1 {
			w.t.Errorf("the victim %d, killed %v after the boot, is %d times in the journal, and was printed %d times", v.pid, v.at, saved[i], printed[i])
		}
		if saved[i] == 0 && !slices.ContainsFunc(windows, func(w window) bool { return w.has(v.at) }) {
			missing = append(missing, v)
		}
	}
	w.checked("each victim is journaled, or counted as lost")
	named := w.named()
	if float64(len(missing)) > named.oomRecords+named.refused+float64(w.journalFlips()) {
		w.t.Errorf("%d of %d victims are not in the journal, but the agent counts only %+v as lost: %v", len(missing), len(all), named, missing)
	}
	if len(windows) == 0 && named.oomRecords > float64(len(missing)) {
		w.t.Errorf("the agent counts %v kills as lost, but only %d are missing", named.oomRecords, len(missing))
	}
}

// reportsOf returns how often entries report each victim. It fails the test for one that the kernel has not
// killed.
func (w *world) reportsOf(all []victim, entries []journal.Entry) (times []int) {
	w.t.Helper()
	times = make([]int, len(all))
	group := filepath.Base(w.oom.Cgroup())
	for _, e := range entries {
		ev := e.Event
		if ev == nil || ev.Kind != event.OOMKill || ev.Cgroup == nil || !strings.HasPrefix(filepath.Base(ev.Cgroup.Path), group) {
			continue
		}
		found := false
		for i, v := range all {
			if v.pid == int(ev.Task.PID) && (v.at-time.Duration(ev.BootTime)).Abs() < sameKill {
				times[i]++
				found = true
			}
		}
		if !found {
			w.t.Errorf("the agent reports a kill of process %d, which the kernel's log does not have", ev.Task.PID)
		}
	}
	return times
}
