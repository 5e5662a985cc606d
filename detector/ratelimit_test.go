package detector_test

import (
	"fmt"
	"math/rand/v2"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/kernosis/kernosis/collector/event"
	"github.com/kernosis/kernosis/detector"
	"github.com/kernosis/kernosis/detector/problem"
)

const limitedRules = `
- {name: told, events: [log], logs: [app], pattern: '^error on (?P<disk>\w+)', clearPattern: '^(?P<disk>\w+) is well', groupBy: [match.disk], reason: AppError, message: "${match.disk}", clearAfter: 5m, rateLimit: {count: 10, within: 10m}}
- {name: kept, events: [log], logs: [app], pattern: '^error on (?P<disk>\w+)', groupBy: [match.disk], condition: Sick, reason: AppError, message: "${match.disk}", clearAfter: 5m, rateLimit: {count: 10, within: 10m}}
`

// appLine returns line n of an application's log.
func appLine(n int, d time.Duration, text string) *event.Event {
	return &event.Event{
		Kind: event.Log, Time: at(d).Wall, CPU: event.NoCPU, Source: "log/app",
		Log: &event.LogData{Log: "app", Seq: uint64(n), Text: text},
	}
}

// recorder handles events like the agent: it records those that are admitted or released.
type recorder struct {
	e        *detector.Engine
	recorded []*event.Event
	times    []time.Duration // of recorded
	occurred uint64          // occurrences of the temporary rule "told", according to transitions
	lines    int
}

func (r *recorder) line(d time.Duration, text string) {
	r.lines++
	r.read(r.lines, d, text)
}

// read is like line, for a line that may have been read before.
func (r *recorder) read(n int, d time.Duration, text string) {
	r.take(appLine(n, d, text), d)
}

func (r *recorder) take(ev *event.Event, d time.Duration) {
	if r.e.Seen(ev) {
		return
	}
	for _, ev := range r.e.Admit(ev, at(d)) {
		r.observe(ev, d)
	}
}

func (r *recorder) observe(ev *event.Event, d time.Duration) {
	r.recorded, r.times = append(r.recorded, ev), append(r.times, d)
	for _, t := range r.e.Observe(ev, at(d)) {
		if t.Problem != nil && t.Problem.Rule == "told" && t.Problem.State == problem.Firing {
			r.occurred += t.Occurrences()
		}
	}
}

func (r *recorder) release(d time.Duration) {
	r.e.Tick(at(d))
	for _, ev := range r.e.Release(at(d)) {
		r.observe(ev, d)
	}
}

// count returns how often a rule's firing problems occurred.
func (r *recorder) count(rule string) (n uint64) {
	for _, p := range r.e.Problems() {
		if p.Rule == rule {
			n += p.Count
		}
	}
	return n
}

// A flood of one rule's lines is recorded in as many events as the limit allows, and these
// represent all of them.
func TestRateLimit(t *testing.T) {
	r := &recorder{e: detector.NewEngine(ruleSet(t, limitedRules))}
	r.e.Observe(source("log/app", true), at(0))
	for i := range 5000 {
		r.line(time.Duration(i)*10*time.Millisecond, "error on sda") // 50 s
	}
	if n := len(r.recorded); n != 10 {
		t.Fatalf("%d events recorded, want 10", n)
	}
	r.release(50 * time.Second)
	if n := len(r.recorded); n != 10 {
		t.Fatalf("%d events recorded before there was budget for one, want 10", n)
	}
	r.line(61*time.Second, "error on sda") // queued after the withheld ones
	r.release(61 * time.Second)
	if n := len(r.recorded); n != 11 || r.recorded[10].Times != 4991 {
		t.Fatalf("%d events recorded, the last is of %d; want 11, of 4991", n, r.recorded[n-1].Times)
	}
	if r.occurred != 5001 || r.count("told") != 5001 || r.count("kept") != 5001 {
		t.Errorf("transitions tell of %d, the problems of %d and %d; want 5001", r.occurred, r.count("told"), r.count("kept"))
	}
	if have := r.e.Stats().Limited; have["told"] != 4991 || have["kept"] != 4991 {
		t.Errorf("%v limited, want 4991 of each", have)
	}
	// The quiet time starts at the latest line, although it was withheld.
	want(t, r.e.Tick(at(6*time.Minute)))
	want(t, r.e.Tick(at(6*time.Minute+time.Second)), "kept sda resolved", "told sda resolved", "Sick=False Well")
}

