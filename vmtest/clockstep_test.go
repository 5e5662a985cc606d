package vmtest

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/kernosis/kernosis/collector/event"
	"github.com/kernosis/kernosis/detector"
	"github.com/kernosis/kernosis/detector/problem"
	"github.com/kernosis/kernosis/reporter/journal"
	"github.com/kernosis/kernosis/vmtest/agenttest"
)

// clockClear is the clearAfter of the rules here: far longer than from one kill to the next.
const clockClear = 30 * time.Second

// TestClockStep sets the machine's wall clock while kills go on, and kills and restarts the agent after
// that: problems, conditions and mutes last as long as they would have without.
func TestClockStep(t *testing.T) {
	rules := quickRules(t, "oomkill", "clearAfter", clockClear.String())
	for _, row := range []struct {
		name string
		by   time.Duration
	}{
		{"forward", 8 * time.Hour}, // beyond the end of the mute
		{"back", -8 * time.Hour},
	} {
		t.Run(row.name, func(t *testing.T) {
			a := startAgent(t, "--rules-dir", rules, "--mutes", muteFor(t, time.Hour, "oom-kill"))
			t.Cleanup(func() { noLoss(t, a.Entries()) })
			want := killsAcrossStep(t, a, row.by)
			reported(t, a, want)
			entries := a.Entries()
			want.checkMuted(t, entries)
			want.checkEnds(t, entries, "oom-kill")
			want.checkEnds(t, entries, "oom-kill-frequent")
		})
	}
}

// killsAcrossStep makes the victims exceed the limit of their own cgroup.
func killsAcrossStep(t *testing.T, a *agenttest.Agent, by time.Duration) *oomKills {
	t.Helper()
	group := newControlGroup(t, "/kn-clock-"+filepath.Base(t.Name()), "memory.max=16M")
	want := &oomKills{comm: "dd", adj: 1000, group: group.path, scope: "memcg", owner: group.path, limit: 16 << 20}
	for i := range faults {
		switch i {
		case 3: // before there are enough for oom-kill-frequent
			setClock(t, by)
		case 2 * faults / 3:
			// All that is printed is in the journal, but not the other way round.
			a.WaitIn(t, "kills until the restart", 60*time.Second, func(entries []journal.Entry) bool {
				return len(agenttest.States(entries, "oom-kill", want.isSubject)) >= i
			})
			a.Kill()
			a.Start()
		}
		want.pids = append(want.pids, group.hog(t, 32))
	}
	return want
}

// setClock sets the machine's wall clock forward or back for the duration of the test.
func setClock(t *testing.T, by time.Duration) {
	t.Helper()
	step := func(by time.Duration) {
		now := unix.NsecToTimespec(time.Now().Add(by).UnixNano())
		if err := unix.ClockSettime(unix.CLOCK_REALTIME, &now); err != nil {
			t.Fatal(err)
		}
	}
	step(by)
	t.Cleanup(func() { step(-by) })
}

// muteFor returns a file that mutes a rule from now on.
func muteFor(t *testing.T, lasts time.Duration, rule string) (path string) {
	t.Helper()
	path = filepath.Join(t.TempDir(), "mutes.yaml")
	text := fmt.Sprintf("apiVersion: %s\nmutes: [{rule: %s, until: %q, reason: a test}]\n",
		detector.APIVersion, rule, time.Now().Add(lasts).Format(time.RFC3339))
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// checkMuted requires that all kills are muted, and that an episode keeps the time of its first kill.
func (w *oomKills) checkMuted(t *testing.T, entries []journal.Entry) {
	t.Helper()
	var began time.Time
	for i, p := range problems(entries, "oom-kill", w.isSubject) {
		switch {
		case p.State == problem.Resolved:
			began = time.Time{}
			continue
		case began.IsZero():
			began = p.FirstSeen
		case !p.FirstSeen.Equal(began):
			t.Errorf("report %d: began at %s, before at %s", i+1, p.FirstSeen, began)
		}
		if p.MutedUntil.IsZero() {
			t.Errorf("report %d is not muted", i+1)
		}
	}
	for _, e := range entries {
		for _, tr := range e.Transitions {
			if tr.Mute != nil && tr.Mute.Over {
				t.Errorf("%s after boot, %s: the mute is over", time.Duration(e.BootTime), e.Now)
			}
		}
	}
}

// checkEnds requires that a rule's problem ends no sooner than its clearAfter after a kill, by the
// agent's clock and by the kernel's times of the kills.
func (w *oomKills) checkEnds(t *testing.T, entries []journal.Entry, rule string) {
	t.Helper()
	var last event.Duration
	over := false
	check := func(now event.Duration) {
		if quiet := time.Duration(now - last); over && quiet < clockClear {
			t.Errorf("%s: over, although only %s had passed since a kill", rule, quiet)
		}
	}
	for _, e := range entries {
		if slices.Contains(agenttest.States([]journal.Entry{e}, rule, w.isSubject), problem.Resolved) {
			over = true
			check(e.BootTime)
		}
		if ev := e.Event; ev != nil && ev.Kind == event.OOMKill && ev.Cgroup != nil && ev.Cgroup.Path == w.group {
			check(ev.BootTime)
			last, over = ev.BootTime, false
		}
	}
}
