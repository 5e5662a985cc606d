package detector_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/kernosis/kernosis/collector/event"
	"github.com/kernosis/kernosis/detector"
)

// conditionOf returns "status reason: message" of the condition Sick.
func conditionOf(e *detector.Engine) string {
	for _, c := range e.Conditions() {
		if c.Type == "Sick" {
			return fmt.Sprintf("%s %s: %s", c.Status, c.Reason, c.Message)
		}
	}
	return ""
}

func down(stem, reason string) *event.Event {
	return &event.Event{Kind: event.Source, SourceUp: &event.SourceData{Stem: stem, Reason: reason}}
}

// A condition claims health only while every log that could report otherwise is read.
func TestEachLogIsASourceOfItsOwn(t *testing.T) {
	const (
		waiting = "Unknown SourceNotStarted: waiting for "
		healthy = "False Well: all is well"
	)
	of := func(logs string) string {
		return "\n- {name: r, events: [log], " + logs + " pattern: oops, condition: Sick, reason: R, message: m, latched: true}\n"
	}
	up := func(stem string) *event.Event { return source(stem, true) }
	kernel := func(stem string, up bool) *event.Event {
		return &event.Event{Kind: event.Source, SourceUp: &event.SourceData{Stem: stem, Kernel: true, Up: up, Reason: "gone"}}
	}
	lost := func(stem string) *event.Event {
		return &event.Event{Kind: event.Lost, Lost: &event.LostData{Stem: stem, Count: 3, Reason: "overrun"}}
	}
	dropped := lost("log/journald") // of services
	dropped.Lost.Reason = event.LostSuppressed
	absent := down("log", "this log is not configured")
	const (
		probe    = "- {name: p, fault: r, events: [oomkill], condition: Sick, reason: R, message: m, latched: true}\n"
		fallback = "logs: [kmsg], fallbackFor: [oomkill],"
	)
	tests := []struct {
		name, rules string
		reported    []*event.Event
		want        string
	}{
		{"nothing reported", of("logs: [kmsg],"), nil, waiting + "log/kmsg"},
		{"nothing reported, any log", of(""), nil, waiting + "log"},
		{"another log", of("logs: [kmsg],"), []*event.Event{up("log/syslog")}, waiting + "log/kmsg"},
		{"up", of("logs: [kmsg],"), []*event.Event{up("log/kmsg"), down("log/syslog", "gone")}, healthy},
		{"dead beside a live one", of("logs: [kmsg],"), []*event.Event{down("log/kmsg", "no permission"), up("log/syslog")},
			"Unknown SourceUnavailable: log/kmsg: no permission"},
		{"any log, one dead", of(""), []*event.Event{down("log/kmsg", "no permission"), up("log/syslog")},
			"Unknown SourceUnavailable: log/kmsg: no permission"},
		{"any log, all up", of(""), []*event.Event{up("log/kmsg"), up("log/syslog"), absent}, healthy},
		{"any log, the crash log dead", of(""), []*event.Event{up("log/kmsg"), down("log/crash", "no permission"), absent}, healthy},
		{"any log, records of crashes lost", of(""), []*event.Event{up("log/kmsg"), up("log/crash"), lost("log/crash"), absent}, healthy},
		{"the crash log dead", of("logs: [crash],"), []*event.Event{up("log/kmsg"), down("log/crash", "no permission"), absent},
			"Unknown SourceUnavailable: log/crash: no permission"},
		{"not configured", of("logs: [kmsg],"), []*event.Event{up("log/syslog"), absent},
			"Unknown SourceUnavailable: log/kmsg: this log is not configured"},
		{"any log, another may follow", of(""), []*event.Event{up("log/kmsg")}, waiting + "log"},
		{"one of two has reported", of("logs: [kmsg, journald],"), []*event.Event{up("log/kmsg")}, waiting + "log/kmsg, log/journald"},
		{"both have reported", of("logs: [kmsg, journald],"), []*event.Event{up("log/kmsg"), up("log/journald")}, healthy},
		{"a kernel's log has reported, the other not", of("logs: [kernel, syslog],"), []*event.Event{kernel("log/kern", true)}, waiting + "log/kernel, log/syslog"},
		{"one of two is configured", of("logs: [kmsg, journald],"), []*event.Event{up("log/kmsg"), absent}, healthy},
		{"none is configured", of(""), []*event.Event{absent}, "Unknown SourceUnavailable: log: this log is not configured"},
		{"two rules, one log dead", of("logs: [kmsg],") + strings.Replace(of("logs: [syslog],"), "name: r", "name: s", 1),
			[]*event.Event{up("log/kmsg"), down("log/syslog", "gone")}, "Unknown SourceUnavailable: log/syslog: gone"},
		{"two rules of one fault", of("logs: [kmsg],") + strings.Replace(of("logs: [syslog],"), "name: r", "name: s, fault: r", 1),
			[]*event.Event{up("log/kmsg"), down("log/syslog", "gone")}, healthy},
		{"a probe sees the same", of("logs: [kmsg],") + probe,
			[]*event.Event{down("log/kmsg", "gone"), up("oomkill")}, healthy},
		{"the log sees what the probe can't", of("logs: [kmsg],") + probe,
			[]*event.Event{up("log/kmsg"), down("oomkill", "no BTF")}, healthy},
		{"the probe has not said yet what it sees", of("logs: [kmsg],") + probe,
			[]*event.Event{down("log/kmsg", "gone")}, waiting + "oomkill"},
		{"neither sees", of("logs: [kmsg],") + probe,
			[]*event.Event{down("log/kmsg", "gone"), down("oomkill", "no BTF")}, "Unknown SourceUnavailable: oomkill: no BTF; log/kmsg: gone"},
		{"a probe sees something else", of("logs: [kmsg],") + "- {name: p, events: [oomkill], condition: Sick, reason: R, message: m, latched: true}\n",
			[]*event.Event{down("log/kmsg", "gone"), up("oomkill")}, "Unknown SourceUnavailable: log/kmsg: gone"},
		{"no log of the kernel's", of("logs: [kernel],"), []*event.Event{up("log/syslog"), absent}, "Unknown SourceUnavailable: log/kernel: this log is not configured"},
		{"one of the kernel's logs is dead", of("logs: [kernel],"), []*event.Event{kernel("log/kern", true), kernel("log/kmsg", false)}, healthy},
		{"all the kernel's logs are dead", of("logs: [kernel],"), []*event.Event{kernel("log/kern", false), kernel("log/kmsg", false), up("log/syslog")},
			"Unknown SourceUnavailable: log/kern: gone; log/kmsg: gone"},
		{"a kernel's log and one that is not", of("logs: [kernel, syslog],"), []*event.Event{kernel("log/kern", true), down("log/syslog", "gone")},
			"Unknown SourceUnavailable: log/syslog: gone"},
		{"lines lost", of("logs: [kmsg],"), []*event.Event{up("log/kmsg"), lost("log/kmsg")},
			"Unknown SourceLossy: records were lost: log/kmsg (overrun)"},
		{"lines of another log lost", of("logs: [kmsg],"), []*event.Event{up("log/kmsg"), lost("log/kmsgs")}, healthy},
		{"one of the kernel's logs lost lines", of("logs: [kernel],"), []*event.Event{kernel("log/kmsg", true), kernel("log/journald", true), lost("log/journald")}, healthy},
		{"all the kernel's logs lost lines", of("logs: [kernel],"), []*event.Event{kernel("log/kmsg", true), kernel("log/journald", true), lost("log/journald"), lost("log/kmsg")},
			"Unknown SourceLossy: records were lost: log/journald (overrun), log/kmsg (overrun)"},
		{"the kernel's other log is dead", of("logs: [kernel],"), []*event.Event{kernel("log/kmsg", true), kernel("log/journald", true), lost("log/kmsg"), kernel("log/journald", false)},
			"Unknown SourceLossy: records were lost: log/kmsg (overrun)"},
		{"a named log of the kernel's lost lines", of("logs: [kernel, journald],"), []*event.Event{kernel("log/kmsg", true), kernel("log/journald", true), lost("log/journald")},
			"Unknown SourceLossy: records were lost: log/journald (overrun)"},
		{"messages of services lost", of("logs: [kernel],"), []*event.Event{kernel("log/journald", true), dropped}, healthy},
		{"messages of services and of the kernel lost", of("logs: [kernel],"), []*event.Event{kernel("log/journald", true), lost("log/journald"), dropped},
			"Unknown SourceLossy: records were lost: log/journald (suppressed)"},
		{"messages of services lost, the kernel's by another log", of("logs: [kernel],"),
			[]*event.Event{kernel("log/kmsg", true), kernel("log/journald", true), dropped, lost("log/kmsg")}, healthy},
		{"messages of services lost that a rule reads", of(""), []*event.Event{kernel("log/journald", true), absent, dropped},
			"Unknown SourceLossy: records were lost: log/journald (suppressed)"},
		{"a named log of the kernel's is dead", of("logs: [kernel, journald],"), []*event.Event{kernel("log/kmsg", true), kernel("log/journald", false)},
			"Unknown SourceUnavailable: log/journald: gone"},
		{"lines lost that a probe sees", of("logs: [kmsg],") + probe, []*event.Event{up("log/kmsg"), up("oomkill"), lost("log/kmsg")}, healthy},
		{"records lost that a log has", of("logs: [kmsg],") + probe, []*event.Event{up("log/kmsg"), up("oomkill"), lost("oomkill")}, healthy},
		{"lines lost that a dead probe would see", of("logs: [kmsg],") + probe, []*event.Event{up("log/kmsg"), down("oomkill", "no BTF"), lost("log/kmsg")},
			"Unknown SourceLossy: records were lost: log/kmsg (overrun)"},
		{"lines and records lost", of("logs: [kmsg],") + probe, []*event.Event{up("log/kmsg"), up("oomkill"), lost("log/kmsg"), lost("oomkill")},
			"Unknown SourceLossy: records were lost: log/kmsg (overrun), oomkill (overrun)"},
		{"lines lost of a fallback that nobody asks", of(fallback), []*event.Event{up("log/kmsg"), lost("log/kmsg"), up("oomkill")}, healthy},
		{"a dead fallback that nobody asks", of(fallback), []*event.Event{down("log/kmsg", "gone"), up("oomkill")}, healthy},
		{"a dead fallback", of(fallback), []*event.Event{up("oomkill"), down("log/kmsg", "gone"), down("oomkill", "no BTF")},
			"Unknown SourceUnavailable: log/kmsg: gone"},
		{"lines lost of a fallback", of(fallback), []*event.Event{up("log/kmsg"), lost("log/kmsg"), up("oomkill"), down("oomkill", "no BTF")},
			"Unknown SourceLossy: records were lost: log/kmsg (overrun)"},
		{"records lost before a fallback", of(fallback) + probe, []*event.Event{up("log/kmsg"), up("oomkill"), lost("oomkill")},
			"Unknown SourceLossy: records were lost: oomkill (overrun)"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			e := detector.NewEngine(ruleSet(t, tt.rules))
			for i, ev := range tt.reported {
				e.Observe(ev, at(time.Duration(i)*time.Second))
			}
			if have := conditionOf(e); have != tt.want {
				t.Errorf("have %s\nwant %s", have, tt.want)
			}
		})
	}
}

