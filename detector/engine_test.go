package detector_test

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
	"testing/fstest"
	"time"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"

	"github.com/kernosis/kernosis/collector/event"
	"github.com/kernosis/kernosis/detector"
	"github.com/kernosis/kernosis/detector/problem"
)

// ruleSet loads rules written inline, under a head with two conditions.
func ruleSet(t testing.TB, rules string) *detector.RuleSet {
	t.Helper()
	const head = `apiVersion: rules.kernosis.io/v1
conditions:
  Sick: {healthyReason: Well, healthyMessage: all is well}
  Ill: {healthyReason: Well, healthyMessage: all is well too}
rules:
`
	set, err := detector.Load(fstest.MapFS{"r.yaml": &fstest.MapFile{Data: []byte(head + rules)}})
	if err != nil {
		t.Fatal(err)
	}
	return set
}

var epoch = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

// at returns a time after the epoch, on a machine that was booted an hour before it.
func at(d time.Duration) event.Moment { return event.Moment{Wall: epoch.Add(d), Boot: time.Hour + d} }

// oom returns an OOM kill of a process in a cgroup. The time makes each record distinct.
func oom(d time.Duration, cgroup string) *event.Event {
	return &event.Event{
		Kind: event.OOMKill, Time: at(d).Wall, BootTime: event.Duration(time.Hour + d),
		Task:    &event.Task{PID: 7, TGID: 7, Comm: "victim"},
		Cgroup:  &event.Cgroup{ID: 1, Path: cgroup},
		OOMKill: &event.OOMKillData{Scope: "memcg", Limit: 32 << 20, AnonRSS: 31 << 20},
	}
}

func source(stem string, up bool) *event.Event {
	return &event.Event{Kind: event.Source, SourceUp: &event.SourceData{Stem: stem, Up: up, Reason: "because"}}
}

// states lists problem transitions as "rule group state".
func states(ts []problem.Transition) []string {
	var out []string
	for _, t := range ts {
		switch {
		case t.Problem != nil && t.Problem.SuppressedBy != "":
			out = append(out, fmt.Sprintf("%s %s %s by %s", t.Problem.Rule, t.Problem.Group, t.Problem.State, t.Problem.SuppressedBy))
		case t.Problem != nil && !t.Problem.MutedUntil.IsZero():
			out = append(out, fmt.Sprintf("%s %s %s muted", t.Problem.Rule, t.Problem.Group, t.Problem.State))
		case t.Mute != nil && t.Mute.Over:
			out = append(out, "mute of "+t.Mute.Rule+" over")
		case t.Mute != nil:
			out = append(out, "mute of "+t.Mute.Rule)
		case t.Problem != nil:
			out = append(out, fmt.Sprintf("%s %s %s", t.Problem.Rule, t.Problem.Group, t.Problem.State))
		default:
			out = append(out, fmt.Sprintf("%s=%s %s", t.Condition.Type, t.Condition.Status, t.Condition.Reason))
		}
	}
	return out
}

func want(t *testing.T, have []problem.Transition, want ...string) {
	t.Helper()
	if diff := cmp.Diff(want, states(have)); diff != "" {
		t.Errorf("transitions (-want +have):\n%s", diff)
	}
}

