package detector_test

import (
	"testing"
	"time"

	"github.com/kernosis/kernosis/collector/event"
	"github.com/kernosis/kernosis/detector"
)

const backupRule = `
- {name: backup, events: [log], logs: [backup], pattern: '^backup done$', absentFor: 24h, condition: Sick, reason: BackupMissing, message: no backup for a day}
- {name: told, events: [log], logs: [backup], pattern: '^backup done$', absentFor: 24h, reason: BackupMissing, message: no backup for a day}
`

// done returns the log line that reports a finished backup.
func done(seq uint64, at time.Duration) *event.Event {
	ev := logged(at, "backup done")
	ev.Log.Log, ev.Log.Seq = "backup", seq
	return ev
}

// restarted returns the engine after a restart of the agent.
func restarted(t *testing.T, e *detector.Engine, set *detector.RuleSet, now time.Duration) *detector.Engine {
	t.Helper()
	b, err := e.Snapshot()
	if err != nil {
		t.Fatal(err)
	}
	next := detector.NewEngine(set)
	if err := next.Restore(b, at(now)); err != nil {
		t.Fatal(err)
	}
	return next
}

func TestAbsence(t *testing.T) {
	const day = 24 * time.Hour
	set := ruleSet(t, backupRule)
	e := detector.NewEngine(set)
	due := func(when time.Duration) {
		t.Helper()
		if next, ok := e.NextDeadline(); !ok || next.Boot != at(when).Boot {
			t.Errorf("next deadline after %s, %t; want %s", next.Boot-time.Hour, ok, when)
		}
	}
	condition := func(want string) {
		t.Helper()
		if have := conditionOf(e); have != want {
			t.Errorf("condition %s, want %s", have, want)
		}
	}
	want(t, e.Tick(at(0)))
	if _, ok := e.NextDeadline(); ok {
		t.Error("it waits before a log is read")
	}
	want(t, e.Observe(source("log/backup", true), at(time.Minute)), "Sick=Unknown SourceNotStarted")
	condition("Unknown SourceNotStarted: waiting for the first event of rule backup")
	due(day + time.Minute)
	want(t, e.Tick(at(day+time.Minute)), "backup  firing", "told  firing", "Sick=True BackupMissing")
	want(t, e.Observe(done(1, 25*time.Hour), at(25*time.Hour)), "backup  resolved", "told  resolved", "Sick=False Well")
	e.Tick(at(25*time.Hour + 15*time.Minute)) // the resolved problem is forgotten
	due(49 * time.Hour)
	want(t, e.Observe(done(2, 40*time.Hour), at(40*time.Hour)))
	due(64 * time.Hour)

	// The log is not read for two hours: lines from that time arrive late.
	want(t, e.Observe(source("log/backup", false), at(63*time.Hour)), "Sick=Unknown SourceUnavailable")
	want(t, e.Tick(at(65*time.Hour)))
	want(t, e.Observe(source("log/backup", true), at(65*time.Hour)), "Sick=False Well")
	due(65*time.Hour + 5*time.Minute)
	want(t, e.Observe(done(3, 63*time.Hour+30*time.Minute), at(65*time.Hour+time.Second)))
	due(87*time.Hour + 30*time.Minute)

	// The same over a restart, with nothing in the log.
	e = restarted(t, e, set, 88*time.Hour)
	want(t, e.Tick(at(88*time.Hour)))
	want(t, e.Observe(source("log/backup", true), at(88*time.Hour+time.Second)), "Sick=False Well")
	want(t, e.Tick(at(88*time.Hour+4*time.Minute)))
	want(t, e.Tick(at(88*time.Hour+6*time.Minute)), "backup  firing", "told  firing", "Sick=True BackupMissing")
	// It lasts over a restart, and over a line from before the period.
	e = restarted(t, e, set, 89*time.Hour)
	e.Observe(source("log/backup", true), at(89*time.Hour))
	want(t, e.Observe(done(4, 60*time.Hour), at(89*time.Hour)))
	condition("True BackupMissing: no backup for a day")
	want(t, e.Observe(done(5, 90*time.Hour), at(90*time.Hour)), "backup  resolved", "told  resolved", "Sick=False Well")

	// The awaited line may have been lost. Reloaded rules continue to wait.
	e.Observe(&event.Event{Kind: event.Lost, Lost: &event.LostData{Stem: "log/backup", Count: 3, Reason: "overrun"}}, at(100*time.Hour))
	e.Tick(at(101 * time.Hour)) // the loss is over
	due(124 * time.Hour)
	want(t, e.Replace(ruleSet(t, backupRule), at(102*time.Hour)))
	due(124 * time.Hour)
	// A new rule starts to wait now.
	want(t, e.Replace(ruleSet(t, backupRule+"- {name: soon, events: [log], logs: [backup], pattern: x, absentFor: 1h, reason: Soon, message: m}\n"), at(102*time.Hour)))
	due(103 * time.Hour)
	want(t, e.Tick(at(103*time.Hour)), "soon  firing")
}

