package detector_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/kernosis/kernosis/collector/event"
	"github.com/kernosis/kernosis/detector"
	"github.com/kernosis/kernosis/detector/problem"
)

func muteOf(rule string, until time.Duration, where ...string) problem.Mute {
	m := problem.Mute{Rule: rule, Until: at(until).Wall, Reason: "known"}
	for i := 0; i < len(where); i += 2 {
		if m.Where == nil {
			m.Where = make(map[string]string)
		}
		m.Where[where[i]] = where[i+1]
	}
	return m
}

const muteRules = `
- {name: told, events: [oomkill], groupBy: [cgroup.path], reason: R, message: m, clearAfter: 1h}
- {name: sick, events: [oomkill], groupBy: [task.uid, cgroup.path], condition: Sick, reason: Bad, message: "in ${cgroup.path}", clearAfter: 1h}
- {name: effect, events: [oomkill], when: cgroup.path == "/z", condition: Ill, reason: R, message: m, clearAfter: 1h, dependsOn: [sick]}
`

func TestMute(t *testing.T) {
	e := detector.NewEngine(ruleSet(t, muteRules))
	e.Observe(source("oomkill", true), at(0))
	want(t, e.Observe(oom(1, "/a"), at(1)), "told /a firing", "sick 0, /a firing", "Sick=True Bad")

	mutes := []problem.Mute{muteOf("sick", 10*time.Minute, "cgroup.path", "/a"), muteOf("told", 5*time.Minute, "cgroup.path", "/a"), muteOf("told", -1)}
	want(t, e.SetMutes(mutes, at(time.Minute)), "mute of sick", "mute of told", "sick 0, /a firing muted", "Sick=False Muted")
	want(t, e.SetMutes(mutes, at(time.Minute))) // the same mutes again change nothing
	c := e.Conditions()[1]
	if want := "rule sick is muted until 2026-01-01T00:10:00Z, its problem continues: in /a"; c.Message != want {
		t.Errorf("condition says %q, want %q", c.Message, want)
	}
	// The problem continues: it is counted, reported as muted, and hides its effects.
	want(t, e.Observe(oom(2, "/a"), at(2*time.Minute)), "told /a firing muted")
	want(t, e.Observe(oom(3, "/z"), at(2*time.Minute)), "told /z firing", "sick 0, /z firing", "effect  firing by sick", "Ill=False SuppressedByCause", "Sick=True Bad")
	if p := e.Problems()[1]; p.Rule != "sick" || p.Count != 2 {
		t.Errorf("have %s ×%d, want sick ×2", p.Rule, p.Count)
	}
	// The mute expires. A temporary problem is announced when it occurs again.
	if d, ok := e.NextDeadline(); !ok || d != at(5*time.Minute) {
		t.Errorf("next deadline is %v", d)
	}
	want(t, e.Tick(at(5*time.Minute)), "mute of told over")
	want(t, e.Observe(oom(4, "/a"), at(6*time.Minute)), "told /a firing")
	ts := e.Tick(at(10 * time.Minute))
	want(t, ts, "mute of sick over", "sick 0, /a firing", "Sick=True Bad")
	if !ts[0].Mute.Until.Equal(at(10*time.Minute).Wall) || ts[0].Mute.Reason != "known" {
		t.Errorf("have %+v", ts[0].Mute)
	}
	if !ts[1].Again {
		t.Error("a problem that a mute hid is reported as a new one")
	}
}

// TestMuteTakenBack checks that a mute that was removed from the file ends at once, and
// that the condition reports a changed end.
func TestMuteTakenBack(t *testing.T) {
	e := detector.NewEngine(ruleSet(t, muteRules))
	e.Observe(source("oomkill", true), at(0))
	want(t, e.SetMutes([]problem.Mute{muteOf("sick", time.Hour), muteOf("gone", time.Hour)}, at(0)), "mute of gone", "mute of sick")
	want(t, e.Observe(oom(1, "/a"), at(1)), "told /a firing", "sick 0, /a firing muted", "Sick=False Muted")
	want(t, e.SetMutes([]problem.Mute{muteOf("sick", 2*time.Hour)}, at(2)), "mute of gone over", "mute of sick over", "mute of sick", "Sick=False Muted")
	want(t, e.SetMutes(nil, at(3)), "mute of sick over", "sick 0, /a firing", "Sick=True Bad")
}

