package detector_test

import (
	"encoding/json"
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/kernosis/kernosis/collector/event"
	"github.com/kernosis/kernosis/detector"
	"github.com/kernosis/kernosis/detector/problem"
)

// logged returns an event for a line of the kernel log, or for several lines of which the last
// is new.
func logged(d time.Duration, text string) *event.Event {
	return &event.Event{
		Kind: event.Log, Time: at(d).Wall, BootTime: event.Duration(time.Hour + d), CPU: event.NoCPU,
		Log: &event.LogData{Log: "kmsg", Origin: "kernel", Priority: "err", Text: text},
	}
}

const nfsRules = `
- name: nfs
  events: [log]
  pattern: 'nfs: server (?P<server>\S+) not responding'
  clearPattern: 'nfs: server (?P<server>\S+) OK'
  groupBy: [match.server]
  condition: Sick
  reason: NFSServerSilent
  message: "NFS server ${match.server} does not answer"
`

func TestClearPattern(t *testing.T) {
	e := detector.NewEngine(ruleSet(t, nfsRules))
	e.Observe(source("log", true), at(0))
	say := func(s int, text string) []problem.Transition {
		d := time.Duration(s) * time.Second
		return e.Observe(logged(d, text), at(d))
	}
	want(t, say(0, "nfs: server a OK"))
	ts := say(1, "nfs: server a not responding, still trying")
	want(t, ts, "nfs a firing", "Sick=True NFSServerSilent")
	if p := ts[0].Problem; p.Message != "NFS server a does not answer" || p.Subject != "kernel" {
		t.Errorf("problem %+v", p)
	}
	want(t, say(2, "nfs: server b not responding, timed out"), "nfs b firing", "Sick=True NFSServerSilent")
	want(t, say(3, "nfs: server a not responding, still trying"))
	want(t, say(4, "nfs: server c OK"))
	want(t, say(5, "nfs: server a OK"), "nfs a resolved", "Sick=True NFSServerSilent")
	want(t, say(6, "nfs: server a OK"))
	want(t, say(7, "nfs: server b OK"), "nfs b resolved", "Sick=False Well")
	// The line matches both patterns for one server: a line that matches the rule doesn't clear.
	want(t, say(8, "nfs: server a OK, nfs: server a not responding"), "nfs a firing", "Sick=True NFSServerSilent")
	want(t, say(9, "nfs: server a not responding, nfs: server a OK"))
	want(t, say(10, "nothing of interest"))
	s := e.Stats()
	if diff := cmp.Diff(map[string]uint64{"nfs/pattern": 5, "nfs/clearPattern": 7}, s.Matches); diff != "" || s.Unmatched != 1 {
		t.Errorf("%d unmatched, matches (-want +have):\n%s", s.Unmatched, diff)
	}
}

func TestClearWhenReadsTheLine(t *testing.T) {
	e := detector.NewEngine(ruleSet(t, `
- name: link
  events: [log]
  pattern: '(?P<port>\w+): Link is (?P<state>Up|Down)'
  when: match.state == "Down"
  clearWhen: match.state == "Up"
  groupBy: [match.port]
  condition: Sick
  reason: LinkDown
  message: ${match.port} is down
`))
	want(t, e.Observe(logged(0, "e1000: eth0: Link is Down"), at(0)), "link eth0 firing", "Sick=True LinkDown")
	want(t, e.Observe(logged(1, "e1000: eth1: Link is Up"), at(1)))
	want(t, e.Observe(logged(2, "e1000: eth0: Link is Up"), at(2)), "link eth0 resolved", "Sick=Unknown SourceNotStarted")
}

