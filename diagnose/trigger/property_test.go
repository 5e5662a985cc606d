package trigger_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kernosis/kernosis/detector/problem"
	"github.com/kernosis/kernosis/diagnose/api/v1alpha1"
	"github.com/kernosis/kernosis/diagnose/trigger"
)

// input is one call of an engine.
type input struct {
	now  time.Time
	call func(*trigger.Engine, time.Time) []*v1alpha1.Diagnosis
}

// Whenever the process ends, and from whichever input before the last one in its state it
// continues, the wanted Diagnoses are those of a process that never ends.
func TestRestartsChangeNothing(t *testing.T) {
	for seed := range uint64(24) {
		rnd := rand.New(rand.NewPCG(seed, 7))
		matchers := randomMatchers(t, rnd)
		inputs := randomInputs(rnd, 400)
		want := map[string]bool{}
		one := engineOf(t, matchers...)
		for _, in := range inputs {
			for _, dx := range in.call(one, in.now) {
				if want[dx.Name] {
					t.Fatalf("seed %d: %s is wanted twice", seed, dx.Name)
				}
				want[dx.Name] = true
				if seed == 0 {
					acceptable(t, dx)
				}
			}
		}
		have := map[string]bool{}
		e, saved := engineOf(t, matchers...), 0 // the inputs that the state on disk includes
		disk := e.State()
		for i := 0; i < len(inputs); {
			for _, dx := range inputs[i].call(e, inputs[i].now) {
				have[dx.Name] = true
			}
			i++
			if rnd.IntN(20) == 0 {
				disk, saved = e.State(), i
			}
			if rnd.IntN(30) == 0 { // kill -9
				e = fromDisk(t, disk, matchers)
				i = saved
				if rnd.IntN(2) == 0 {
					i = max(0, saved-rnd.IntN(50)) // inputs that it already knows are reported again
				}
			}
		}
		if !maps.Equal(have, want) {
			t.Fatalf("seed %d: %d Diagnoses, without restarts %d", seed, len(have), len(want))
		}
		if len(want) < 10 {
			t.Errorf("seed %d: only %d Diagnoses", seed, len(want))
		}
	}
}

func fromDisk(tb testing.TB, disk *trigger.State, matchers []*trigger.Matcher) *trigger.Engine {
	tb.Helper()
	data, err := json.Marshal(disk)
	if err != nil {
		tb.Fatal(err)
	}
	state, err := trigger.ParseState(data)
	if err != nil {
		tb.Fatal(err)
	}
	e := newEngine(tb)
	if err := e.Restore(state); err != nil {
		tb.Fatal(err)
	}
	if err := e.Install(matchers); err != nil {
		tb.Fatal(err)
	}
	return e
}

func randomMatchers(tb testing.TB, rnd *rand.Rand) []*trigger.Matcher {
	tb.Helper()
	var specs []string
	for _, template := range []string{
		`problemTemplate: {rules: [r0, r1]}`, `problemTemplate: {minSeverity: warning}`, `problemTemplate: {minSeverity: critical}`,
		`problemTemplate: {namespaces: [shop]}`, `prometheusAlertTemplate: {regexp: {labels: {alertname: "A[0-4]"}}, nodeNameReferenceLabel: node}`,
		`kubernetesEventTemplate: {regexp: {reason: Mount}}`,
	} {
		specs = append(specs, fmt.Sprintf(`{operationSet: s, cooldown: %dm, rateLimit: {count: %d, within: %dm}, sourceTemplate: {%s}}`,
			rnd.IntN(4)*5, 1+rnd.IntN(20), 1+rnd.IntN(60), template))
	}
	specs = append(specs, `{operationSet: s, nodeName: n1, rateLimit: {count: 1000}, sourceTemplate: {cronTemplate: {schedule: "*/7 * * * *"}}}`)
	return matchersOf(tb, specs...)
}

