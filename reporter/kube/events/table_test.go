package events

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/kernosis/kernosis/collector/display"
	"github.com/kernosis/kernosis/collector/pods"
	"github.com/kernosis/kernosis/detector/problem"
	"github.com/kernosis/kernosis/reporter/kube/conditions"
)

func at(sec float64) time.Time {
	return time.Unix(1e9, 0).Add(time.Duration(sec * float64(time.Second)))
}

// kill returns an entry of an OOM kill in a pod, at a time.
func kill(pod string, sec float64) *Item {
	return &Item{Now: at(sec), Kernel: true, Transitions: []problem.Transition{{Problem: &problem.Problem{
		Rule: "oom-kill", Group: "container of " + pod, Pod: pod, Reason: "OOMKilling", Message: "killed in pod " + pod,
		Severity: problem.Warning, State: problem.Firing, FirstSeen: at(0), LastSeen: at(sec),
	}}}}
}

func (t *table) find(rule, pod, part string) *series { return t.live[key{rule, pod, part}] }

// In a storm over 300 pods, some pods get their own Event; the Node's Event counts all.
func TestStormOverManyPods(t *testing.T) {
	tb := newTable()
	for i := range 5000 {
		tb.fold(kill(fmt.Sprint("pod-", i%300), float64(i)/1000))
	}
	onPods := uint64(0)
	for _, s := range tb.list {
		if s.Pod != "" {
			onPods += s.Count
		}
	}
	r, node := tb.rules["oom-kill"], tb.find("oom-kill", "", "")
	if node == nil || node.Count != 5000 || r.Happened != 5000 {
		t.Fatalf("the Node has %+v, want 5000", node)
	}
	if len(tb.list) != 21 || onPods+r.Unreported[AstrayBudget] != 5000 || node.Unreported != r.Unreported[AstrayBudget] {
		t.Errorf("%d series, %d reported on pods, %v not", len(tb.list), onPods, r.Unreported)
	}
	if !node.Mixed || !node.First.Equal(at(0)) || !node.Last.Equal(at(4.999)) {
		t.Errorf("the Node's series is %+v", node)
	}
}

// TestNameAtARollback: release 0.1.0 computes the name of a series that this version has saved without the
// time at which it began. It must be the same, or it creates another Event with the whole count.
func TestNameAtARollback(t *testing.T) {
	tb := newTable()
	tb.fold(kill("pod-1", 1))
	st, _ := tb.state("node", 1, at(2), time.Hour)
	for _, s := range st.Series {
		parts := strings.Join([]string{"node", s.Rule, s.Pod, s.Part, s.First.UTC().Format(time.RFC3339Nano), ""}, "\x00")
		sum := sha256.Sum256([]byte(parts))
		if want := Component + "-" + hex.EncodeToString(sum[:16]); s.name("node") != want {
			t.Errorf("series %+v has the name %s, 0.1.0 gives it %s", s, s.name("node"), want)
		}
	}
}

func TestBudgetComesBack(t *testing.T) {
	tb := newTable()
	began := func() (n int) {
		for _, s := range tb.list {
			if s.Pod != "" {
				n++
			}
		}
		return n
	}
	for i := range 50 {
		tb.fold(kill(fmt.Sprint("pod-", i), 0))
	}
	if n := began(); n != 20 {
		t.Fatalf("%d series began at once, want 20", n)
	}
	for i := range 50 {
		tb.fold(kill(fmt.Sprint("later-", i), 61))
	}
	if n := began(); n != 22 {
		t.Fatalf("%d series after 61 s, want 22", n)
	}
	// If the clock is set back a day, the rule is not silenced for a day.
	tb.fold(kill("yesterday", -86400))
	if n := began(); n != 23 {
		t.Errorf("%d series after the clock was set back, want 23", n)
	}
}