// A rule sees only the lines that its own pattern matched, whatever else the event holds.
func TestTextIsWhatThePatternMatched(t *testing.T) {
	e := detector.NewEngine(ruleSet(t, `
- {name: both, events: [log], pattern: 'BUG.*\n.*RIP: (?P<at>\S+)(?: (?P<more>\S+))?', reason: R, message: "${log.text}|${match.at}|${match.more}|"}
- {name: last, events: [log], pattern: 'RIP', reason: R, message: "${log.text}|${log.name} ${log.origin} ${log.priority} ${log.unit}"}
- {name: first, events: [log], pattern: 'BUG', reason: R, message: m}
- {name: other, events: [log], logs: [journald], pattern: 'RIP', reason: R, message: m}
`))
	ev := logged(0, "older\nBUG: soft lockup\nsome RIP: f+0x1")
	ev.Log.Captures = map[string]string{"at": "not the engine's"}
	before := ev.Clone()
	ts := e.Observe(ev, at(0))
	want(t, ts, "both  firing", "last  firing")
	if diff := cmp.Diff(before, ev); diff != "" {
		t.Errorf("the event changed (-before +after):\n%s", diff)
	}
	for i, want := range []struct{ message, text string }{
		{`BUG: soft lockup\nsome RIP: f+0x1|f+0x1||`, "BUG: soft lockup\nsome RIP: f+0x1"},
		{"some RIP: f+0x1|kmsg kernel err ", "some RIP: f+0x1"},
	} {
		p := ts[i].Problem
		if p.Message != want.message || p.Evidence[0].Log.Text != want.text {
			t.Errorf("message %q of %q, want %q of %q", p.Message, p.Evidence[0].Log.Text, want.message, want.text)
		}
	}
	if diff := cmp.Diff(map[string]string{"at": "f+0x1"}, ts[0].Problem.Evidence[0].Log.Captures); diff != "" {
		t.Errorf("captures (-want +have):\n%s", diff)
	}
	if c := ts[1].Problem.Evidence[0].Log.Captures; c != nil {
		t.Errorf("captures %v of a pattern without groups", c)
	}
	// An engine gets the same result from an event that it kept as evidence.
	e = detector.NewEngine(ruleSet(t, "\n- {name: both, events: [log], pattern: 'BUG.*\\n.*RIP: (?P<at>\\S+)', reason: R, message: m}\n"))
	want(t, e.Observe(ts[0].Problem.Evidence[0], at(1)), "both  firing")
	// A text with a trailing newline, as in a test file; no payload; a huge text.
	want(t, e.Observe(logged(2, "BUG\nRIP: x\n"), at(2)), "both  firing")
	want(t, e.Observe(&event.Event{Kind: event.Log}, at(3)))
	want(t, e.Observe(logged(4, strings.Repeat("BUG\n", 1<<20)+"RIP: x"), at(4)), "both  firing")
}

func TestLogsHaveTheirOwnPatterns(t *testing.T) {
	e := detector.NewEngine(ruleSet(t, `
- {name: both, events: [log], logs: [kmsg, journald], pattern: oops, groupBy: [log.name], reason: R, message: m}
- {name: any, events: [log], pattern: oops, groupBy: [log.name], reason: R, message: m}
`))
	for i, log := range []string{"kmsg", "file"} {
		ev := logged(time.Duration(i), "oops")
		ev.Log.Log = log
		out := []string{"both " + log + " firing", "any " + log + " firing"}
		want(t, e.Observe(ev, at(time.Duration(i))), out[min(i, 1):]...)
	}
	for i := range 1000 { // unknown log names must not leak memory
		ev := logged(time.Duration(10+i), "oops")
		ev.Log.Log = strconv.Itoa(i)
		e.Observe(ev, at(time.Second))
	}
}

// What an earlier boot's kernel printed neither begins nor ends anything, except by rules that name
// its log.
func TestCrashLogIsForRulesThatNameIt(t *testing.T) {
	e := detector.NewEngine(ruleSet(t, `
- {name: crash, events: [log], logs: [crash], pattern: oops, reason: R, message: m}
- {name: kernel, events: [log], logs: [kernel], pattern: oops, condition: Sick, reason: R, message: m, clearWhen: 'log.text == "oops ends"'}
- {name: any, events: [log], pattern: oops, condition: Ill, reason: R, message: m, clearPattern: oops ends}
`))
	want(t, e.Observe(logged(0, "oops"), at(0)), "kernel  firing", "any  firing", "Ill=True R", "Sick=True R")
	for i, origin := range []string{event.OriginKernel, event.CrashLog, ""} {
		now := time.Duration(1+i) * time.Minute
		ev := logged(now, "oops ends")
		ev.BootTime, ev.Log.Log, ev.Log.Origin, ev.Log.Seq = 0, event.CrashLog, origin, uint64(1+i)
		want(t, e.Observe(ev, at(now)), "crash  firing")
	}
}