// Events that begin, change or end a problem are not withheld.
func TestRateLimitLetsChangesPass(t *testing.T) {
	r := &recorder{e: detector.NewEngine(ruleSet(t, limitedRules))}
	r.e.Observe(source("log/app", true), at(0))
	for range 100 {
		r.line(time.Second, "error on sda")
	}
	r.line(2*time.Second, "error on sdb")  // a new problem
	r.line(3*time.Second, "sda is well")   // the end of one
	if n := len(r.recorded); n != 10+1+2 { // the end follows the withheld ones
		t.Fatalf("%d events recorded, want 13", n)
	}
	for _, p := range r.e.Problems() {
		if have := fmt.Sprint(p.Rule, " ", p.Group, " ", p.State); p.Rule == "told" && have != "told sda resolved" && have != "told sdb firing" {
			t.Error(have)
		}
	}
	// Changes beyond their own limit are lost, and the condition reports the loss: the first at once.
	for i := range 100 {
		r.line(4*time.Second, fmt.Sprint("error on sd", i))
	}
	if n := len(r.recorded); n != 10+1+1+10+1 { // the end used only the other rule's budget
		t.Fatalf("%d events recorded, want 23", n)
	}
	r.release(10 * time.Second)
	last := r.recorded[len(r.recorded)-1]
	if last.Lost == nil || last.Lost.Stem != "log/app" || last.Lost.Count != 90 || last.Lost.Reason != detector.LostToRateLimit {
		t.Fatalf("the last event is %+v, want the loss of 90", last.Lost)
	}
	if n := r.e.Stats().Limited["told"]; n != 90+91 {
		t.Errorf("%d limited, want 181", n)
	}
}

// clearedRules has a condition that only a line clears.
const clearedRules = `
- {name: told, events: [log], logs: [app], pattern: '^error on (?P<disk>\w+)', clearPattern: '^(?P<disk>\w+) is well', groupBy: [match.disk], reason: AppError, message: "${match.disk}", clearAfter: 5m, rateLimit: {count: 10, within: 10m}}
- {name: kept, events: [log], logs: [app], pattern: '^error on (?P<disk>\w+)', clearPattern: '^(?P<disk>\w+) is well', groupBy: [match.disk], condition: Sick, reason: AppError, message: "${match.disk}", rateLimit: {count: 10, within: 10m}}
`

// firing returns the firing problems.
func firing(e *detector.Engine) (out []string) {
	for _, p := range e.Problems() {
		if p.State == problem.Firing {
			out = append(out, p.Rule+" "+p.Group)
		}
	}
	return out
}

// Withheld events count in their problem before another line ends it.
func TestRateLimitOfAProblemThatEnds(t *testing.T) {
	r := &recorder{e: detector.NewEngine(ruleSet(t, clearedRules))}
	r.e.Observe(source("log/app", true), at(0))
	for range 100 {
		r.line(time.Second, "error on sda")
	}
	r.line(3*time.Second, "sda is well")
	r.release(2 * time.Minute)
	if have := firing(r.e); len(have) > 0 || conditionOf(r.e) != "False Well: all is well" {
		t.Errorf("%q fire, Sick is %s; want none, and False", have, conditionOf(r.e))
	}
	if r.count("told") != 100 || r.count("kept") != 100 || r.occurred != 100 {
		t.Errorf("%d and %d counted, %d reported; want 100", r.count("told"), r.count("kept"), r.occurred)
	}
}