// Quiet does not end a problem while its log is not read.
func TestQuietOfADeadLogIsNotTheEnd(t *testing.T) {
	e := detector.NewEngine(ruleSet(t, `
- {name: r, events: [log], logs: [kmsg], pattern: oops, condition: Sick, reason: R, message: m, clearAfter: 1m}
`))
	e.Observe(source("log/kmsg", true), at(0))
	want(t, e.Observe(logged(0, "oops"), at(0)), "r  firing", "Sick=True R")
	e.Observe(source("log/file", true), at(0))
	e.Observe(source("log/kmsg", false), at(time.Second))
	want(t, e.Tick(at(time.Hour)))
	e.Observe(source("log/kmsg", true), at(time.Hour))
	want(t, e.Tick(at(time.Hour+59*time.Second)))
	want(t, e.Tick(at(time.Hour+time.Minute)), "r  resolved", "Sick=False Well")
}

func checked(d time.Duration, name, status, message string) *event.Event {
	return &event.Event{
		Kind: event.Check, Time: at(d).Wall, BootTime: event.Duration(time.Hour + d), CPU: event.NoCPU,
		Check: &event.CheckData{Check: name, Status: status, Message: message},
	}
}

// A check without a result makes its condition Unknown, because the check is the source.
func TestChecks(t *testing.T) {
	e := detector.NewEngine(ruleSet(t, `
- name: ntp
  events: [check]
  when: event.check == "ntp" && event.status == "problem"
  clearWhen: event.check == "ntp" && event.status == "ok"
  condition: Sick
  reason: NTPIsDown
  message: ${event.message}
- {name: told, events: [check], when: 'event.check in ["ntp", "dns"] && event.status == "problem"', groupBy: [event.check], reason: R, message: "${event.check}"}
`))
	say := func(s int, name, status string) (out []string) {
		d := time.Duration(s) * time.Second
		return states(e.Observe(checked(d, name, status, status+" indeed"), at(d)))
	}
	equal := func(have []string, want ...string) {
		t.Helper()
		if strings.Join(have, "|") != strings.Join(want, "|") {
			t.Errorf("have %q, want %q", have, want)
		}
	}
	equal(say(0, "dns", "ok"))
	if have := conditionOf(e); have != "Unknown SourceNotStarted: waiting for check/ntp" {
		t.Error(have)
	}
	equal(say(1, "ntp", "unknown"), "Sick=Unknown SourceUnavailable")
	if have := conditionOf(e); have != "Unknown SourceUnavailable: check/ntp: unknown indeed" {
		t.Error(have)
	}
	equal(say(2, "ntp", "ok"), "Sick=False Well")
	equal(say(3, "dns", "unknown"))
	equal(say(4, "ntp", "problem"), "ntp  firing", "told ntp firing", "Sick=True NTPIsDown")
	if have := conditionOf(e); have != "True NTPIsDown: problem indeed" {
		t.Error(have)
	}
	equal(say(5, "ntp", "unknown")) // an unknown status doesn't end a problem
	equal(say(6, "ntp", "ok"), "ntp  resolved", "Sick=False Well")
	equal(say(7, "dns", "problem"), "told dns firing")
	if p := e.Problems(); p[len(p)-1].Subject == "" {
		t.Errorf("problem %+v has no subject", p[len(p)-1])
	}
}