// A rule that was changed to or from absentFor before a restart does not keep its former problem.
func TestAbsentForChangedBeforeARestart(t *testing.T) {
	const rest = ", condition: Sick, reason: R, message: m"
	seen := ruleSet(t, "\n- {name: backup, events: [log], logs: [backup], pattern: oops, latched: true"+rest+"}\n")
	missed := ruleSet(t, "\n- {name: backup, events: [log], logs: [backup], pattern: done, absentFor: 24h"+rest+"}\n")
	e := detector.NewEngine(seen)
	e.Observe(source("log/backup", true), at(0))
	oops := done(1, 0)
	oops.Log.Text = "oops"
	want(t, e.Observe(oops, at(0)), "backup  firing", "Sick=True R")

	e = restarted(t, e, missed, time.Hour)
	if p := e.Problems(); len(p) > 0 {
		t.Errorf("of the former rule: %+v", p)
	}
	e.Observe(source("log/backup", true), at(time.Hour))
	want(t, e.Tick(at(25*time.Hour)), "backup  firing", "Sick=True R")

	e = restarted(t, e, seen, 26*time.Hour)
	if p := e.Problems(); len(p) > 0 {
		t.Errorf("of the former rule: %+v", p)
	}
}

// A loss does not restart the wait for a kernel message while another log has all of them.
func TestAbsenceWhileALogLosesLines(t *testing.T) {
	e := detector.NewEngine(ruleSet(t, "\n- {name: alive, events: [log], logs: [kernel], pattern: alive, absentFor: 10m, reason: R, message: m}\n"))
	for i, log := range []string{"log/kmsg", "log/journald"} {
		up := source(log, true)
		up.SourceUp.Kernel = true
		e.Observe(up, at(time.Duration(i)))
	}
	lost := func(log string, d time.Duration) {
		e.Observe(&event.Event{Kind: event.Lost, Lost: &event.LostData{Stem: log, Count: 1, Reason: "overrun"}}, at(d))
	}
	e.Observe(logged(0, "alive"), at(1))
	lost("log/journald", 5*time.Minute)
	want(t, e.Tick(at(10*time.Minute)), "alive  firing")
	e.Observe(logged(11*time.Minute, "alive"), at(11*time.Minute))
	lost("log/kmsg", 15*time.Minute)
	lost("log/journald", 16*time.Minute)
	want(t, e.Tick(at(25*time.Minute)))
	want(t, e.Tick(at(26*time.Minute)), "alive  firing")
}

// While one of several logs is down, a rule for all of them neither fires nor clears: the line may be
// in that log.
func TestOneOfSeveralLogsIsDown(t *testing.T) {
	e := detector.NewEngine(ruleSet(t, `
- {name: backup, events: [log], pattern: '^backup done', absentFor: 1h, condition: Sick, reason: R, message: m}
- {name: bad, events: [log], pattern: '^bad', clearAfter: 1h, condition: Ill, reason: R, message: m}
`))
	e.Observe(source("log/kmsg", true), at(0))
	e.Observe(source("log/app", true), at(0))
	e.Observe(down("log", "this log is not configured"), at(0))
	want(t, e.Observe(logged(0, "bad"), at(0)), "bad  firing", "Ill=True R")
	want(t, e.Observe(source("log/app", false), at(time.Minute)), "Sick=Unknown SourceUnavailable")
	want(t, e.Tick(at(2*time.Hour)))
	want(t, e.Observe(source("log/app", true), at(2*time.Hour)), "Sick=Unknown SourceNotStarted")
	want(t, e.Tick(at(4*time.Hour)), "bad  resolved", "backup  firing", "Ill=False Well", "Sick=True R")
}