// TestOneFaultFromProbeAndLog checks that an OOM kill reported by the BPF probe and by the
// kernel log is one problem, whichever comes first.
func TestOneFaultFromProbeAndLog(t *testing.T) {
	set := ruleSet(t, `
- {name: oom-kill, events: [oomkill], groupBy: [task.pid], reason: OOMKilling, message: probe}
- {name: oom-kill-log, fault: oom-kill, events: [log], logs: [kmsg], pattern: 'Killed process (?P<pid>\d+) \((?P<comm>[^)]*)\)',
   groupBy: [match.pid], reason: OOMKilling, message: "log ${match.comm}"}
`)
	line := func(d time.Duration, pid int) *event.Event {
		return logged(d, fmt.Sprintf("Memory cgroup out of memory: Killed process %d (victim) total-vm:1kB", pid))
	}
	e := detector.NewEngine(set)
	want(t, e.Observe(oom(0, "/a"), at(0)), "oom-kill 7 firing")
	want(t, e.Observe(line(time.Second, 7), at(time.Second)))
	want(t, e.Observe(line(2*time.Second, 8), at(2*time.Second)), "oom-kill-log 8 firing")
	missed := e.Observe(line(20*time.Second, 7), at(20*time.Second))
	want(t, missed, "oom-kill 7 firing") // one that the probe missed
	if p := missed[0].Problem; p.Subject != "cgroup /a" {
		t.Errorf("reported for %q by the log, want whom the probe has named", p.Subject)
	}
	for _, p := range e.Problems() {
		if n := map[string]uint64{"7": 2, "8": 1}[p.Group]; p.Count != n || p.Fault != "oom-kill" {
			t.Errorf("%s %s: count %d, want %d", p.Rule, p.Group, p.Count, n)
		}
	}
	e = detector.NewEngine(set)
	want(t, e.Observe(line(0, 7), at(0)), "oom-kill-log 7 firing")
	want(t, e.Observe(oom(time.Second, "/a"), at(time.Second)))
}

// TestShippedFaultAlsoFromLog checks that a log rule can share a shipped rule's fault. The
// groups are equal if its pattern captures them from the kernel's text.
func TestShippedFaultAlsoFromLog(t *testing.T) {
	set, err := detector.Load(detector.Shipped(), layer(`
rules:
- name: oom-kill-log
  fault: oom
  events: [log]
  logs: [kmsg]
  pattern: 'oom-kill:.*,task_memcg=(?P<path>[^,]*?(?:(?P<id>[0-9a-f]{64})(?:\.scope)?)?),task=(?P<task>.*),pid=(?P<pid>\d+),uid='
  groupBy: [match.id, match.path]
  reason: OOMKilling
  message: ${match.task}[${match.pid}] killed
`))
	if err != nil {
		t.Fatal(err)
	}
	id := strings.Repeat("0123456789abcdef", 4)
	path := "/kubepods.slice/cri-containerd-" + id + ".scope"
	line := "oom-kill:constraint=CONSTRAINT_MEMCG,nodemask=(null),cpuset=x,mems_allowed=0,oom_memcg=/kubepods.slice,task_memcg=%s,task=victim,pid=7,uid=0"
	for _, path := range []string{path, "/demo"} {
		probe := oom(time.Second, path)
		if strings.Contains(path, id) {
			probe.Container = &event.Container{ID: id}
		}
		e := detector.NewEngine(set)
		first := e.Observe(logged(0, fmt.Sprintf(line, path)), at(0))
		if len(first) != 1 || first[0].Problem.Message != "victim[7] killed" {
			t.Errorf("%s: the log tells %v", path, states(first))
		}
		e.Observe(probe, at(time.Second))
		kills := 0
		for _, p := range e.Problems() {
			if p.Fault == "oom" {
				if kills++; p.Count != 1 {
					t.Errorf("%s: counted %d times", path, p.Count)
				}
			}
		}
		if kills != 1 {
			t.Errorf("%s: %d problems, want one of both", path, kills)
		}
	}
}