// A rule depends on the checks for which its expression can be true.
func TestRuleDependsOnItsChecks(t *testing.T) {
	for when, waits := range map[string]string{
		`event.status == "problem"`:                                        "check",
		`event.check == "a" && event.status == "problem"`:                  "check/a",
		`event.status == "problem" && ("a" == event.check)`:                "check/a",
		`event.check in ["a", "b"]`:                                        "check/a, check/b",
		`event.check == "a" || event.check == "b" && event.message == "x"`: "check/a, check/b",
		`event.check != "a"`:                                               "check",
		`event.check == "a" || event.message == "x"`:                       "check",
		`event.check.startsWith("a")`:                                      "check",
	} {
		e := detector.NewEngine(ruleSet(t, "\n- {name: r, events: [check], when: '"+when+"', condition: Sick, reason: R, message: m, latched: true}\n"))
		if have := conditionOf(e); have != "Unknown SourceNotStarted: waiting for "+waits {
			t.Errorf("%s: %s", when, have)
		}
	}
}

// numbered returns a numbered kernel log line, as sources send it.
func numbered(seq uint64, text string) *event.Event {
	ev := logged(time.Duration(seq), text)
	ev.BootTime, ev.Log.Seq = 0, seq
	return ev
}

// Equal lines with different numbers all count; a line that is read again does not,
// whatever its time and the lines before it.
func TestNumberedLines(t *testing.T) {
	e := detector.NewEngine(ruleSet(t, "\n- {name: told, events: [log], pattern: oops, reason: R, message: m}\n"))
	for i := range 23 {
		want(t, e.Observe(numbered(uint64(i+1), "oops"), at(0)), "told  firing")
	}
	for i := range 23 {
		ev := numbered(uint64(i+1), "before\noops")
		ev.BootTime = event.Duration(i)
		if want(t, e.Observe(ev, at(time.Second))); !e.Seen(ev) {
			t.Error("a line that was read before is not known")
		}
	}
	other := numbered(7, "another oops")
	part := numbered(7, "oops")
	part.Log.Part = 1
	for _, ev := range []*event.Event{other, part} {
		want(t, e.Observe(ev, at(time.Second)), "told  firing")
	}
	if p := e.Problems(); p[0].Count != 25 {
		t.Errorf("count %d, want 25", p[0].Count)
	}
}