// On the Node, faults of pods are one series, and faults of devices one series each.
func TestSeriesOnTheNode(t *testing.T) {
	tb := newTable()
	disk := func(group string) *Item {
		return &Item{Now: at(1), Transitions: []problem.Transition{{Problem: &problem.Problem{
			Rule: "disk", Group: group, Reason: "R", State: problem.Firing, LastSeen: at(1),
		}}}}
	}
	for range 3 {
		tb.fold(disk("sda"))
	}
	tb.fold(disk("sdb"))
	tb.fold(disk("")) // concerns the whole node
	if a, b, c := tb.find("disk", "", part("sda")), tb.find("disk", "", part("sdb")), tb.find("disk", "", ""); a.Count != 3 || b.Count != 1 || c.Count != 1 {
		t.Error(a, b, c)
	}
	for i := range 30 {
		tb.fold(disk(fmt.Sprint("loop", i)))
	}
	rest := tb.find("disk", "", "")
	if rest.Count != 1+12 || !rest.Mixed { // 18 of 30 were within the budget
		t.Errorf("beyond the budget %+v", rest)
	}
	if r := tb.rules["disk"]; r.Happened != 35 || r.OnPods != 0 || len(r.Dropped) != 0 {
		t.Errorf("%+v", r)
	}
}

// A problem of the whole node is not reported on the pod where it occurred last.
func TestProblemOfTheNodeIsNotOnAPod(t *testing.T) {
	tb := newTable()
	it := kill("pod-1", 1)
	it.Transitions[0].Problem.Group = ""
	tb.fold(it)
	if len(tb.list) != 1 || tb.list[0].Pod != "" {
		t.Errorf("%d series", len(tb.list))
	}
}

func TestConditions(t *testing.T) {
	tb := newTable()
	turn := func(typ string, status problem.Status, sec float64) *Item {
		return &Item{Now: at(sec), Transitions: []problem.Transition{{Condition: &problem.Condition{
			Type: typ, Status: status, Reason: "Because", Message: "of that", LastTransition: at(sec),
		}}}}
	}
	for i, status := range []problem.Status{problem.False, problem.False, problem.True, problem.True, problem.Unknown, problem.True, problem.False} {
		tb.fold(turn("KernelDeadlock", status, float64(i)))
	}
	want := map[problem.Status]uint64{problem.True: 2, problem.Unknown: 1, problem.False: 1}
	for status, n := range want {
		s := tb.find("condition/KernelDeadlock", "", string(status))
		if s == nil || s.Count != n || s.Message != "KernelDeadlock is now "+string(status)+": of that" {
			t.Errorf("%s: %+v, want %d", status, s, n)
		}
		if s != nil && (s.Severity == problem.Info) != (status == problem.False) {
			t.Errorf("%s is reported as %s", status, s.Severity)
		}
	}
	tb.fold(turn("Other", problem.Unknown, 9)) // its first status
	if tb.find("condition/Other", "", "Unknown") != nil {
		t.Error("a condition's beginning was reported")
	}
}

// A condition that is True because of a problem is reported on the Node only once.
func TestProblemAndItsConditionAreReportedOnce(t *testing.T) {
	tb := newTable()
	p := &problem.Problem{
		Rule: "kernel-deadlock", Group: "811", Pod: "u1", Condition: "KernelDeadlock", Reason: "TaskHung", Message: "postgres[811] stays",
		Severity: problem.Critical, State: problem.Firing, FirstSeen: at(0), LastSeen: at(30),
	}
	c := &problem.Condition{Type: "KernelDeadlock", Status: problem.True, Reason: "TaskHung", Message: "postgres[811] stays", LastTransition: at(31)}
	tb.fold(&Item{Now: at(31), Transitions: []problem.Transition{{Problem: p}, {Condition: c}}})
	if len(tb.list) != 2 || tb.find("kernel-deadlock", "u1", "") == nil || tb.find("condition/KernelDeadlock", "", "True") == nil {
		t.Fatalf("%d series", len(tb.list))
	}
	if s := tb.find("kernel-deadlock", "u1", ""); !s.First.Equal(at(0)) || !s.Last.Equal(at(30)) {
		t.Errorf("times of the fault: %s to %s", s.First, s.Last)
	}
	// A second problem, while the condition is already True, gets its own report.
	second := *p
	second.Group, second.Message = "812", "other[812] stays"
	more := *c
	more.Message += " (and 1 more)"
	tb.fold(&Item{Now: at(40), Transitions: []problem.Transition{{Problem: &second}, {Condition: &more}}})
	if s := tb.find("kernel-deadlock", "", ""); s == nil || s.Count != 1 || tb.find("condition/KernelDeadlock", "", "True").Count != 1 {
		t.Errorf("%d series", len(tb.list))
	}
}