// TestMuteGroups checks that a mute applies only to the groups that match its values.
func TestMuteGroups(t *testing.T) {
	for _, c := range []struct {
		mute  problem.Mute
		path  string
		muted bool
	}{
		{muteOf("sick", time.Hour), "/a", true},
		{muteOf("sick", time.Hour, "task.uid", "0"), "/a", true},
		{muteOf("sick", time.Hour, "task.uid", "1"), "/a", false},
		{muteOf("sick", time.Hour, "task.uid", "0", "cgroup.path", "/a"), "/a", true},
		{muteOf("sick", time.Hour, "cgroup.path", "/a"), "/a, b", false},
		{muteOf("sick", time.Hour, "cgroup.path", `/a, b\`), `/a, b\`, true},
		{muteOf("sick", time.Hour, "cgroup.path", "/ü\n"), "/ü\n", true},
		{muteOf("sick", time.Hour, "cgroup.path", ""), "", true},
		{muteOf("sick", time.Hour, "cgroup.path", ""), "/a", false},
		{muteOf("sick", time.Hour, "device.name", ""), "/a", false},
		{muteOf("told", time.Hour), "/a", false},
		{muteOf("sick", time.Hour, "cgroup.path", "/a*"), "/a/b", true},
		{muteOf("sick", time.Hour, "cgroup.path", "/a*"), "/b/a", false},
		{muteOf("sick", time.Hour, "cgroup.path", "*/b*, c"), "/a/b/b, c", true},
		{muteOf("sick", time.Hour, "cgroup.path", "*b*b"), "/ab", false},
		{muteOf("sick", time.Hour, "cgroup.path", "*"), "", true},
		{muteOf("sick", time.Hour, "cgroup.path", "/*"), "/*", true},
	} {
		e := detector.NewEngine(ruleSet(t, muteRules))
		e.SetMutes([]problem.Mute{c.mute}, at(0))
		e.Observe(oom(1, c.path), at(1))
		p := e.Problems()[0]
		if p.Rule != "sick" || p.MutedUntil.IsZero() == c.muted {
			t.Errorf("%+v, cgroup %q: %s [%s] muted until %v", c.mute, c.path, p.Rule, p.Group, p.MutedUntil)
		}
	}
}

// TestMuteOfAFault checks that a problem is muted whichever of its sources reports first.
func TestMuteOfAFault(t *testing.T) {
	e := detector.NewEngine(ruleSet(t, `
- {name: seen, fault: f, events: [oomkill], groupBy: [cgroup.path], condition: Sick, reason: R, message: m, clearAfter: 1h}
- {name: heard, fault: f, events: [log], pattern: 'kill in (?P<c>\S+)', groupBy: [match.c], condition: Sick, reason: R, message: m, clearAfter: 1h}
`))
	e.SetMutes([]problem.Mute{muteOf("seen", time.Hour, "cgroup.path", "/a")}, at(0))
	want(t, e.Observe(logged(1, "kill in /a"), at(1)), "heard /a firing muted")
	want(t, e.Observe(logged(2, "kill in /b"), at(2)), "heard /b firing", "Sick=True R")
}

// TestMutesChangeNothingElse runs random events through two engines. One of them has
// changing mutes, and is saved and restored now and then. Apart from the announcements,
// both must always have the same problems, and no mute may be forgotten, repeated, or
// last too long.
func TestMutesChangeNothingElse(t *testing.T) {
	set := ruleSet(t, propertyRules)
	for seed := range uint64(4) {
		r := rand.New(rand.NewPCG(seed, 3))
		plain, muted := detector.NewEngine(set), detector.NewEngine(set)
		var inForce []problem.Mute // according to the transitions
		take := func(ts []problem.Transition, now event.Moment) {
			for _, tr := range ts {
				m := tr.Mute
				if m == nil {
					continue
				}
				i := slices.IndexFunc(inForce, func(o problem.Mute) bool { return o.Equal(&m.Mute) })
				switch {
				case m.Over && i < 0, !m.Over && (i >= 0 || !m.Until.After(now.Wall)):
					t.Fatalf("seed %d: reported %+v with %+v in force", seed, m, inForce)
				case m.Over:
					inForce = slices.Delete(inForce, i, i+1)
				default:
					inForce = append(inForce, m.Mute)
				}
			}
		}
		now := at(0)
		for range 200 {
			now = now.Add(time.Duration(r.IntN(2000)) * time.Millisecond)
			switch r.IntN(8) {
			case 0:
				var list []problem.Mute
				for range r.IntN(3) {
					until := now.Wall.Sub(epoch) + time.Duration(r.IntN(60)-5)*time.Second
					list = append(list, []problem.Mute{muteOf("sick", until, "cgroup.path", fmt.Sprint("/", r.IntN(9))),
						muteOf("ill", until), muteOf("told", until), muteOf("bad", until, "task.pid", strconv.Itoa(r.IntN(4)))}[r.IntN(4)])
				}
				plain.Tick(now)
				take(muted.SetMutes(list, now), now)
			case 1:
				for _, e := range []**detector.Engine{&plain, &muted} {
					data, err := (*e).Snapshot()
					if err != nil {
						t.Fatal(err)
					}
					*e = detector.NewEngine(set)
					if err := (*e).Restore(data, now); err != nil {
						t.Fatal(err)
					}
				}
			case 2:
				plain.Tick(now)
				take(muted.Tick(now), now)
			default:
				ev := randomEvent(r, now, nil)
				plain.Observe(ev, now)
				take(muted.Observe(ev, now), now)
			}
			have := muted.Problems()
			for i := range have {
				p := &have[i]
				var until time.Time
				for _, m := range inForce {
					if m.Rule == p.Rule && (len(m.Where) == 0 || m.Where["cgroup.path"] == p.Group || m.Where["task.pid"] == p.Group) && m.Until.After(until) {
						until = m.Until
					}
				}
				if p.State != problem.Pending && !p.MutedUntil.Equal(until) {
					t.Fatalf("seed %d: %s [%s] %s is muted until %v, want %v", seed, p.Rule, p.Group, p.State, p.MutedUntil, until)
				}
				p.MutedUntil = time.Time{}
			}
			if diff := cmp.Diff(plain.Problems(), have); diff != "" {
				t.Fatalf("seed %d: mutes changed problems (-without +with):\n%s", seed, diff)
			}
			for i, c := range muted.Conditions() {
				without := plain.Conditions()[i]
				if c.Status == problem.True && without.Status != problem.True || c.Reason == "Well" && without.Reason != "Well" {
					t.Fatalf("seed %d: condition is %+v, without mutes %+v", seed, c, without)
				}
			}
		}
		muted.Tick(now.Add(time.Minute))
		if len(muted.Mutes()) != 0 {
			t.Errorf("seed %d: mutes did not end: %v", seed, muted.Mutes())
		}
	}
}

func TestParseMutes(t *testing.T) {
	set := ruleSet(t, muteRules)
	have, unknown, err := detector.ParseMutes("m.yaml", []byte(`apiVersion: rules.kernosis.io/v1
mutes:
- rule: sick
  where: {task.uid: 0x10, cgroup.path: /a}
  until: 2026-01-01T01:00:00+01:00
  reason: the disk is replaced
- {rule: told, until: "2026-01-01T00:00:00Z", reason: "x\e[31m"}
`), set)
	if err != nil || len(unknown) > 0 {
		t.Fatal(err, unknown)
	}
	want := []problem.Mute{
		{Rule: "sick", Where: map[string]string{"task.uid": "16", "cgroup.path": "/a"}, Until: epoch, Reason: "the disk is replaced"},
		{Rule: "told", Until: epoch, Reason: `x\x1b[31m`},
	}
	if diff := cmp.Diff(want, have); diff != "" {
		t.Errorf("(-want +have):\n%s", diff)
	}
	_, _, err = detector.ParseMutes("m.yaml", []byte(`apiVersion: rules.kernosis.io/v1
mutes:
- {rule: sik, until: tomorrow, reason: ""}
- {rule: told, wher: {}, where: {cgroup.pat: /a, cgroup.path: [x]}, until: 2026-01-01, reason: 1}
- {rule: sick, where: {task.uid: root}, until: 2026-01-01T00:00:00Z}
- {where: {}}
- {rule: sick, until: 9999-12-31T23:59:59-23:59, reason: r}
`), set)
	if diff := cmp.Diff(`m.yaml:3:22: mutes[0].until: want a time with its zone such as 2026-03-01T18:00:00Z, have "tomorrow"
m.yaml:3:40: mutes[0].reason: is empty: want the reason for the mute, which is shown with it
m.yaml:4:16: mutes[1]: unknown key "wher", did you mean "where"?
m.yaml:4:63: mutes[1].where.cgroup.path: want text, a number or a boolean
m.yaml:4:76: mutes[1].until: want a time with its zone such as 2026-03-01T18:00:00Z, have "2026-01-01"
m.yaml:4:96: mutes[1].reason: want text, have the number 1
m.yaml:5:3: mutes[2]: reason is missing
m.yaml:5:34: mutes[2].where.task.uid: want a number, have "root"
m.yaml:6:3: mutes[3]: rule is missing
m.yaml:6:3: mutes[3]: until is missing
m.yaml:6:3: mutes[3]: reason is missing
m.yaml:6:11: mutes[3].where: is empty: omit it to mute all problems of the rule
m.yaml:7:23: mutes[4].until: is after the year 9999`, err.Error()); diff != "" {
		t.Errorf("(-want +have):\n%s", diff)
	}
}

// Rules and fields that are not in force are not mistakes of the file.
func TestParseMutesOfUnknownRules(t *testing.T) {
	have, unknown, err := detector.ParseMutes("m.yaml", []byte(`apiVersion: rules.kernosis.io/v1
mutes:
- {rule: gone, where: {task.uid: 0x10}, until: 2026-01-01T00:00:00Z, reason: r}
- {rule: told, where: {cgroup.pat: /a}, until: 2026-01-01T00:00:00Z, reason: r}
- {rule: told, where: {cgroup.path: /a}, until: 2026-01-01T00:00:00Z, reason: r}
`), ruleSet(t, muteRules))
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]problem.Mute{
		{Rule: "gone", Where: map[string]string{"task.uid": "0x10"}, Until: epoch, Reason: "r"},
		{Rule: "told", Where: map[string]string{"cgroup.pat": "/a"}, Until: epoch, Reason: "r"},
		{Rule: "told", Where: map[string]string{"cgroup.path": "/a"}, Until: epoch, Reason: "r"},
	}, have); diff != "" {
		t.Errorf("(-want +have):\n%s", diff)
	}
	if diff := cmp.Diff(`m.yaml:3:10: mutes[0].rule: unknown rule "gone"
m.yaml:4:24: mutes[1].where.cgroup.pat: rule told has no such field in its groupBy (it has cgroup.path), did you mean "cgroup.path"?`, unknown.Error()); diff != "" {
		t.Errorf("(-want +have):\n%s", diff)
	}
}

// FuzzMutes: no file of mutes makes the reader or the engine panic, and a mute
// is the same after a snapshot.
func FuzzMutes(f *testing.F) {
	set := ruleSet(f, muteRules)
	f.Add([]byte("apiVersion: rules.kernosis.io/v1\nmutes:\n- {rule: sick, where: {task.uid: 0, cgroup.path: /a}, until: 2026-01-01T01:00:00Z, reason: r}\n"))
	f.Add([]byte("apiVersion: rules.kernosis.io/v1\nmutes:\n- {rule: told, where: {cgroup.path: \"\\e\\\\, \"}, until: 2026-01-01T01:00:00Z, reason: r}\n- {rule: told, until: 9999-12-31T23:59:59-23:59, reason: \"\\u202e\"}\n"))
	f.Add([]byte("apiVersion: rules.kernosis.io/v1\nmutes: {}\n"))
	f.Fuzz(func(t *testing.T, data []byte) {
		mutes, unknown, err := detector.ParseMutes("m", data, set)
		harmless(t, unknown)
		if err != nil {
			harmless(t, err)
			return
		}
		e := detector.NewEngine(set)
		e.SetMutes(mutes, at(0))
		e.Observe(oom(1, "/a"), at(1))
		snapshot, err := e.Snapshot()
		if err != nil {
			t.Fatal(err)
		}
		again := detector.NewEngine(set)
		if err := again.Restore(snapshot, at(1)); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(e.Problems(), again.Problems()); diff != "" {
			t.Errorf("(-before +after):\n%s", diff)
		}
		e.Tick(at(2 * time.Hour))
	})
}