// A loss makes the condition Unknown for its whole time, also if the agent restarts meanwhile.
func TestLossOutlastsARestart(t *testing.T) {
	set := ruleSet(t, "\n- {name: sick, events: [oomkill], condition: Sick, reason: R, message: m, clearAfter: 1m}\n")
	e := detector.NewEngine(set)
	e.Observe(source("oomkill", true), at(0))
	e.Observe(source("hungtask", true), at(0))
	e.Observe(&event.Event{Kind: event.Lost, Lost: &event.LostData{Stem: "oomkill", Reason: "ring-full"}}, at(time.Second))
	e = restarted(t, e, set, 10*time.Second)
	if c := conditionOf(e); c != "Unknown SourceNotStarted: waiting for oomkill" {
		t.Error(c)
	}
	want(t, e.Observe(source("oomkill", true), at(11*time.Second)), "Sick=Unknown SourceLossy")
	want(t, e.Tick(at(5*time.Minute)))
	want(t, e.Tick(at(5*time.Minute+time.Second)), "Sick=False Well")

	// A loss that is over at the restart has no effect, and the state of sources must be reported again.
	e = restarted(t, e, set, 6*time.Minute)
	if s := e.Sources(); len(s) != 0 {
		t.Errorf("sources %+v", s)
	}
	want(t, e.Observe(source("oomkill", true), at(6*time.Minute)), "Sick=False Well")
}

