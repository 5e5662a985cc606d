package trigger_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/kernosis/kernosis/collector/document"
	"github.com/kernosis/kernosis/detector/problem"
	"github.com/kernosis/kernosis/diagnose/api/v1alpha1"
	"github.com/kernosis/kernosis/diagnose/manifest"
	"github.com/kernosis/kernosis/diagnose/trigger"
)

var start = time.Date(2026, 3, 1, 12, 0, 0, 123456789, time.UTC)

func after(d time.Duration) time.Time { return start.Add(d) }

func newEngine(tb testing.TB) *trigger.Engine {
	tb.Helper()
	return engineAt(tb, func() time.Time { return after(1000 * time.Hour) }) // later than all events
}

func engineAt(tb testing.TB, clock func() time.Time) *trigger.Engine {
	tb.Helper()
	e, err := trigger.NewEngine(trigger.Config{Node: "n7", Namespace: "kernosis-system", Clock: clock})
	if err != nil {
		tb.Fatal(err)
	}
	return e
}

func engineOf(tb testing.TB, matchers ...*trigger.Matcher) *trigger.Engine {
	tb.Helper()
	e := newEngine(tb)
	if err := e.Install(matchers); err != nil {
		tb.Fatal(err)
	}
	return e
}

// engineWith returns an engine with triggers t0, t1 … with these specs.
func engineWith(tb testing.TB, specs ...string) *trigger.Engine {
	tb.Helper()
	return engineOf(tb, matchersOf(tb, specs...)...)
}

func matchersOf(tb testing.TB, specs ...string) []*trigger.Matcher {
	tb.Helper()
	var all []*trigger.Matcher
	for i, s := range specs {
		all = append(all, compile(tb, newTrigger(tb, fmt.Sprintf("t%d", i), s)))
	}
	return all
}

// firing returns a problem that begins to fire.
func firing(rule, group string, first time.Time) *problem.Problem {
	return &problem.Problem{
		Rule: rule, Fault: rule, Group: group, Reason: "OOMKilling", Message: "killed", Severity: problem.Warning,
		State: problem.Firing, Subject: "unit " + group, FirstSeen: first, LastSeen: first, Since: first, Count: 1,
	}
}

func only(tb testing.TB, wanted []*v1alpha1.Diagnosis) *v1alpha1.Diagnosis {
	tb.Helper()
	if len(wanted) != 1 {
		tb.Fatalf("%d Diagnoses: %v", len(wanted), names(wanted))
	}
	acceptable(tb, wanted[0])
	return wanted[0]
}

func none(tb testing.TB, wanted []*v1alpha1.Diagnosis) {
	tb.Helper()
	if len(wanted) != 0 {
		tb.Fatalf("%d Diagnoses: %v", len(wanted), names(wanted))
	}
}

func names(wanted []*v1alpha1.Diagnosis) []string {
	var all []string
	for _, dx := range wanted {
		all = append(all, dx.Name)
	}
	return all
}

var reader = sync.OnceValues(manifest.NewReader)

// acceptable checks that the API server would accept a Diagnosis, and that its name is a valid
// label value.
func acceptable(tb testing.TB, dx *v1alpha1.Diagnosis) {
	tb.Helper()
	r, err := reader()
	if err != nil {
		tb.Fatal(err)
	}
	text, err := json.Marshal(dx)
	if err != nil {
		tb.Fatal(err)
	}
	set, err := r.Parse(document.File{Name: "dx.yaml", Data: text})
	if err != nil {
		tb.Fatalf("%s\n%s", err, text)
	}
	if len(set.Diagnoses) != 1 || !reflect.DeepEqual(set.Diagnoses[0].Spec, dx.Spec) {
		tb.Errorf("%+v read as %+v", dx.Spec, set.Diagnoses[0].Spec)
	}
	if len(dx.Name) > 63 || strings.Contains(dx.Name, ".") || len(dx.OwnerReferences) > 0 {
		tb.Errorf("%+v", dx.ObjectMeta)
	}
	if dx.Labels[v1alpha1.LabelTrigger] == "" || dx.Labels[trigger.LabelSource] == "" {
		tb.Error(dx.Labels)
	}
	for _, a := range []string{trigger.AnnotationTriggeredBy, trigger.AnnotationSubject, trigger.AnnotationEpisode} {
		if v := dx.Annotations[a]; v == "" || strings.ContainsAny(v, "\n\x1b") {
			tb.Errorf("%s: %q", a, v)
		}
	}
}

func counts(tb testing.TB, e *trigger.Engine, name string, started uint64, withheld map[string]uint64) {
	tb.Helper()
	have := e.Stats().Triggers[name]
	if have.Started != started || !maps.Equal(have.Withheld, withheld) {
		tb.Errorf("%s: %d started, withheld %v; want %d, %v", name, have.Started, have.Withheld, started, withheld)
	}
}