// TestNoConditionByAProcess checks that a line which a process makes the kernel print neither sets
// nor clears a condition, whatever the rule says. Rules without a condition get it.
func TestNoConditionByAProcess(t *testing.T) {
	e := detector.NewEngine(ruleSet(t, nfsRules+`
- {name: both, events: [log], pattern: 'server (?P<server>\S+) (?P<what>not|OK)', when: match.what == "not", clearWhen: match.what == "OK", groupBy: [match.server], condition: Sick, reason: R, message: m}
- {name: told, events: [log], pattern: 'server \S+ (?:not|OK)', reason: R, message: m}
`))
	byProcess := func(d time.Duration, text string) *event.Event {
		ev := logged(d, text)
		ev.Log.Origin = event.OriginProcess
		return ev
	}
	want(t, e.Observe(byProcess(0, "nfs: server a not responding"), at(0)), "told  firing")
	e.Observe(logged(1, "nfs: server a not responding"), at(1))
	want(t, e.Observe(byProcess(2, "nfs: server a OK"), at(2)), "told  firing")
	for _, p := range e.Problems() {
		if p.State != problem.Firing {
			t.Errorf("%s is %s", p.Rule, p.State)
		}
	}
}

// Different lines with the same time stamp are different records; equal lines are not.
func TestDuplicateLines(t *testing.T) {
	e := detector.NewEngine(ruleSet(t, "\n- {name: told, events: [log], pattern: oops, reason: R, message: m}\n"))
	want(t, e.Observe(logged(0, "oops 1"), at(0)), "told  firing")
	want(t, e.Observe(logged(0, "oops 2"), at(0)), "told  firing")
	want(t, e.Observe(logged(0, "oops 1"), at(0)))
	if s := e.Stats(); s.Duplicates != 1 {
		t.Errorf("%d duplicates, want 1", s.Duplicates)
	}
}

// New rules take over problems and counts, also with events decoded from JSON, as from a journal.
func TestReplaceLogRules(t *testing.T) {
	e := detector.NewEngine(ruleSet(t, nfsRules))
	e.Observe(logged(0, "nfs: server a not responding"), at(0))
	want(t, e.Replace(ruleSet(t, strings.Replace(nfsRules, " OK", " is fine", 1)), at(1)))
	want(t, e.Observe(logged(2, "nfs: server a OK"), at(2)))
	b, err := json.Marshal(logged(3, "nfs: server a is fine"))
	if err != nil {
		t.Fatal(err)
	}
	ev := new(event.Event)
	if err := json.Unmarshal(b, ev); err != nil {
		t.Fatal(err)
	}
	want(t, e.Observe(ev, at(3)), "nfs a resolved", "Sick=Unknown SourceNotStarted")
	if s := e.Stats(); s.Matches["nfs/pattern"] != 1 || s.Matches["nfs/clearPattern"] != 1 {
		t.Errorf("matches %v", s.Matches)
	}
	e.Replace(ruleSet(t, ""), at(4))
	want(t, e.Observe(logged(5, "nfs: server a not responding"), at(5)))
}

func TestPatternsOfARuleSet(t *testing.T) {
	set := ruleSet(t, nfsRules+`
- {name: kill, events: [oomkill], reason: R, message: m}
- {name: trace, events: [log], pattern: 'BUG(?:.*\n)*end', lines: 5, logs: [kmsg], reason: R, message: m}
`)
	have := set.PatternSet()
	if have.Len() != 3 {
		t.Fatalf("%d patterns", have.Len())
	}
	for i, name := range []string{"nfs/pattern", "nfs/clearPattern", "trace/pattern"} {
		if have := have.Pattern(i).Name; have != name {
			t.Errorf("pattern %d is %q, want %q", i, have, name)
		}
	}
	if p := have.Pattern(2); p.Lines != 5 || len(p.Logs) != 1 || p.Logs[0] != "kmsg" || p.Expr != `BUG(?:.*\n)*end` {
		t.Errorf("have %+v", p)
	}
	if none := ruleSet(t, ""); none.PatternSet() == nil || none.PatternSet().Len() != 0 {
		t.Error("no patterns are not an empty list")
	}
}