// The same holds if another source ends the problem, if the events were withheld before a restart,
// and if the problem is part of the overflow group.
func TestRateLimitOfAProblemThatOthersEnd(t *testing.T) {
	const probe = "- {name: probe, fault: f, events: [check], when: event.status == 'problem', clearWhen: event.status == 'ok', groupBy: [event.check], condition: Sick, reason: R, message: m}\n"
	const line = "- {name: kept, fault: f, events: [log], logs: [app], pattern: '^error on (?P<disk>\\w+)', clearPattern: '^(?P<disk>\\w+) is well', groupBy: [match.disk], condition: Sick, reason: AppError, message: m, rateLimit: {count: 10, within: 10m}"
	end := func(r *recorder) { r.line(3*time.Second, "sda is well") }
	for name, c := range map[string]struct {
		rules  string
		before func(r *recorder)
		end    func(r *recorder)
		count  uint64
	}{
		"a check": {probe + line + "}\n", nil, func(r *recorder) { r.take(checked(3*time.Second, "sda", event.CheckOK, ""), 3*time.Second) }, 100},
		"a restart": {line + "}\n", func(r *recorder) {
			saved, err := r.e.Snapshot()
			if err != nil {
				t.Fatal(err)
			}
			r.e = restartedFrom(t, r.e.Rules(), saved, 2*time.Second)
			r.e.Observe(source("log/app", true), at(2*time.Second))
		}, end, 100},
		"no room": {line + ", maxGroups: 1}\n", nil, func(r *recorder) {
			end(r)
			r.line(4*time.Second, "sdz is well")
		}, 101},
	} {
		r := &recorder{e: detector.NewEngine(ruleSet(t, "\n"+c.rules))}
		r.e.Observe(source("log/app", true), at(0))
		r.e.Observe(source("check", true), at(0))
		if c.count > 100 {
			r.line(0, "error on sdz")
		}
		for range 100 {
			r.line(time.Second, "error on sda")
		}
		if c.before != nil {
			c.before(r)
		}
		c.end(r)
		r.release(2 * time.Minute)
		if have := firing(r.e); len(have) > 0 || conditionOf(r.e) != "False Well: all is well" {
			t.Errorf("%s: %q fire, Sick is %s; want none, and False", name, have, conditionOf(r.e))
		}
		if n := r.count("kept"); n != c.count {
			t.Errorf("%s: %d counted, want %d", name, n, c.count)
		}
	}
}

// Events that are recorded after quiet has ended their problem still count in it.
func TestRateLimitOfAProblemThatWasQuiet(t *testing.T) {
	r := &recorder{e: detector.NewEngine(ruleSet(t, `
- {name: kept, events: [log], logs: [app], pattern: '^error', condition: Sick, reason: AppError, message: m, clearAfter: 5m, rateLimit: {count: 1, within: 10m}}
`))}
	r.e.Observe(source("log/app", true), at(0))
	for range 100 {
		r.line(time.Second, "error")
	}
	want(t, r.e.Tick(at(5*time.Minute+time.Second)), "kept  resolved", "Sick=False Well")
	r.release(11 * time.Minute)
	if have := firing(r.e); len(r.recorded) != 2 || len(have) > 0 || r.count("kept") != 100 {
		t.Errorf("%d recorded, %q fire, %d counted; want 2, none, 100", len(r.recorded), have, r.count("kept"))
	}
}