// restarted returns an engine with another one's state, via JSON.
func restarted(tb testing.TB, e *trigger.Engine, matchers []*trigger.Matcher) *trigger.Engine {
	tb.Helper()
	data, err := json.Marshal(e.State())
	if err != nil {
		tb.Fatal(err)
	}
	state, err := trigger.ParseState(data)
	if err != nil {
		tb.Fatal(err)
	}
	next := newEngine(tb)
	if err := next.Restore(state); err != nil {
		tb.Fatal(err)
	}
	if err := next.Install(matchers); err != nil {
		tb.Fatal(err)
	}
	if again, err := json.Marshal(next.State()); err != nil || string(again) != string(data) {
		tb.Fatalf("%s\nis restored as\n%s", data, again)
	}
	return next
}

const anyOOM = `{operationSet: s, sourceTemplate: {problemTemplate: {rules: [oom-kill]}}}`

// Names are API: if they changed, an upgrade would create the same Diagnosis twice.
func TestNamesStay(t *testing.T) {
	e := engineWith(t, anyOOM)
	dx := only(t, e.Problem(firing("oom-kill", "a.service", start), nil, start))
	if want := "t0-n7-2dd15320ce4dc620"; dx.Name != want {
		t.Errorf("%s, want %s", dx.Name, want)
	}
}

func TestNamesAreBounded(t *testing.T) {
	long := strings.Repeat("long-name-of-a-trigger.", 2) + "and-more-of-it-17"
	e, err := trigger.NewEngine(trigger.Config{Node: "ip-10-0-1-23.eu-west-1.compute.internal", Namespace: "x"})
	if err != nil {
		t.Fatal(err)
	}
	if err := e.Install([]*trigger.Matcher{compile(t, newTrigger(t, long, anyOOM))}); err != nil {
		t.Fatal(err)
	}
	dx := only(t, e.Problem(firing("oom-kill", "a", start), nil, start))
	if len(dx.Name) > 63 || !strings.HasPrefix(dx.Name, "long-name-of-a-trigger-lo") || !strings.Contains(dx.Name, "-ip-10-0-1-23-eu-west-") {
		t.Error(dx.Name)
	}
}

// A subject gets one Diagnosis per cooldown, and a trigger no more than its limit.
func TestCooldownAndRateLimit(t *testing.T) {
	const spec = `{operationSet: s, cooldown: 10m, rateLimit: {count: 3, within: 1h}, sourceTemplate: {problemTemplate: {rules: [oom-kill]}}}`
	e := engineWith(t, spec)
	report := func(group string, at time.Duration) int {
		return len(e.Problem(firing("oom-kill", group, after(at)), nil, after(at)))
	}
	for i, step := range []struct {
		group string
		at    time.Duration
		want  int
	}{
		{"a", 0, 1},
		{"a", 5 * time.Minute, 0}, // cooldown
		{"b", 6 * time.Minute, 1}, // another subject
		{"a", 10*time.Minute - 1, 0},
		{"a", 10 * time.Minute, 1},
		{"c", 20 * time.Minute, 0}, // three are within the last hour
		{"c", time.Hour - 1, 0},
		{"c", time.Hour, 1}, // the first was an hour ago
		{"d", time.Hour + time.Minute, 0},
		{"d", time.Hour + 6*time.Minute, 1},
	} {
		if got := report(step.group, step.at); got != step.want {
			t.Errorf("step %d, %s at %s: %d, want %d", i, step.group, step.at, got, step.want)
		}
	}
	counts(t, e, "t0", 5, map[string]uint64{trigger.WithheldCooldown: 2, trigger.WithheldRateLimit: 3})
}

// When a clock that was ahead is corrected, Diagnoses are not withheld for as long as it was ahead.
func TestClockThatIsSetBack(t *testing.T) {
	e := engineWith(t, `{operationSet: s, cooldown: 10m, rateLimit: {count: 1, within: 1h}, sourceTemplate: {problemTemplate: {rules: [oom-kill]}}}`)
	only(t, e.Problem(firing("oom-kill", "a", after(0)), nil, after(24*time.Hour)))
	none(t, e.Problem(firing("oom-kill", "a", after(1)), nil, after(24*time.Hour-5*time.Minute)))
	only(t, e.Problem(firing("oom-kill", "a", after(2)), nil, after(2*time.Hour)))
}