func TestNetworkFunctions(t *testing.T) {
	e := detector.NewEngine(ruleSet(t, `
- {name: inside, events: [log], pattern: 'from (?P<peer>\S+)', when: 'isIP(match.peer) && cidr("10.0.0.0/8").containsIP(match.peer)', reason: R, message: "${string(ip(match.peer).family())}"}
`))
	want(t, e.Observe(logged(0, "from 10.1.2.3"), at(0)), "inside  firing")
	want(t, e.Observe(logged(1, "from 192.168.0.1"), at(1)))
	want(t, e.Observe(logged(2, "from somewhere"), at(2)))
	if m := e.Problems()[0].Message; m != "4" {
		t.Errorf("message %q", m)
	}
	if n := len(e.Stats().EvalErrors); n != 0 {
		t.Errorf("%d errors", n)
	}
}

// TestDocumentedRule runs the example of docs/rules.md.
func TestDocumentedRule(t *testing.T) {
	page, err := os.ReadFile("../docs/rules.md")
	if err != nil {
		t.Fatal(err)
	}
	_, part, _ := strings.Cut(string(page), "### Lines of logs")
	_, part, _ = strings.Cut(part, "```yaml\n")
	part, _, _ = strings.Cut(part, "```")
	set, err := detector.Load(fstest.MapFS{"r.yaml": &fstest.MapFile{Data: []byte(part)}})
	if err != nil {
		t.Fatal(err)
	}
	e := detector.NewEngine(set)
	e.Observe(source("log", true), at(0))
	want(t, e.Observe(logged(1, "nfs: server 10.0.0.1 not responding, still trying"), at(1)),
		"nfs-server-silent 10.0.0.1 firing", "NFSServerSilent=True NFSServerSilent")
	want(t, e.Observe(logged(2, "nfs: server 10.0.0.1 OK"), at(2)),
		"nfs-server-silent 10.0.0.1 resolved", "NFSServerSilent=False NFSServersAnswer")
}

// A fallback rule is active only while the source that it stands in for is down. Its groups may
// differ.
func TestFallback(t *testing.T) {
	e := detector.NewEngine(ruleSet(t, `
- {name: kills, fault: f, events: [oomkill], groupBy: [cgroup.path, task.pid], condition: Sick, reason: R, message: m, clearAfter: 1m}
- {name: lines, fault: f, events: [log], fallbackFor: [oomkill], pattern: 'killed (?P<who>\w+)', groupBy: [match.who], condition: Sick, reason: R, message: m, clearAfter: 1m}
`))
	e.Observe(source("log", true), at(0))
	want(t, e.Observe(logged(1, "killed a"), at(1)), "lines a firing", "Sick=True R")
	e.Observe(source("oomkill", true), at(time.Second))
	want(t, e.Observe(logged(2*time.Second, "killed b"), at(2*time.Second)))
	want(t, e.Observe(oom(3*time.Second, "/b"), at(3*time.Second)), "kills /b, 7 firing", "Sick=True R")
	e.Observe(source("oomkill", false), at(4*time.Second))
	want(t, e.Observe(logged(5*time.Second, "killed b"), at(5*time.Second)), "lines b firing", "Sick=True R")
	// The lines' groups are others, so they can't tell that the other rule's problem is over.
	want(t, e.Tick(at(time.Hour)), "lines a resolved", "lines b resolved", "Sick=True R")
}