// Withheld events are in the snapshot, and a replay of the recorded events counts the same.
func TestRateLimitAcrossRestart(t *testing.T) {
	set := ruleSet(t, limitedRules)
	r := &recorder{e: detector.NewEngine(set)}
	r.e.Observe(source("log/app", true), at(0))
	for range 100 {
		r.line(time.Second, "error on sda")
	}
	saved, err := r.e.Snapshot()
	if err != nil {
		t.Fatal(err)
	}
	for i := range 3 {
		r.release(time.Duration(i+1) * 2 * time.Minute)
		r.line(time.Duration(i+1)*2*time.Minute, "error on sda")
	}
	// A clean stop, and a replay of everything.
	for _, ev := range r.e.Flush(at(7 * time.Minute)) {
		r.observe(ev, 7*time.Minute)
	}
	if r.count("told") != 103 {
		t.Fatalf("%d counted, want 103", r.count("told"))
	}
	again := &recorder{e: detector.NewEngine(set)}
	again.replay(r, 0)
	if again.count("told") != 103 || again.occurred != 103 {
		t.Errorf("the replay counted %d and reported %d, want 103", again.count("told"), again.occurred)
	}
	// A kill after the snapshot, with nothing recorded since. Further events beyond the limit join
	// the withheld ones.
	r = &recorder{e: restartedFrom(t, set, saved, 2*time.Minute)}
	for n := range 20 {
		r.read(101+n, 2*time.Minute, "error on sda")
	}
	r.release(3 * time.Minute)
	if r.count("told") != 120 || r.count("kept") != 120 || len(r.recorded) != 10+1 {
		t.Errorf("%d and %d counted in %d events after the restart, want 120 in 11", r.count("told"), r.count("kept"), len(r.recorded))
	}
	// A snapshot of a version that did not save in which problems withheld events count.
	old := regexp.MustCompile(`,"key":"[^"]*"`).ReplaceAll(saved, nil)
	r = &recorder{e: restartedFrom(t, set, old, 2*time.Minute)}
	r.release(2 * time.Minute)
	if r.count("told") != 100 || r.count("kept") != 100 {
		t.Errorf("%d and %d counted after the restart from an old snapshot, want 100", r.count("told"), r.count("kept"))
	}
}

// Withheld events in a snapshot that were recorded after it count once, even if the log is read
// again from an earlier position.
func TestRateLimitRecordedBehindTheSnapshot(t *testing.T) {
	set := ruleSet(t, limitedRules)
	r := &recorder{e: detector.NewEngine(set)}
	r.e.Observe(source("log/app", true), at(0))
	for range 100 {
		r.line(time.Second, "error on sda")
	}
	saved, err := r.e.Snapshot()
	if err != nil {
		t.Fatal(err)
	}
	before := len(r.recorded)
	r.line(90*time.Second, "error on sda") // joins the withheld events of the snapshot
	r.release(2 * time.Minute)
	r.line(2*time.Minute, "error on sda") // waits alone
	r.release(4 * time.Minute)
	r.line(4*time.Minute, "error on sda")
	if n := len(r.recorded) - before; n != 3 || r.count("told") != 103 {
		t.Fatalf("%d events recorded behind the snapshot, %d counted; want 3 and 103", n, r.count("told"))
	}
	again := &recorder{e: detector.NewEngine(set)}
	if err := again.e.Resume(saved, at(5*time.Minute)); err != nil {
		t.Fatal(err)
	}
	again.replay(r, before)
	again.e.Restarted(at(5 * time.Minute))
	again.release(7 * time.Minute)
	for n := range 6 {
		again.read(98+n, 8*time.Minute, "error on sda")
	}
	again.release(15 * time.Minute)
	if again.count("told") != 103 || again.count("kept") != 103 || again.occurred != 3+90 {
		t.Errorf("%d and %d counted, %d reported; want 103, and 93 since the snapshot", again.count("told"), again.count("kept"), again.occurred)
	}
}