func TestDuplicateRecords(t *testing.T) {
	e := detector.NewEngine(ruleSet(t, `
- {name: kill, events: [oomkill], reason: R, message: m}
`))
	ev := oom(0, "/a")
	want(t, e.Observe(ev, at(0)), "kill  firing")
	if !e.Seen(ev) {
		t.Error("the event is not seen")
	}
	want(t, e.Observe(ev, at(1)))
	other := oom(0, "/a")
	other.CPU = 1
	want(t, e.Observe(other, at(1)), "kill  firing")
	noKernel := oom(0, "/a")
	noKernel.BootTime = 0
	want(t, e.Observe(noKernel, at(1)), "kill  firing")
	want(t, e.Observe(noKernel, at(1)), "kill  firing")
	if n := e.Stats().Duplicates; n != 1 {
		t.Errorf("%d duplicates, want 1", n)
	}
	// Polled events of different devices have the same CPU and time, but different identities.
	ro := func(minor uint32) *event.Event {
		return &event.Event{Kind: event.MountReadOnly, BootTime: event.Duration(time.Hour), Device: &event.Device{Minor: minor}, Mount: &event.MountData{}}
	}
	e = detector.NewEngine(ruleSet(t, `
- {name: ro, events: [mount.readonly], groupBy: [device.minor], reason: R, message: m}
`))
	e.Observe(ro(1), at(0))
	want(t, e.Observe(ro(2), at(0)), "ro 2 firing")
}

func TestDuplicatesAcrossRestart(t *testing.T) {
	set := ruleSet(t, `
- {name: kill, events: [oomkill], reason: R, message: m}
`)
	e := detector.NewEngine(set)
	for i := range 5000 {
		e.Observe(oom(time.Duration(i)*time.Millisecond, "/a"), at(5*time.Second))
	}
	data, err := e.Snapshot()
	if err != nil {
		t.Fatal(err)
	}
	e = detector.NewEngine(set)
	if err := e.Restore(data, at(6*time.Second)); err != nil {
		t.Fatal(err)
	}
	for i := 5000 - 4096; i < 5000; i++ {
		if ts := e.Observe(oom(time.Duration(i)*time.Millisecond, "/a"), at(6*time.Second)); len(ts) > 0 {
			t.Fatalf("record %d came twice", i)
		}
	}
	if p := e.Problems(); len(p) != 1 || p[0].Count != 5000 {
		t.Errorf("have %+v, want one problem with 5000", p)
	}
}

func TestEvidence(t *testing.T) {
	e := detector.NewEngine(ruleSet(t, `
- {name: kill, events: [oomkill], reason: R, message: m}
- {name: sick, events: [oomkill], condition: Sick, reason: R, message: m, latched: true}
`))
	ev := oom(0, "/a")
	for i := range 10 {
		now := at(time.Duration(i) * time.Second)
		ev.BootTime, ev.Time = event.Duration(now.Boot), now.Wall
		ev.Task.PID = uint32(i)
		e.Observe(ev, now)
	}
	for _, p := range e.Problems() {
		var pids []uint32
		for _, ev := range p.Evidence {
			pids = append(pids, ev.Task.PID)
		}
		if want := []uint32{0, 7, 8, 9}; !slices.Equal(pids, want) {
			t.Errorf("%s: evidence %v, want the first and the latest three %v", p.Rule, pids, want)
		}
		if p.Count != 10 || !p.FirstSeen.Equal(epoch) || !p.LastSeen.Equal(at(9*time.Second).Wall) {
			t.Errorf("%s: count %d from %v to %v", p.Rule, p.Count, p.FirstSeen, p.LastSeen)
		}
	}
}

func TestGroupsAreBounded(t *testing.T) {
	e := detector.NewEngine(ruleSet(t, `
- {name: kill, events: [oomkill], groupBy: [cgroup.path], reason: R, message: m, maxGroups: 3, clearAfter: 1m}
`))
	e.Observe(oom(0, "/old"), at(0))
	e.Tick(at(time.Minute)) // resolved, and so evicted first
	for i := range 3 {
		d := 2*time.Minute + time.Duration(i)
		want(t, e.Observe(oom(d, fmt.Sprint("/", i)), at(d)), fmt.Sprintf("kill /%d firing", i))
	}
	for i := range 5 {
		d := 2*time.Minute + time.Second + time.Duration(i)
		want(t, e.Observe(oom(d, fmt.Sprint("/more", i)), at(d)), `kill \overflow firing`)
	}
	if n := e.Stats().Overflow["kill"]; n != 5 {
		t.Errorf("overflow %d, want 5", n)
	}
	var groups []string
	total := uint64(0)
	for _, p := range e.Problems() {
		groups = append(groups, p.Group)
		total += p.Count
	}
	if want := []string{"/0", "/1", "/2", detector.OverflowGroup}; !slices.Equal(groups, want) || total != 8 {
		t.Errorf("groups %v with %d events, want %v with 8", groups, total, want)
	}
}