// While a problem's own sources are down, another rule of its fault can tell that it is over. Only
// the time during which that rule watched counts as quiet.
func TestQuietTimeByAnotherSource(t *testing.T) {
	const rules = `
- {name: probe, fault: f, events: [oomkill], groupBy: [cgroup.path], condition: Sick, reason: R, message: m, clearAfter: 30m}
- {name: line, fault: f, events: [log], logs: [kmsg], %s pattern: 'killed (?P<who>\S+)', groupBy: [match.who], condition: Sick, reason: R, message: m, clearAfter: 30m}
`
	const fallback = "fallbackFor: [oomkill],"
	kill := func(e *detector.Engine) { e.Observe(oom(0, "/a"), at(0)) }
	line := func(e *detector.Engine) { e.Observe(logged(0, "killed /a"), at(0)) }
	type change struct {
		at    time.Duration
		event *event.Event // nil: a restart
	}
	m := func(n int) time.Duration { return time.Duration(n) * time.Minute }
	for name, c := range map[string]struct {
		keys    string
		begin   func(*detector.Engine)
		changes []change
		ends    time.Duration // zero: never
	}{
		"restart without the probe":   {fallback, kill, []change{{m(1), nil}, {m(1), source("log/kmsg", true)}, {m(2), source("oomkill", false)}}, m(31)},
		"the log is up after that":    {fallback, kill, []change{{m(1), nil}, {m(1), source("oomkill", false)}, {m(5), source("log/kmsg", true)}}, m(35)},
		"long after that":             {fallback, kill, []change{{m(1), nil}, {m(1), source("oomkill", false)}, {m(90), source("log/kmsg", true)}}, m(120)},
		"the fallback takes over":     {fallback, kill, []change{{m(5), source("oomkill", false)}}, m(35)},
		"the reason changes":          {fallback, kill, []change{{m(5), source("oomkill", false)}, {m(9), down("oomkill", "another")}}, m(35)},
		"the fallback is down, too":   {fallback, kill, []change{{m(5), source("oomkill", false)}, {m(6), source("log/kmsg", false)}}, 0},
		"the log watched all along":   {"", kill, []change{{m(5), source("oomkill", false)}}, m(30)},
		"both are down for a while":   {"", kill, []change{{m(5), source("oomkill", false)}, {m(6), source("log/kmsg", false)}, {m(9), source("log/kmsg", true)}}, m(39)},
		"the log comes and goes":      {"", kill, []change{{m(5), source("log/kmsg", false)}, {m(9), source("log/kmsg", true)}}, m(30)},
		"begun by the log, now down":  {"", line, []change{{m(5), source("log/kmsg", false)}}, m(30)},
		"begun by the fallback":       {fallback, line, []change{{m(5), source("log/kmsg", false)}, {m(6), source("oomkill", true)}}, m(36)},
		"a restart without the log":   {"", line, []change{{m(1), nil}, {m(1), source("log/kmsg", false)}, {m(2), source("oomkill", true)}}, m(32)},
		"a restart without a witness": {"", line, []change{{m(1), nil}, {m(1), source("log/kmsg", false)}, {m(1), source("oomkill", false)}}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			set := ruleSet(t, fmt.Sprintf(rules, c.keys))
			e := detector.NewEngine(set)
			e.Observe(source("log/kmsg", true), at(0))
			e.Observe(source("oomkill", name != "begun by the fallback"), at(0))
			c.begin(e)
			for _, ch := range c.changes {
				if ch.event != nil {
					e.Observe(ch.event, at(ch.at))
					continue
				}
				saved, err := e.Snapshot()
				if err != nil {
					t.Fatal(err)
				}
				e = restartedFrom(t, set, saved, ch.at)
			}
			if c.ends == 0 {
				want(t, e.Tick(at(100*time.Hour)))
				return
			}
			want(t, e.Tick(at(c.ends-time.Second)))
			want(t, e.Tick(at(c.ends)), e.Problems()[0].Rule+" /a resolved", "Sick=False Well")
		})
	}
}

// A rule that a reload adds has not watched before.
func TestQuietTimeByANewRule(t *testing.T) {
	const probe = "\n- {name: probe, fault: f, events: [oomkill], groupBy: [cgroup.path], condition: Sick, reason: R, message: m, clearAfter: 30m}\n"
	const line = "- {name: line, fault: f, events: [log], logs: [kmsg], pattern: 'killed (?P<who>\\S+)', groupBy: [match.who], condition: Sick, reason: R, message: m, clearAfter: 30m}\n"
	e := detector.NewEngine(ruleSet(t, probe))
	e.Observe(source("log/kmsg", true), at(0))
	e.Observe(source("oomkill", true), at(0))
	want(t, e.Observe(oom(0, "/a"), at(0)), "probe /a firing", "Sick=True R")
	e.Observe(source("oomkill", false), at(time.Minute))
	want(t, e.Replace(ruleSet(t, probe+line), at(time.Hour)))
	want(t, e.Tick(at(90*time.Minute-time.Second)))
	want(t, e.Tick(at(90*time.Minute)), "probe /a resolved", "Sick=False Well")
}