// Lost changes that were not reported before a restart are reported once after it.
func TestLostToRateLimitAcrossRestart(t *testing.T) {
	set := ruleSet(t, limitedRules)
	r := &recorder{e: detector.NewEngine(set)}
	r.e.Observe(source("log/app", true), at(0))
	for i := range 110 { // 10 within the limit, 10 that change something, 90 lost, of which 1 is recorded
		r.line(time.Second, fmt.Sprint("error on sd", i))
	}
	saved, err := r.e.Snapshot()
	if err != nil {
		t.Fatal(err)
	}
	before := len(r.recorded)
	lost := func(r *recorder) (n uint64) {
		for _, ev := range r.recorded {
			if ev.Lost != nil && ev.Lost.Stem == "log/app" && ev.Lost.Reason == detector.LostToRateLimit {
				n += ev.Lost.Count
			}
		}
		return n
	}
	killed := &recorder{e: restartedFrom(t, set, saved, 2*time.Second)}
	killed.release(2 * time.Second)
	killed.release(11 * time.Second)
	killed.release(20 * time.Second)
	if n := lost(killed); n != 89 {
		t.Errorf("%d reported lost after a restart, want 89", n)
	}
	// The loss was reported after the snapshot, so it is not reported again.
	r.line(2*time.Second, "error on another")
	r.release(11 * time.Second)
	again := &recorder{e: detector.NewEngine(set)}
	if err := again.e.Resume(saved, at(12*time.Second)); err != nil {
		t.Fatal(err)
	}
	again.replay(r, before)
	again.e.Restarted(at(12 * time.Second))
	again.release(30 * time.Second)
	if n := lost(again); n != 90 {
		t.Errorf("%d reported lost before and after a restart, want 90", n)
	}
}

// A source saves its position while a flood lasts, so lost lines are not read again. A kill at any
// time does not hide the loss: it is recorded at once, and then every few seconds.
func TestLostToRateLimitBeforeAKill(t *testing.T) {
	set := ruleSet(t, strings.ReplaceAll(limitedRules, "clearAfter: 5m", "clearAfter: 1m"))
	r := &recorder{e: detector.NewEngine(set)}
	r.e.Observe(source("log/app", true), at(0))
	losses := func() (n int) {
		for _, ev := range r.recorded {
			if ev.Lost != nil {
				n++
			}
		}
		return n
	}
	for i := range 1200 { // two minutes
		d := time.Duration(i) * 100 * time.Millisecond
		r.line(d, fmt.Sprint("error on sd", i))
		if i%50 == 49 {
			r.release(d)
		}
		if i == 20 || i == 1199 {
			killed := &recorder{e: detector.NewEngine(set)}
			killed.replay(r, 0)
			killed.e.Restarted(at(d))
			killed.e.Observe(source("log/app", true), at(d))
			killed.e.Tick(at(d + 2*time.Minute)) // problems have ended
			if have := conditionOf(killed.e); i == 20 && losses() != 1 || !strings.HasPrefix(have, "Unknown SourceLossy") {
				t.Errorf("after %s: %d losses recorded; Sick is %s, want Unknown", d, losses(), have)
			}
		}
	}
	if n := losses(); n > 1+120/5 {
		t.Errorf("%d losses recorded in two minutes, want one in five seconds at most", n)
	}
	// A source that is not tracked makes no condition Unknown, so its loss can wait.
	for i := range detector.MaxStems {
		r.e.Observe(source(fmt.Sprint("log/", i), true), at(3*time.Minute))
	}
	before := losses()
	for i := range 100 {
		ev := appLine(2000+i, 3*time.Minute, fmt.Sprint("error on sde", i))
		ev.Source = "log/one-too-many"
		r.take(ev, 3*time.Minute)
	}
	if n := losses() - before; n != 0 {
		t.Errorf("%d losses of a source that is not tracked recorded at once", n)
	}
}

// replay observes the events that another recorder has recorded.
func (r *recorder) replay(of *recorder, from int) {
	for i := from; i < len(of.recorded); i++ {
		if ev := of.recorded[i]; !r.e.Seen(ev) {
			r.observe(ev, of.times[i])
		}
	}
}

func restartedFrom(t *testing.T, set *detector.RuleSet, saved []byte, now time.Duration) *detector.Engine {
	t.Helper()
	e := detector.NewEngine(set)
	if err := e.Restore(saved, at(now)); err != nil {
		t.Fatal(err)
	}
	return e
}