// A lower maxGroups drops no problem that already fires, by a restart as by a reload.
func TestLowerMaxGroupsKeepsProblems(t *testing.T) {
	const rule = "\n- {name: kill, events: [oomkill], groupBy: [cgroup.path], reason: R, message: m, clearAfter: 1h, maxGroups: %d}\n"
	before, after := ruleSet(t, fmt.Sprintf(rule, 10)), ruleSet(t, fmt.Sprintf(rule, 2))
	e := detector.NewEngine(before)
	for i := range 5 {
		d := time.Duration(i)
		e.Observe(oom(d, fmt.Sprint("/", i)), at(d))
	}
	data, err := e.Snapshot()
	if err != nil {
		t.Fatal(err)
	}
	restarted := detector.NewEngine(after)
	if err := restarted.Restore(data, at(time.Second)); err != nil {
		t.Fatal(err)
	}
	want(t, e.Replace(after, at(time.Second)))
	for name, e := range map[string]*detector.Engine{"restart": restarted, "reload": e} {
		if n := len(e.Problems()); n != 5 {
			t.Errorf("%s: %d problems, want 5", name, n)
		}
		want(t, e.Observe(oom(2*time.Second, "/new"), at(2*time.Second)), `kill \overflow firing`)
	}
}

func TestGroupNamesAreUnambiguous(t *testing.T) {
	e := detector.NewEngine(ruleSet(t, `
- {name: kill, events: [oomkill], groupBy: [task.comm, cgroup.path], reason: R, message: m}
`))
	long := strings.Repeat("x", 500)
	seen := make(map[string]bool)
	for i, parts := range [][2]string{{"a", "b"}, {"a, b", ""}, {"", "a, b"}, {`a\`, "b"}, {`\overflow`, ""}, {"a\x1b", ""}, {`a\x1b`, ""}, {long + "1", ""}, {long + "2", ""}} {
		ev := oom(time.Duration(i), parts[1])
		ev.Task.Comm = parts[0]
		g := e.Observe(ev, at(0))[0].Problem.Group
		if seen[g] || strings.ContainsRune(g, 0x1b) || g == detector.OverflowGroup || len(g) > 300 {
			t.Errorf("%q gives group %q", parts, g)
		}
		seen[g] = true
	}
}

func TestDependsOn(t *testing.T) {
	e := detector.NewEngine(ruleSet(t, `
- {name: cause, events: [diskio], condition: Sick, reason: Cause, message: disk, clearAfter: 1m}
- {name: effect, events: [oomkill], condition: Ill, reason: Effect, message: oom, clearAfter: 10m, dependsOn: [cause]}
- {name: told, events: [oomkill], reason: Told, message: oom, dependsOn: [cause]}
`))
	disk := func(d time.Duration) *event.Event {
		return &event.Event{Kind: event.DiskIO, Time: at(d).Wall, BootTime: event.Duration(time.Hour + d), DiskIO: &event.DiskIOData{}}
	}
	e.Observe(source("diskio", true), at(0))
	e.Observe(source("oomkill", true), at(0))
	want(t, e.Observe(oom(0, "/"), at(0)), "effect  firing", "told  firing", "Ill=True Effect")
	// The cause is detected after its effect: the effect is hidden, and its
	// condition reports that instead of claiming health.
	want(t, e.Observe(disk(time.Second), at(time.Second)),
		"cause  firing", "effect  firing by cause", "Ill=False SuppressedByCause", "Sick=True Cause")
	want(t, e.Observe(oom(2*time.Second, "/"), at(2*time.Second)), "told  firing by cause")
	// The cause ends but the effect doesn't, so it becomes visible.
	want(t, e.Tick(at(2*time.Minute)), "cause  resolved", "effect  firing", "Ill=True Effect", "Sick=False Well")
}

func TestOneFaultFromTwoSources(t *testing.T) {
	e := detector.NewEngine(ruleSet(t, `
- {name: by-probe, fault: f, events: [oomkill], when: event.source == "bpf", condition: Sick, reason: R, message: probe, latched: true}
- {name: by-log, fault: f, events: [oomkill], when: event.source == "log", condition: Sick, reason: R, message: log, latched: true}
- {name: told-by-probe, fault: f, events: [oomkill], when: event.source == "bpf", reason: R, message: probe}
- {name: told-by-log, fault: f, events: [oomkill], when: event.source == "log", reason: R, message: log}
`))
	from := func(d time.Duration, source string) []problem.Transition {
		ev := oom(d, "/")
		ev.Source = source
		return e.Observe(ev, at(d))
	}
	want(t, from(0, "bpf"), "by-probe  firing", "told-by-probe  firing", "Sick=True R")
	want(t, from(time.Second, "log"))
	want(t, from(2*time.Second, "bpf"), "told-by-probe  firing")
	// Long after that, the log reports something that the probe missed.
	want(t, from(time.Minute, "log"), "told-by-probe  firing")
	if p := e.Problems(); len(p) != 2 {
		t.Errorf("%d problems, want one permanent and one temporary", len(p))
	}
}

func TestPermanentCountsWithoutTransitions(t *testing.T) {
	e := detector.NewEngine(ruleSet(t, `
- {name: sick, events: [oomkill], condition: Sick, reason: R, message: "${task.pid}", clearAfter: 1m}
`))
	e.Observe(source("oomkill", true), at(0))
	want(t, e.Observe(oom(0, "/"), at(0)), "sick  firing", "Sick=True R")
	for i := range 50 {
		d := time.Duration(i+1) * 30 * time.Second
		ev := oom(d, "/")
		ev.Task.PID = uint32(100 + i)
		want(t, e.Observe(ev, at(d)))
	}
	if c := e.Conditions()[1]; c.Message != "7" {
		t.Errorf("message %q ticks, want that of the first event", c.Message)
	}
	want(t, e.Tick(at(25*time.Minute+59*time.Second)))
	want(t, e.Tick(at(26*time.Minute)), "sick  resolved", "Sick=False Well")
	if d, ok := e.NextDeadline(); !ok || d != at(41*time.Minute) {
		t.Errorf("next deadline %v %v, want when the resolved problem is forgotten", d, ok)
	}
	e.Tick(at(41 * time.Minute))
	if len(e.Problems()) != 0 {
		t.Error("the resolved problem stays")
	}
}

// An event that represents several counts as many events, but as one distinct value.
func TestThresholdOfEventsRecordedTogether(t *testing.T) {
	const rule = "\n- {name: sick, events: [diskio], groupBy: [device.name], condition: Sick, reason: R, message: m, threshold: {count: 300, within: 5m%s}, clearAfter: 30m}\n"
	errors := func(d time.Duration, times uint64) *event.Event {
		ev := disk()
		ev.Time, ev.BootTime, ev.Times = at(d).Wall, event.Duration(at(d).Boot), times
		return ev
	}
	e := detector.NewEngine(ruleSet(t, fmt.Sprintf(rule, "")))
	e.Observe(source("diskio", true), at(0))
	want(t, e.Observe(errors(0, 5000), at(0)), "sick sda firing", "Sick=True R")

	e = detector.NewEngine(ruleSet(t, fmt.Sprintf(rule, "")))
	e.Observe(source("diskio", true), at(0))
	want(t, e.Observe(errors(0, 299), at(0)))
	want(t, e.Observe(errors(6*time.Minute, 150), at(6*time.Minute)))
	want(t, e.Observe(errors(7*time.Minute, 149), at(7*time.Minute)))
	want(t, e.Observe(errors(8*time.Minute, 1), at(8*time.Minute)), "sick sda firing", "Sick=True R")

	e = detector.NewEngine(ruleSet(t, fmt.Sprintf(rule, ", distinct: event.op")))
	want(t, e.Observe(errors(0, 5000), at(0)))
}

// Events that are read late, as after a restart, count with their own time.
func TestThresholdOfEventsReadLate(t *testing.T) {
	set := ruleSet(t, `
- {name: sick, events: [oomkill], condition: Sick, reason: R, message: m, threshold: {count: 3, within: 10m}, clearAfter: 30m}
`)
	minute := func(e *detector.Engine, of, now int) []problem.Transition {
		return e.Observe(oom(time.Duration(of)*time.Minute, "/"), at(time.Duration(now)*time.Minute))
	}
	e := detector.NewEngine(set)
	e.Observe(source("oomkill", true), at(0))
	want(t, minute(e, 1, 20))
	want(t, minute(e, 2, 20))
	want(t, minute(e, 3, 21), "sick  firing", "Sick=True R")
	want(t, e.Tick(at(33*time.Minute)), "sick  resolved", "Sick=False Well")

	// Some events were counted before the agent was down.
	e = detector.NewEngine(set)
	minute(e, 1, 1)
	minute(e, 2, 2)
	e = restarted(t, e, set, 20*time.Minute)
	e.Observe(source("oomkill", true), at(20*time.Minute))
	want(t, minute(e, 3, 20), "sick  firing", "Sick=True R")

	// Events too far apart don't reach the threshold, and the problem is forgotten.
	e = detector.NewEngine(set)
	minute(e, 1, 30)
	minute(e, 5, 30)
	want(t, minute(e, 12, 30))
	e.Tick(at(40*time.Minute - 1))
	if n := len(e.Problems()); n != 1 {
		t.Errorf("%d problems before the period is over", n)
	}
	e.Tick(at(40 * time.Minute))
	if n := len(e.Problems()); n != 0 {
		t.Errorf("%d problems after the period", n)
	}
}

// A signal lasts until its end is reported or its source is down, however quiet it is meanwhile.
func TestForOfATemporaryRule(t *testing.T) {
	set := ruleSet(t, `
- {name: told, events: [mount.readonly], groupBy: [device.name], reason: R, message: m, for: 10m, clearWhen: event.kind == "mount.writable"}
`)
	begin := func() *detector.Engine {
		e := detector.NewEngine(set)
		e.Observe(source("mount", true), at(0))
		want(t, e.Observe(readOnly(0, "sda"), at(0)))
		want(t, e.Tick(at(9*time.Minute)))
		return e
	}
	e := begin()
	want(t, e.Tick(at(10*time.Minute)), "told sda firing")
	want(t, e.Tick(at(15*time.Minute-1)))
	want(t, e.Tick(at(15*time.Minute)), "told sda resolved")

	e = begin()
	writable := readOnly(9*time.Minute, "sda")
	writable.Kind = event.MountWritable
	want(t, e.Observe(writable, at(9*time.Minute)))
	want(t, e.Tick(at(10*time.Minute)))

	e = restarted(t, begin(), set, 9*time.Minute)
	e.Observe(source("mount", true), at(9*time.Minute))
	want(t, e.Tick(at(10*time.Minute)))
	want(t, e.Observe(readOnly(11*time.Minute, "sda"), at(11*time.Minute)))
	want(t, e.Tick(at(21*time.Minute)), "told sda firing")

	e = begin()
	e.Observe(source("mount", false), at(9*time.Minute))
	want(t, e.Tick(at(10*time.Minute)))
}

func TestLatched(t *testing.T) {
	e := detector.NewEngine(ruleSet(t, `
- {name: sick, events: [oomkill], condition: Sick, reason: R, message: m, latched: true}
`))
	e.Observe(oom(0, "/"), at(0))
	if _, ok := e.NextDeadline(); ok {
		t.Error("a latched problem has a deadline")
	}
	want(t, e.Tick(at(1000*time.Hour)))
}

func TestReplace(t *testing.T) {
	const kept = `
- {name: kept, events: [oomkill], condition: Sick, reason: R, message: m, clearAfter: 1h}
`
	e := detector.NewEngine(ruleSet(t, kept+`
- {name: gone, events: [oomkill], reason: R, message: m}
- {name: changed, events: [oomkill], groupBy: [task.pid], condition: Ill, reason: R, message: m, latched: true}
- {name: counting, events: [oomkill], reason: R, message: m, threshold: {count: 3, within: 1h}}
`))
	e.Observe(source("oomkill", true), at(0))
	e.Observe(oom(0, "/"), at(0))
	want(t, e.Replace(ruleSet(t, kept+`
- {name: changed, events: [oomkill], groupBy: [task.comm], condition: Ill, reason: R, message: m, latched: true}
- {name: counting, events: [oomkill], reason: R, message: m, threshold: {count: 2, within: 1h}}
- {name: new, events: [oomkill], reason: R, message: m}
`), at(time.Second)), "gone  resolved", "changed 7 resolved", "Ill=False Well")
	if p := e.Problems(); len(p) != 2 || p[1].Rule != "kept" || p[1].State != problem.Firing {
		t.Errorf("have %+v, want kept firing and counting pending", p)
	}
	want(t, e.Observe(oom(2*time.Second, "/"), at(2*time.Second)),
		"changed victim firing", "counting  firing", "new  firing", "Ill=True R")
	want(t, e.Tick(at(time.Hour+2*time.Second)), "counting  resolved", "new  resolved", "kept  resolved", "Sick=False Well")
}

// A reload that hides or reveals a permanent problem announces it. Temporary problems are announced
// with their next occurrence.
func TestReplaceHidesAndReveals(t *testing.T) {
	const problems = `
- {name: cause, events: [oomkill], condition: Sick, reason: R, message: m, clearAfter: 1h}
- {name: effect, fault: f, events: [oomkill], groupBy: [cgroup.path], condition: Ill, reason: R, message: m, clearAfter: 1h%s}
- {name: told, events: [oomkill], reason: R, message: m%s}
`
	const effects = ", dependsOn: [cause]"
	apart, dependent := ruleSet(t, fmt.Sprintf(problems, "", "")), ruleSet(t, fmt.Sprintf(problems, effects, effects))
	e := detector.NewEngine(dependent)
	e.Observe(source("oomkill", true), at(0))
	want(t, e.Observe(oom(1, "/a"), at(1)), "cause  firing", "effect /a firing by cause", "told  firing by cause", "Ill=False SuppressedByCause", "Sick=True R")
	want(t, e.Replace(apart, at(2)), "effect /a firing", "Ill=True R")
	want(t, e.Replace(apart, at(3)))
	want(t, e.Observe(oom(4, "/a"), at(4)), "told  firing")
	want(t, e.Replace(dependent, at(5)), "effect /a firing by cause", "Ill=False SuppressedByCause")
	want(t, e.Observe(oom(6, "/a"), at(6)), "told  firing by cause")

	// The cause's rule is removed, and a rule with a muted fault is added.
	want(t, e.SetMutes([]problem.Mute{muteOf("log", time.Hour, "match.c", "/a")}, at(7)), "mute of log")
	const alone = `
- {name: effect, fault: f, events: [oomkill], groupBy: [cgroup.path], condition: Ill, reason: R, message: m, clearAfter: 1h}
`
	want(t, e.Replace(ruleSet(t, alone), at(8)), "cause  resolved", "told  resolved by cause", "effect /a firing", "Ill=True R", "Sick=Unknown NoRule")
	want(t, e.Replace(ruleSet(t, alone+`
- {name: log, fault: f, events: [log], pattern: 'kill in (?P<c>\S+)', groupBy: [match.c], condition: Ill, reason: R, message: m, clearAfter: 1h}
`), at(9)), "effect /a firing muted", "Ill=False Muted")
	want(t, e.Replace(ruleSet(t, alone), at(10)), "effect /a firing", "Ill=True R")
}

// A pending problem does not wait forever if a reload removes the rule's "for".
func TestReplaceWithoutFor(t *testing.T) {
	const rule = "\n- {name: r, events: [gauge], when: gauge.name == \"files\" && gauge.percent >= 90, clearWhen: gauge.percent < 80, condition: Sick, reason: R, message: m%s}\n"
	e := detector.NewEngine(ruleSet(t, fmt.Sprintf(rule, ", for: 2m")))
	e.Observe(gauge(0, "files", 95, ""), at(0))
	want(t, e.Replace(ruleSet(t, fmt.Sprintf(rule, "")), at(time.Second)))
	want(t, e.Tick(at(2*time.Minute)), "r  firing", "Sick=True R")
}

// A reload that changes a rule's texts keeps its problem, which uses the new texts
// from the next event on.
func TestReplaceChangesWords(t *testing.T) {
	e := detector.NewEngine(ruleSet(t, "\n- {name: r, events: [oomkill], reason: Old, message: m, severity: info}\n"))
	e.Observe(oom(0, "/"), at(0))
	want(t, e.Replace(ruleSet(t, "\n- {name: r, events: [oomkill], reason: New, message: n, severity: critical}\n"), at(time.Second)))
	out := e.Observe(oom(2*time.Second, "/"), at(2*time.Second))
	if len(out) != 1 || out[0].Problem == nil {
		t.Fatalf("transitions %+v, want one", out)
	}
	if p := out[0].Problem; p.Reason != "New" || p.Message != "n" || p.Severity != problem.Critical || p.Count != 2 {
		t.Errorf("problem %+v, want the second occurrence in the new words", p)
	}
}

func TestSnapshotIsExact(t *testing.T) {
	set := ruleSet(t, `
- {name: sick, events: [oomkill], groupBy: [cgroup.path], condition: Sick, reason: R, message: m, clearAfter: 1h}
- {name: counting, events: [oomkill], reason: R, message: m, threshold: {count: 3, within: 1h}}
- {name: told, events: [oomkill], reason: R, message: m}
`)
	e := detector.NewEngine(set)
	e.Observe(oom(0, "/a"), at(0))
	e.Observe(oom(1, "/b"), at(1))
	data, err := e.Snapshot()
	if err != nil {
		t.Fatal(err)
	}
	r := detector.NewEngine(set)
	if err := r.Restore(data, at(2)); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(e.Problems(), r.Problems(), cmp.Exporter(func(reflect.Type) bool { return true })); diff != "" {
		t.Errorf("problems (-before +after):\n%s", diff)
	}
	if !reflect.DeepEqual(e.Conditions(), r.Conditions()) {
		t.Errorf("conditions %v, want %v", r.Conditions(), e.Conditions())
	}
	// The window continues where it was.
	want(t, r.Observe(oom(3, "/a"), at(3)), "counting  firing", "told  firing")
	// Another rule set drops problems of unknown rules.
	r = detector.NewEngine(ruleSet(t, `
- {name: told, fault: other, events: [oomkill], reason: R, message: m}
`))
	if err := r.Restore(data, at(2)); err != nil || len(r.Problems()) != 0 {
		t.Errorf("have %v and %v, want no problem", r.Problems(), err)
	}
	for _, bad := range []string{"", "{", "[]", `{"version":1}`, `{"version":1,"seen":"!"}`} {
		if err := r.Restore([]byte(bad), at(2)); err == nil {
			t.Errorf("no error for %q", bad)
		}
	}
}

func TestReplayWithRestarted(t *testing.T) {
	set := ruleSet(t, `
- {name: sick, events: [oomkill], condition: Sick, reason: R, message: m, clearAfter: 1h}
`)
	e := detector.NewEngine(set)
	e.Observe(source("oomkill", true), at(0))
	e.Observe(oom(0, "/"), at(0))
	e.Restarted(at(2 * time.Hour))
	if c := e.Conditions()[1]; c.Status != problem.True {
		t.Errorf("condition %+v, want True: nobody heard that it is quiet", c)
	}
	want(t, e.Tick(at(2*time.Hour+59*time.Minute)))
	want(t, e.Tick(at(3*time.Hour)), "sick  resolved", "Sick=Unknown SourceNotStarted")
}

func TestOddTimesAndEvents(t *testing.T) {
	e := detector.NewEngine(ruleSet(t, `
- {name: told, events: [oomkill], reason: R, message: "${event.limit} ${task.comm}"}
`))
	e.Tick(at(time.Hour))
	want(t, e.Observe(&event.Event{Kind: event.OOMKill}, at(0)), "told  firing")
	future := oom(100*time.Hour, "/")
	want(t, e.Observe(future, at(0)), "told  firing")
	if p := e.Problems()[0]; p.LastSeen.After(epoch) {
		t.Errorf("last seen %v, want not after now", p.LastSeen)
	}
	want(t, e.Observe(nil, at(0)))
	want(t, e.Observe(&event.Event{Kind: "unheard.of"}, at(0)))
	want(t, e.Observe(&event.Event{Kind: event.Source}, at(0)))
	want(t, e.Observe(&event.Event{Kind: event.Lost}, at(0)))
}

func TestEvaluationErrors(t *testing.T) {
	e := detector.NewEngine(ruleSet(t, `
- {name: broken, events: [hungtask], when: event.holder.value() == "x", reason: R, message: m}
- {name: text, events: [hungtask], reason: R, message: "held by ${event.holder.value()}"}
`))
	ts := e.Observe(&event.Event{Kind: event.HungTask, HungTask: &event.HungTaskData{}}, at(0))
	want(t, ts, "text  firing")
	if m := ts[0].Problem.Message; m != "held by ?" {
		t.Errorf("message %q, want the failed part as ?", m)
	}
	if s := e.Stats(); s.EvalErrors["broken"] != 1 || s.EvalErrors["text"] != 1 {
		t.Errorf("errors %v, want one each", s.EvalErrors)
	}
}

func TestMessageIsBoundedAndSafe(t *testing.T) {
	e := detector.NewEngine(ruleSet(t, `
- {name: told, events: [oomkill], reason: R, message: "${cgroup.path}|${task.comm}"}
`))
	ev := oom(0, strings.Repeat("é", 2000))
	if m := e.Observe(ev, at(0))[0].Problem.Message; len(m) > detector.MaxMessage {
		t.Errorf("message has %d bytes, want at most %d", len(m), detector.MaxMessage)
	}
	for i, s := range []string{"\xa9", "\u202e", "é\x01", "\U000e0001x"} {
		for pad := range 12 {
			ev := oom(time.Duration(100+20*i+pad), strings.Repeat("a", pad)+strings.Repeat(s, 600))
			m := e.Observe(ev, at(0))[0].Problem.Message
			if len(m) > detector.MaxMessage || len(m) < detector.MaxMessage-16 || !utf8.ValidString(m) || !strings.HasSuffix(m, "…") {
				t.Errorf("%q: message of %d bytes ends in %q", s, len(m), m[len(m)-16:])
			}
			if end := strings.TrimSuffix(m, "…"); strings.HasSuffix(end, `\`) || strings.HasSuffix(end, `\x`) {
				t.Errorf("%q: cut in an escape: %q", s, m[len(m)-16:])
			}
		}
	}
	ev = oom(1, "/\x1b[31m\u202e")
	if m := e.Observe(ev, at(0))[0].Problem.Message; strings.ContainsAny(m, "\x1b\u202e") {
		t.Errorf("message %q holds control characters", m)
	}
}