// A mute or a cause that ends is no occurrence, unless it has hidden the problem from its beginning.
func TestProblemThatIsRevealed(t *testing.T) {
	shown := problem.Problem{
		Rule: "hung", Group: "g", Pod: "u1", Condition: "Deadlock", Reason: "TaskHung", Message: "hangs",
		Severity: problem.Critical, State: problem.Firing, FirstSeen: at(0), LastSeen: at(1),
	}
	muted, hidden, resolved := shown, shown, shown
	muted.MutedUntil, hidden.SuppressedBy, resolved.State = at(3600), "cause", problem.Resolved
	later := func(p problem.Problem) problem.Problem { p.FirstSeen = at(100); return p }
	fires := func(p problem.Problem) problem.Transition { return problem.Transition{Problem: &p} }
	again := func(p problem.Problem) problem.Transition { return problem.Transition{Problem: &p, Again: true} }
	for name, c := range map[string]struct {
		transitions []problem.Transition
		want        uint64
	}{
		"muted for a while":           {[]problem.Transition{fires(shown), again(muted), again(shown)}, 1},
		"hidden for a while":          {[]problem.Transition{fires(shown), again(hidden), again(shown), again(muted), again(shown)}, 1},
		"muted since its start":       {[]problem.Transition{fires(muted), again(shown), again(muted), again(shown)}, 1},
		"another one since its start": {[]problem.Transition{fires(shown), again(muted), fires(resolved), fires(later(muted)), again(later(shown))}, 2},
		"fires again":                 {[]problem.Transition{fires(shown), fires(resolved), fires(later(shown)), again(later(muted)), again(later(shown))}, 2},
		"without a current series":    {[]problem.Transition{again(shown)}, 1},
	} {
		for _, subject := range []string{"u1", ""} {
			for _, restarts := range []bool{false, true} {
				tb := newTable()
				for i, tr := range c.transitions {
					p := *tr.Problem
					p.Pod = subject
					tr.Problem = &p
					tb.fold(&Item{Now: at(float64(i)), Transitions: []problem.Transition{tr}})
					if restarts {
						tb = reloaded(t, tb)
					}
				}
				r := tb.rules["hung"]
				for _, s := range tb.list {
					if s.Count != c.want {
						t.Errorf("%s, pod %q, restarts %v: %s counts %d, want %d", name, subject, restarts, s.key(), s.Count, c.want)
					}
				}
				if r.Happened != c.want || subject != "" && r.OnPods != c.want {
					t.Errorf("%s, pod %q, restarts %v: %+v, want %d", name, subject, restarts, r, c.want)
				}
			}
		}
	}
}

// The Node's report is the condition's Event.
func TestProblemOfAConditionIsRevealed(t *testing.T) {
	tb := newTable()
	p := problem.Problem{Rule: "hung", Group: "g", Condition: "Deadlock", Reason: "TaskHung", Message: "hangs", State: problem.Firing, FirstSeen: at(0), LastSeen: at(1)}
	c := &problem.Condition{Type: "Deadlock", Status: problem.True, Reason: "TaskHung", Message: "hangs", LastTransition: at(1)}
	tb.fold(&Item{Now: at(1), Transitions: []problem.Transition{{Problem: &p}, {Condition: c}}})
	muted, shown := p, p
	muted.MutedUntil = at(9)
	tb.fold(&Item{Now: at(2), Transitions: []problem.Transition{{Problem: &muted, Again: true}}}) // another problem keeps the condition True
	tb.fold(&Item{Now: at(9), Transitions: []problem.Transition{{Problem: &shown, Again: true}}})
	if len(tb.list) != 1 || tb.list[0].Count != 1 || tb.rules["hung"].Happened != 0 {
		t.Errorf("%d series, the first with %d, %+v", len(tb.list), tb.list[0].Count, tb.rules["hung"])
	}
}