// For any events at any times, the engine counts the same as one without limits, or reports the
// loss; and it records no more than the limits allow.
func TestRateLimitProperty(t *testing.T) {
	limited, free := ruleSet(t, clearedRules), ruleSet(t, clearedRules)
	compared := 0
	for seed := range uint64(200) {
		rnd := rand.New(rand.NewPCG(seed, 1))
		r, plain := &recorder{e: detector.NewEngine(limited)}, detector.NewEngine(free)
		var occurred uint64
		d := time.Duration(0)
		for n := range 400 {
			d += time.Duration(rnd.ExpFloat64() * float64(time.Second))
			text := fmt.Sprint("error on sd", rnd.IntN(3))
			if rnd.IntN(40) == 0 {
				text = fmt.Sprint("sd", rnd.IntN(3), " is well")
			}
			r.line(d, text)
			for _, t := range plain.Observe(appLine(n+1, d, text), at(d)) {
				if t.Problem != nil && t.Problem.Rule == "told" && t.Problem.State == problem.Firing {
					occurred++
				}
			}
			if rnd.IntN(5) == 0 {
				r.release(d)
			}
		}
		for _, ev := range r.e.Flush(at(d)) {
			r.observe(ev, d)
		}
		var lost uint64
		events := 0
		for _, ev := range r.recorded {
			if ev.Lost != nil {
				lost += ev.Lost.Count
			} else {
				events++
			}
		}
		if r.occurred > occurred || r.occurred+lost < occurred {
			t.Fatalf("seed %d: %d occurred, %d lost; without limits %d occurred", seed, r.occurred, lost, occurred)
		}
		if lost == 0 {
			compared++
			if diff := cmp.Diff(firing(plain), firing(r.e)); diff != "" {
				t.Fatalf("seed %d: what fires (-without limits +with):\n%s", seed, diff)
			}
		}
		if most := 2 * 2 * (10 + int(d/time.Minute) + 1); events > most+3 { // two rules with two budgets each; Flush has one for each group
			t.Fatalf("seed %d: %d events recorded in %s, want at most %d", seed, events, d, most+3)
		}
	}
	if compared < 20 {
		t.Errorf("%d sequences lost nothing, too few to mean anything", compared)
	}
}

// A line that an absence rule waits for is noticed even beyond the limit.
func TestRateLimitOfAnAbsence(t *testing.T) {
	r := &recorder{e: detector.NewEngine(ruleSet(t, `
- {name: alive, events: [log], logs: [app], pattern: '^alive', absentFor: 1m, condition: Sick, reason: Silent, message: m, rateLimit: {count: 2, within: 1h}}
`))}
	r.e.Observe(source("log/app", true), at(0))
	for i := range 600 {
		d := time.Duration(i) * time.Second
		r.line(d, "alive")
		r.release(d)
	}
	if n := len(r.recorded); n != 2 {
		t.Errorf("%d events recorded, want 2", n)
	}
	want(t, r.e.Tick(at(658*time.Second)))
	want(t, r.e.Tick(at(659*time.Second)), "alive  firing", "Sick=True Silent")
	r.line(700*time.Second, "alive")
	if r.count("alive") != 1 || len(r.recorded) != 3 {
		t.Errorf("the line after an absence is not admitted")
	}
}

// Each of the rules that report the same fault has its own limit, whichever reported first.
func TestRateLimitOfASharedFault(t *testing.T) {
	r := &recorder{e: detector.NewEngine(ruleSet(t, `
- {name: first, fault: broken, events: [log], logs: [app], pattern: '^broken', reason: Broken, message: m}
- {name: flooded, fault: broken, events: [log], logs: [app], pattern: '^again', reason: Broken, message: m, rateLimit: {count: 10, within: 1h}}
`))}
	r.line(0, "broken")
	for i := range 600 {
		d := time.Duration(i) * time.Second
		r.line(d, "again")
		r.release(d)
	}
	if n := len(r.recorded); n > 1+10+2 { // 10 at once, and 1 in 6 minutes
		t.Errorf("%d events recorded, want 13 at most", n)
	}
}