// Each occurrence of a fault that a probe and a log report counts once, in any order
// of the reports, and the first event of each source is evidence.
func TestTwoSourcesCountExactly(t *testing.T) {
	set := ruleSet(t, `
- {name: probe, fault: f, events: [oomkill], groupBy: [task.pid], reason: R, message: probe}
- {name: log, fault: f, events: [log], pattern: 'Killed process (?P<pid>\d+)', groupBy: [match.pid], reason: R, message: log}
`)
	tests := map[string]uint64{
		"plplpl":   3,
		"lplplp":   3,
		"ppplll":   3,
		"lllppp":   3,
		"ppppll":   4, // two lines of the log were rate limited
		"llllpp":   4, // two records were lost
		"lpp":      2,
		"p":        1,
		"plllpppp": 5,
	}
	for order, count := range tests {
		for _, restart := range []bool{false, true} {
			e := detector.NewEngine(set)
			for i, who := range order {
				d := time.Duration(i) * 100 * time.Millisecond
				ev := oom(d, "/a")
				if who == 'l' {
					ev = numbered(uint64(i+1), "Killed process 7 (victim)")
					ev.Time = at(d).Wall
				}
				e.Observe(ev, at(d))
				if restart {
					b, err := e.Snapshot()
					if err != nil {
						t.Fatal(err)
					}
					e = detector.NewEngine(set)
					if err := e.Restore(b, at(d)); err != nil {
						t.Fatal(err)
					}
				}
			}
			p := e.Problems()
			if len(p) != 1 || p[0].Count != count {
				t.Errorf("%s: %d problems, count %d, want one of %d", order, len(p), p[0].Count, count)
			}
			kinds := map[event.Kind]bool{}
			for _, ev := range p[0].Evidence {
				kinds[ev.Kind] = true
			}
			if both := strings.Contains(order, "l"); kinds[event.Log] != both || !kinds[event.OOMKill] {
				t.Errorf("%s: evidence of %v only", order, kinds)
			}
		}
	}
}

// The quiet time of a problem begins anew after a time without kernel messages, and not after one
// in which another log had them.
func TestQuietTimeWhileALogWasDown(t *testing.T) {
	kernel := func(stem string, up bool) *event.Event {
		ev := source(stem, up)
		ev.SourceUp.Kernel = true
		return ev
	}
	for name, c := range map[string]struct {
		logs  string
		alone bool // kmsg is down at the same time
		want  []string
	}{
		"another log of the kernel's": {"kernel", false, []string{"r  resolved", "Sick=False Well"}},
		"no other":                    {"kernel", true, nil},
		"named":                       {"kernel, journald", false, nil},
	} {
		t.Run(name, func(t *testing.T) {
			e := detector.NewEngine(ruleSet(t, "\n- {name: r, events: [log], logs: ["+c.logs+"], pattern: oops, condition: Sick, reason: R, message: m, clearAfter: 1h}\n"))
			e.Observe(kernel("log/kmsg", true), at(0))
			e.Observe(kernel("log/journald", true), at(0))
			want(t, e.Observe(logged(0, "oops"), at(0)), "r  firing", "Sick=True R")
			if c.alone {
				e.Observe(kernel("log/kmsg", false), at(29*time.Minute))
			}
			e.Observe(kernel("log/journald", false), at(30*time.Minute))
			e.Observe(kernel("log/journald", true), at(31*time.Minute))
			if c.alone {
				e.Observe(kernel("log/kmsg", true), at(40*time.Minute))
			}
			want(t, e.Tick(at(time.Hour)), c.want...)
			if c.want == nil {
				want(t, e.Tick(at(91*time.Minute-time.Second)))
				want(t, e.Tick(at(91*time.Minute)), "r  resolved", "Sick=False Well")
			}
		})
	}
}