// An episode that began before the clock was set back does not hide later ones.
func TestEpisodesBehindAClockThatWasSetBack(t *testing.T) {
	var now time.Time
	e := engineAt(t, func() time.Time { return now })
	if err := e.Install(matchersOf(t, `{operationSet: s, cooldown: 10m, sourceTemplate: {problemTemplate: {rules: [oom-kill]}}}`,
		`{operationSet: s, cooldown: 10m, nodeName: n1, sourceTemplate: {prometheusAlertTemplate: {regexp: {alertName: Down}}}}`)); err != nil {
		t.Fatal(err)
	}
	down := &trigger.Alert{Labels: map[string]string{"alertname": "Down"}} // without a start, each counts as new
	for _, now = range []time.Time{after(24 * time.Hour), after(2 * time.Hour)} {
		only(t, e.Problem(firing("oom-kill", "a", now), nil, now))
		none(t, e.Problem(firing("oom-kill", "a", now.Add(-time.Minute)), nil, now)) // a late report
		only(t, e.Alert(down, trigger.Known{}, now))
	}
}

// Memory is bounded, and premature evictions are counted.
func TestMemoryIsBounded(t *testing.T) {
	const often = `{operationSet: s, cooldown: 10m, rateLimit: {count: 1000, within: 1h}, sourceTemplate: {problemTemplate: {rules: [oom-kill]}}}`
	m := matchersOf(t, often, often, often, often, often)
	e := engineOf(t, m...)
	for i := range 5000 {
		e.Problem(firing("oom-kill", strconv.Itoa(i), start), nil, start)
	}
	st := e.Stats()
	if st.Streams != 4096 || st.Subjects != 4096 || st.ForgottenEarly != 5*1000-4096 {
		t.Errorf("%+v", st)
	}
	if s := e.State(); len(s.Streams) != 4096 || len(s.Subjects) != 4096 || len(s.Triggers[0].Started) != 1000 {
		t.Errorf("%d %d %d", len(s.Streams), len(s.Subjects), len(s.Triggers[0].Started))
	}
	counts(t, e, "t0", 1000, map[string]uint64{trigger.WithheldRateLimit: 4000})
	// An evicted stream begins again, under the same names.
	again := names(e.Problem(firing("oom-kill", "0", start), nil, after(time.Hour)))
	first := names(engineOf(t, m...).Problem(firing("oom-kill", "0", start), nil, start))
	if len(first) != 5 || !slices.Equal(first, again) {
		t.Error(first, again)
	}
}

func TestInstall(t *testing.T) {
	e := newEngine(t)
	m := matchersOf(t, anyOOM, anyOOM)
	if err := e.Install([]*trigger.Matcher{m[1], m[0], m[1]}); err == nil {
		t.Error("two triggers of a name were installed")
	}
	if err := e.Install([]*trigger.Matcher{m[1], m[0]}); err != nil {
		t.Fatal(err)
	}
	// Sorted by name, whatever the order was.
	if got := e.Problem(firing("oom-kill", "a", start), nil, start); len(got) != 2 || !slices.IsSorted(names(got)) {
		t.Error(names(got))
	}
	// A changed trigger keeps its cooldown; one that was removed and added again does not keep its
	// counters.
	if err := e.Install(m[:1]); err != nil {
		t.Fatal(err)
	}
	none(t, e.Problem(firing("oom-kill", "a", after(1)), nil, after(1)))
	if err := e.Install(m); err != nil {
		t.Fatal(err)
	}
	counts(t, e, "t0", 1, map[string]uint64{trigger.WithheldCooldown: 1})
	counts(t, e, "t1", 0, nil)
	controller, err := trigger.NewEngine(trigger.Config{Namespace: "x"})
	if err != nil {
		t.Fatal(err)
	}
	if err := controller.Install(m); err == nil {
		t.Error("problems without a node")
	}
	for _, bad := range []trigger.Config{{}, {Namespace: "A"}, {Namespace: "x", Node: "a b"}} {
		if _, err := trigger.NewEngine(bad); err == nil {
			t.Errorf("%+v", bad)
		}
	}
}

func TestStatesThatAreNone(t *testing.T) {
	for text, want := range map[string]string{
		`{"version":2}`:                         "trigger state: it is from a newer version of Kernosis: format 2, known up to 1",
		`{"version":1,"streams":[{"id":"00"}]}`: `trigger state: "00" is not 16 bytes in hexadecimal`,
		`{`:                                     "trigger state: unexpected end of JSON input",
		`{"version":1,"triggers":[{"name":"t","started":[` + strings.Repeat(`"2026-01-01T00:00:00Z",`, 1000) + `"2026-01-01T00:00:00Z"]}]}`: `trigger state: trigger "t": 1001 times, at most 1000`,
	} {
		s, err := trigger.ParseState([]byte(text))
		if err == nil {
			err = newEngine(t).Restore(s)
		}
		if err == nil || err.Error() != want {
			t.Errorf("%.60s: %v, want %s", text, err, want)
		}
	}
}