// randomInputs returns what a node and a cluster may report: problems with all their transitions,
// repeated alerts and Events, and ticks.
func randomInputs(rnd *rand.Rand, n int) []input {
	now := start
	current := map[string]*problem.Problem{}
	alerts := map[string]time.Time{}
	events := map[string]time.Time{}
	inputs := []input{tick(now)}
	for range n {
		now = now.Add(time.Duration(rnd.Int64N(int64(90 * time.Second))))
		switch rnd.IntN(8) {
		case 0:
			inputs = append(inputs, tick(now))
		case 1:
			name := fmt.Sprintf("A%d", rnd.IntN(6))
			if alerts[name].IsZero() || rnd.IntN(4) == 0 {
				alerts[name] = now
			}
			a := &trigger.Alert{Labels: map[string]string{"alertname": name, "node": "n9"}, StartsAt: alerts[name]}
			inputs = append(inputs, input{now, func(e *trigger.Engine, at time.Time) []*v1alpha1.Diagnosis { return e.Alert(a, trigger.Known{}, at) }})
		case 2:
			name := fmt.Sprintf("e%d", rnd.IntN(6))
			if events[name].IsZero() || rnd.IntN(4) == 0 {
				events[name] = now
			}
			ev := mount(events[name])
			ev.Name, ev.InvolvedObject.Name, ev.LastTimestamp = name, name, metav1.NewTime(now)
			inputs = append(inputs, input{now, func(e *trigger.Engine, at time.Time) []*v1alpha1.Diagnosis {
				return e.KubeEvent(ev, trigger.Known{}, at)
			}})
		default:
			inputs = append(inputs, transition(rnd, current, now))
		}
	}
	return inputs
}

func tick(now time.Time) input {
	return input{now, func(e *trigger.Engine, at time.Time) []*v1alpha1.Diagnosis { return e.Tick(trigger.Known{}, at) }}
}

// transition returns the next transition of some problem.
func transition(rnd *rand.Rand, current map[string]*problem.Problem, now time.Time) input {
	rule, group := fmt.Sprintf("r%d", rnd.IntN(4)), fmt.Sprintf("g%d", rnd.IntN(4))
	p := current[rule+group]
	if p == nil || p.State == problem.Resolved {
		p = firing(rule, group, now)
		p.Severity = []problem.Severity{problem.Info, problem.Warning, problem.Critical}[rnd.IntN(3)]
		p.Subject = "unit " + group
		if rnd.IntN(3) == 0 {
			p.MutedUntil = now.Add(time.Minute)
		}
	} else {
		next := *p
		p = &next
		p.Count++
		switch rnd.IntN(4) {
		case 0:
			p.State = problem.Resolved
		case 1:
			p.Severity, p.MutedUntil = problem.Critical, time.Time{}
		case 2:
			p.Subject, p.SuppressedBy = "another", []string{"", "r0"}[rnd.IntN(2)]
		}
	}
	current[rule+group] = p
	var pod *trigger.Pod
	if slices.Contains([]string{"g0", "g1"}, group) {
		p.Pod, pod = "uid-"+group, &trigger.Pod{Namespace: "shop", Name: group, UID: "uid-" + group}
	}
	return input{now, func(e *trigger.Engine, at time.Time) []*v1alpha1.Diagnosis { return e.Problem(p, pod, at) }}
}

// Whatever others write, the resulting Diagnosis is valid for the API server.
func FuzzProblem(f *testing.F) {
	f.Add("oom-kill", "g", "unit a", "killed", "4bb5c9f0-0000-4000-8000-000000000001", "pg", "/kubepods/x", "/data", int64(0))
	f.Add("", "", "", "\x00\xff\u202e", "..", "\x1b", "…/x", "a\nb", int64(1)<<62)
	matchers := matchersOf(f, `{operationSet: s, sourceTemplate: {problemTemplate: {minSeverity: info}}}`)
	f.Fuzz(func(t *testing.T, rule, group, subject, message, uid, name, cgroup, mount string, first int64) {
		at := time.Unix(first%(1<<33), first%1000)
		if at.IsZero() {
			return
		}
		e := engineOf(t, matchers...)
		p := firing(rule, group, at)
		p.Subject, p.Message, p.Pod, p.Reason = subject, message, uid, name
		p.Evidence = evidence(name, cgroup, mount, uid)
		dx := only(t, e.Problem(p, &trigger.Pod{Namespace: name, Name: subject, UID: uid, Container: cgroup}, at))
		if again := engineOf(t, matchers...).Problem(p, nil, at); again[0].Name != dx.Name {
			t.Errorf("%s, and without the pod %s", dx.Name, again[0].Name)
		}
		none(t, restarted(t, e, matchers).Problem(p, nil, at))
	})
}