// A series remembers a bounded number of problems.
func TestRevealedProblemsAreBounded(t *testing.T) {
	tb := newTable()
	tb.burst = 0
	for i := range 1000 {
		p := &problem.Problem{Rule: "hung", Group: strconv.Itoa(i), Condition: "Deadlock", State: problem.Firing, FirstSeen: at(0), LastSeen: at(1)}
		tb.fold(&Item{Now: at(1), Transitions: []problem.Transition{{Problem: p}}})
		tb.fold(&Item{Now: at(2), Transitions: []problem.Transition{{Problem: p, Again: true}}})
	}
	if s := tb.find("hung", "", ""); s.Count != 1000 || len(s.Shows) != maxShown {
		t.Errorf("%d occurrences, %d remembered", s.Count, len(s.Shows))
	}
}

// reloaded returns the table as after a restart.
func reloaded(t *testing.T, tb *table) *table {
	t.Helper()
	saved, _ := tb.state("n1", 1, at(0), time.Hour)
	text, err := json.Marshal(saved)
	var st state
	if err == nil {
		err = json.Unmarshal(text, &st)
	}
	out := newTable()
	if err == nil {
		err = out.load(&st)
	}
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// If the clock is set back, a series has the new time, and ends as if it had not been set.
func TestSeriesWhenTheClockIsSetBack(t *testing.T) {
	tb := newTable()
	tb.fold(kill("pod-1", 86400))
	if s := tb.find("oom-kill", "pod-1", ""); !s.Last.Equal(at(86400)) || !s.Heard.Equal(at(86400)) {
		t.Fatalf("last %s, heard %s", s.Last, s.Heard)
	}
	ended := *tb.find("oom-kill", "pod-1", "")
	ended.Acked = ended.Count
	if !ended.over(at(0), 10*time.Minute) || ended.over(at(86400-60), 10*time.Minute) {
		t.Error("a series does not end at a time a day before it was last heard of")
	}
	tb.fold(kill("pod-1", 0))
	if s := tb.find("oom-kill", "pod-1", ""); !s.Last.Equal(at(0)) || !s.Heard.Equal(at(0)) || s.Count != 2 {
		t.Errorf("last %s, heard %s, %d occurrences", s.Last, s.Heard, s.Count)
	}
	// An occurrence that is reported late does not set the time of the latest one back.
	late := kill("pod-1", -5)
	late.Now = at(1)
	tb.fold(late)
	if s := tb.find("oom-kill", "pod-1", ""); !s.Last.Equal(at(0)) || !s.Heard.Equal(at(1)) {
		t.Errorf("last %s, heard %s", s.Last, s.Heard)
	}
}

func TestBounds(t *testing.T) {
	tb := newTable()
	tb.max, tb.burst = 10, 1000
	for i := range 3000 {
		it := kill(fmt.Sprint("pod-", i), 0)
		it.Transitions[0].Problem.Rule = fmt.Sprint("rule-", i%1500)
		tb.fold(it)
	}
	if len(tb.list) > 10+reserve || len(tb.rules) > maxRules+1 {
		t.Errorf("%d series, %d rules", len(tb.list), len(tb.rules))
	}
	happened, reported, dropped := uint64(0), uint64(0), uint64(0)
	for _, r := range tb.rules {
		happened += r.Happened
		dropped += r.Dropped[AstrayRoom]
	}
	for _, s := range tb.list {
		if s.Pod == "" {
			reported += s.Count
		}
	}
	if happened != 3000 || reported+dropped != 3000 || dropped == 0 {
		t.Errorf("%d happened, %d reported, %d dropped", happened, reported, dropped)
	}
}

func TestText(t *testing.T) {
	shop := func(uid string) (pods.Pod, bool) {
		return pods.Pod{Namespace: "shop", Name: "web-1"}, uid == "u1"
	}
	for _, c := range []struct {
		s    series
		want string
	}{
		{series{Message: "killed in pod u1 container c", About: "u1"}, "killed in pod shop/web-1 container c"},
		{series{Message: "killed", About: "u1"}, "killed (pod shop/web-1)"},
		{series{Message: "killed", About: "u1", Pod: "u1"}, "killed"},
		{series{Message: "killed", About: "u2"}, "killed (pod u2)"},
		{series{Message: "killed in pod u2", About: "u2"}, "killed in pod u2"},
		{series{Message: "killed", Mixed: true, Count: 7, Unreported: 2}, "(the latest of several) killed (2 of 7 not reported on their pods)"},
	} {
		if got := c.s.text(shop); got != c.want {
			t.Errorf("%q, want %q", got, c.want)
		}
	}
	long := series{Message: display.Bounded(strings.Repeat("ä\x1b\n", 1000), maxMessage), Unreported: 1, Count: 2}
	if got := long.text(shop); len(got) > maxMessage || !strings.HasSuffix(got, "…"+" (1 of 2 not reported on their pods)") || strings.ContainsAny(got, "\x1b\n") {
		t.Errorf("%d bytes: %q", len(got), got)
	}
}

func TestReason(t *testing.T) {
	for in, want := range map[string]string{
		"OOMKilling": "OOMKilling", "ntp is down": "NtpIsDown", "disk-full_now": "DiskFullNow", "9lives": "Lives", "": "Problem",
		"\x1b[31m": "M", "…": "Problem", strings.Repeat("A", 300): strings.Repeat("A", conditions.MaxReason),
	} {
		if got := reason(in); got != want {
			t.Errorf("%q gives %q, want %q", in, got, want)
		}
	}
}

func TestLabelsAreBounded(t *testing.T) {
	many := map[string]string{}
	for i := range 500 {
		many[fmt.Sprintf("key-%03d", i)] = strings.Repeat("v", 63)
	}
	got := boundedLabels(many)
	if len(got) != maxLabels || got["key-000"] == "" || got["key-064"] != "" {
		t.Errorf("%d labels", len(got))
	}
	if boundedLabels(nil) != nil {
		t.Error("no labels became some")
	}
}

// A series that an earlier release has saved keeps its Event.
func TestNameOfASeries(t *testing.T) {
	s := series{Rule: "oom-kill", Pod: "u", First: at(0)}
	if got := s.name("n1"); got != "kernosis-d7352df2fe8acbbb0b260fa3bb82ff20" {
		t.Errorf("named %s", got)
	}
}

func TestBackoff(t *testing.T) {
	for n := range 100 {
		if d := backoff(n, lastRetry); d < firstRetry/2 || d > lastRetry || n > 10 && d < lastRetry/2 {
			t.Errorf("after %d failures %s", n, d)
		}
	}
}

func FuzzReason(f *testing.F) {
	f.Add("ntp is down")
	f.Fuzz(func(t *testing.T, in string) {
		got := reason(in)
		if got == "" || len(got) > conditions.MaxReason || got[0] < 'A' || got[0] > 'Z' || strings.ContainsFunc(got, func(r rune) bool {
			return (r < 'A' || r > 'Z') && (r < 'a' || r > 'z') && (r < '0' || r > '9')
		}) {
			t.Errorf("%q gives %q", in, got)
		}
	})
}

func FuzzText(f *testing.F) {
	f.Add("killed in pod u1", "u1")
	f.Fuzz(func(t *testing.T, message, about string) {
		s := series{Message: display.Bounded(message, maxMessage), About: "u1", Unreported: 3, Count: 9, Mixed: true}
		got := s.text(func(string) (pods.Pod, bool) { return pods.Pod{Namespace: "n", Name: "p"}, about != "" })
		if len(got) > maxMessage || strings.ContainsAny(got, "\x00\n\r\x1b") {
			t.Errorf("%q", got)
		}
	})
}

func BenchmarkFold(b *testing.B) {
	tb := newTable()
	items := make([]*Item, 300)
	for i := range items {
		items[i] = kill(fmt.Sprint("pod-", i), 1)
	}
	b.ReportAllocs()
	i := 0
	for b.Loop() {
		tb.fold(items[i%300])
		i++
	}
}
