package controller

import (
	"fmt"
	"strings"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kernosis/kernosis/diagnose/api/v1alpha1"
)

func at(seconds int) time.Time {
	return time.Date(2026, 3, 4, 5, 0, 0, 0, time.UTC).Add(time.Duration(seconds) * time.Second)
}

func TestJudge(t *testing.T) {
	p := &Config{PendingSilent: 600 * time.Second, RunningSilent: 3600 * time.Second}
	alive, silent, none := agent{known: true, alive: true, last: at(0), since: at(0)}, agent{known: true, last: at(100)}, agent{}
	runs := alive
	runs.holder, runs.runs = at(0), true
	other := alive // there is another agent, since the one that ran it has gone
	other.holder = at(9000)
	pending := func(change ...func(*v1alpha1.Diagnosis)) *v1alpha1.Diagnosis {
		d := &v1alpha1.Diagnosis{ObjectMeta: metav1.ObjectMeta{CreationTimestamp: metav1.NewTime(at(0))}, Spec: v1alpha1.DiagnosisSpec{NodeName: "n1"}}
		for _, c := range change {
			c(d)
		}
		return d
	}
	reported := func(seconds int) func(*v1alpha1.Diagnosis) {
		return func(d *v1alpha1.Diagnosis) {
			d.Status.Phase, d.Status.Checkpoint = v1alpha1.PhaseRunning, &v1alpha1.Checkpoint{Holder: "h", Time: metav1.NewMicroTime(at(seconds))}
		}
	}
	waits := func(d *v1alpha1.Diagnosis) {
		d.Status.Results = []v1alpha1.Result{{ID: 1, State: v1alpha1.ResultAwaitingApproval}}
	}
	intent := func(d *v1alpha1.Diagnosis) {
		d.Status.Checkpoint.Intent = &v1alpha1.Intent{ID: 1, Operation: "reboot"}
	}
	back := agent{known: true, alive: true, last: at(3700), since: at(3700)}
	said := func(seconds int) func(*v1alpha1.Diagnosis) {
		return func(d *v1alpha1.Diagnosis) {
			complete(d, metav1.ConditionFalse, v1alpha1.ReasonAgentSilent, "", at(seconds))
		}
	}
	p.Silent = 50 * time.Second
	cancel := func(d *v1alpha1.Diagnosis) { d.Spec.Cancel = true }
	full := func(d *v1alpha1.Diagnosis) {
		complete(d, metav1.ConditionFalse, v1alpha1.ReasonQueueFull, "", at(1))
	}
	for name, c := range map[string]struct {
		d     *v1alpha1.Diagnosis
		agent agent
		now   int
		want  string // phase, reason
	}{
		"new":                                   {pending(), alive, 1, ""},
		"no place for long":                     {pending(full), alive, 99999, ""},
		"no place, and cancelled":               {pending(full, cancel), alive, 1, "Cancelled Cancelled"}, //nolint:dupword // phase and reason
		"no place, and agent silent":            {pending(full), silent, 3700, "AgentSilent"},
		"agent never reported":                  {pending(), none, 1, "AgentSilent"},
		"agent never reported, for long":        {pending(said(500)), none, 600, "Failed NodeSilent"},
		"silent for long, and not said":         {pending(), none, 600, "AgentSilent"},
		"silent for long, and said just now":    {pending(said(560)), none, 600, "AgentSilent"},
		"runs, silent for long, not said":       {pending(reported(50)), silent, 3700, "AgentSilent"},
		"runs, agent back after long":           {pending(reported(50), said(200)), back, 3701, ""},
		"not begun, agent back after long":      {pending(said(200)), back, 3701, ""},
		"runs, agent back, nothing reported":    {pending(reported(50)), back, 7300, "Failed NodeSilent"},
		"agent silent":                          {pending(), silent, 699, "AgentSilent"},
		"agent silent for long":                 {pending(said(600)), silent, 700, "Failed NodeSilent"},
		"agent reports, not begun":              {pending(), alive, 3599, ""},
		"agent reports, not begun for long":     {pending(), alive, 3600, "Failed NodeSilent"},
		"in the agent's queue":                  {pending(reported(3000), func(d *v1alpha1.Diagnosis) { d.Status.Phase = v1alpha1.PhasePending }), runs, 999999, ""},
		"cancelled, agent reports":              {pending(cancel), alive, 10, ""},
		"cancelled, agent silent":               {pending(cancel), silent, 200, string(v1alpha1.PhaseCancelled) + " " + v1alpha1.ReasonCancelled},
		"runs":                                  {pending(reported(50)), alive, 60, ""},
		"runs, agent silent":                    {pending(reported(50)), silent, 3699, "AgentSilent"},
		"runs, agent silent for long":           {pending(reported(50), said(3600)), silent, 3700, "Failed NodeSilent"},
		"runs, reported after the last renewal": {pending(reported(200), said(300)), silent, 3799, "AgentSilent"},
		"runs, a clock that is ahead":           {pending(reported(999999), said(300)), silent, 3700, "Failed NodeSilent"},
		"silent before, a clock ahead":          {pending(reported(999999), said(300)), silent, 3699, "AgentSilent"},
		"left, a clock that is ahead":           {pending(reported(999999)), alive, 3650, "Failed NodeSilent"},
		"runs, and no Lease ever":               {pending(reported(50), said(300)), none, 3650, "Failed NodeSilent"},
		"runs, nothing reported for long":       {pending(reported(50)), alive, 3650, "Failed NodeSilent"},
		"runs, for long":                        {pending(reported(50)), runs, 999999, ""},
		"waits for leave":                       {pending(reported(50), waits), runs, 999999, ""},
		"waits for leave, nobody runs it":       {pending(reported(50), waits), alive, 3650, "Failed NodeSilent"},
		"is to be taken over":                   {pending(reported(50)), other, 12599, ""},
		"is not taken over":                     {pending(reported(50)), other, 12600, "Failed NodeSilent"},
		"waits for leave, agent silent long":    {pending(reported(50), waits, said(300)), silent, 3700, "Failed NodeSilent"},
		"repairs, agent silent for long":        {pending(reported(50), intent, said(300)), silent, 3700, "Unknown OutcomeUnknown"},
		"runs, cancelled, agent silent":         {pending(reported(50), cancel), silent, 200, "AgentSilent"},
	} {
		s := judge(c.d, c.agent, p, at(c.now))
		if have := strings.TrimSpace(string(s.phase) + " " + s.reason); have != c.want {
			t.Errorf("%s: %q, want %q (%s)", name, have, c.want, s.message)
		}
		if (s.phase == "") != (s.again > 0) {
			t.Errorf("%s: looked at again after %s", name, s.again)
		}
	}
}

// Whatever happens, a Diagnosis whose agent is silent ends after some time.
func TestNothingLastsForEver(t *testing.T) {
	p := &Config{Silent: 50 * time.Second, PendingSilent: time.Minute, RunningSilent: time.Hour}
	for _, phase := range []v1alpha1.Phase{"", v1alpha1.PhasePending, v1alpha1.PhaseRunning} {
		for _, a := range []agent{{}, {known: true, last: at(10)}} {
			d := &v1alpha1.Diagnosis{ObjectMeta: metav1.ObjectMeta{CreationTimestamp: metav1.NewTime(at(0))}}
			d.Status.Phase = phase
			now := at(0)
			for looks := 0; ; looks++ {
				s := judge(d, a, p, now)
				if s.phase != "" {
					break
				}
				apply(d, &s, now)
				if now = now.Add(s.again); now.After(at(0).Add(2*p.RunningSilent)) || looks > 10000 {
					t.Fatalf("%q %+v: has not ended by %s, after %d looks", phase, a, now, looks)
				}
			}
		}
	}
}

// Many agents that miss renewals together get three times as long.
func TestACrowdOfLateAgents(t *testing.T) {
	for late, alive := range map[int]bool{10: false, 11: true} {
		a := newAgents(50 * time.Second)
		see := func(from, says int) {
			for i := from; i < 111; i++ {
				r := metav1.NewMicroTime(at(says))
				a.see(fmt.Sprint("n", i), &coordinationv1.Lease{Spec: coordinationv1.LeaseSpec{RenewTime: &r}}, at(says))
			}
		}
		see(0, 0)
		see(late, 30)
		a.of("n0", "", at(40))
		if have := a.of("n0", "", at(51)); have.alive != alive {
			t.Errorf("of %d late agents: %+v", late, have)
		}
		see(1, 60)
		if have := a.of("n0", "", at(150)); have.alive {
			t.Errorf("for ever: %+v", have)
		}
	}
}

func TestAgents(t *testing.T) {
	a := newAgents(50 * time.Second)
	lease := func(says int) *coordinationv1.Lease {
		r := metav1.NewMicroTime(at(says))
		return &coordinationv1.Lease{Spec: coordinationv1.LeaseSpec{RenewTime: &r}}
	}
	if have := a.of("n1", "", at(0)); have.known || have.alive {
		t.Errorf("%+v", have)
	}
	// A controller that has just started gives it one period, but knows how long it has been
	// silent.
	if !a.see("n1", lease(-5000), at(0)) {
		t.Error("a Lease that is new tells nobody")
	}
	if have := a.of("n1", "", at(49)); !have.alive || !have.last.Equal(at(-5000)) {
		t.Errorf("%+v", have)
	}
	if have := a.of("n1", "", at(50)); have.alive {
		t.Errorf("%+v", have)
	}
	if a.see("n1", lease(-5000), at(55)) || a.of("n1", "", at(55)).alive {
		t.Error("a Lease that is the same is a renewal")
	}
	if !a.see("n1", lease(-4900), at(60)) {
		t.Error("an agent that is back tells nobody")
	}
	if have := a.of("n1", "", at(61)); !have.alive || !have.last.Equal(at(60)) {
		t.Errorf("%+v", have)
	}
	if a.see("n1", lease(-4880), at(80)) {
		t.Error("each renewal has Diagnoses looked at")
	}
	// A node's clock that is ahead does not count.
	a.see("n2", lease(9999), at(0))
	if have := a.of("n2", "", at(1)); have.last.After(at(0)) {
		t.Errorf("%+v", have)
	}
	seconds := int32(400)
	long := lease(100)
	long.Spec.LeaseDurationSeconds = &seconds
	a.see("n1", long, at(100))
	if !a.of("n1", "", at(599)).alive || a.of("n1", "", at(600)).alive {
		t.Error("what a Lease says of its length does not count")
	}
	// Two agents of a node are distinguished by their stamps, each of which counts by our clock.
	two := func(says int, holders string) *coordinationv1.Lease {
		l := lease(says)
		l.Annotations = map[string]string{"kernosis.io/holders": holders}
		return l
	}
	a.see("n3", two(100, "n3/a=1,n3/b=1"), at(100))
	a.see("n3", two(120, "n3/a=1,n3/b=2"), at(120))
	a.see("n3", two(140, "n3/b=3"), at(140))
	for _, c := range []struct {
		holder string
		now    int
		runs   bool
		heard  time.Time
	}{{"n3/a", 149, true, at(100)}, {"n3/a", 150, false, at(100)}, {"n3/b", 189, true, at(140)}, {"n3/c", 140, false, time.Time{}}, {"", 140, false, time.Time{}}} {
		if have := a.of("n3", c.holder, at(c.now)); have.runs != c.runs || !have.holder.Equal(c.heard) {
			t.Errorf("%s at %d: %+v", c.holder, c.now, have)
		}
	}
	a.forget("n1")
	if a.of("n1", "", at(101)).known {
		t.Error("it is known")
	}
}

func TestSurplus(t *testing.T) {
	ended := func(name string, seconds int) v1alpha1.Diagnosis {
		when := metav1.NewMicroTime(at(seconds))
		return v1alpha1.Diagnosis{ObjectMeta: metav1.ObjectMeta{Name: name}, Status: v1alpha1.DiagnosisStatus{CompletionTime: &when,
			Conditions: []metav1.Condition{{Type: v1alpha1.ConditionComplete, Status: metav1.ConditionTrue}}}}
	}
	list := []v1alpha1.Diagnosis{ended("d", 4), ended("b", 2), ended("c", 2), ended("a", 1)}
	heavy := func(d *v1alpha1.Diagnosis) int {
		if d.Name == "b" {
			return 5
		}
		return 1
	}
	one := func(*v1alpha1.Diagnosis) int { return 1 }
	for name, c := range map[string]struct {
		most   int
		weigh  func(*v1alpha1.Diagnosis) int
		needed string
		want   string
		kept   bool
	}{
		"few":               {most: 4, weigh: one, want: "[]"},
		"many":              {most: 1, weigh: one, want: "[a b c]"},
		"none":              {most: 0, weigh: one, want: "[a b c d]"},
		"one is needed":     {most: 2, weigh: one, needed: "a", want: "[b c]"},
		"all are needed":    {most: 2, weigh: one, needed: "abcd", want: "[]", kept: true},
		"those that it has": {most: 3, weigh: heavy, want: "[a b]"},
	} {
		out, kept := surplus(list, c.most, c.weigh, nil, func(d *v1alpha1.Diagnosis) bool { return strings.Contains(c.needed, d.Name) })
		names := []string{}
		for _, d := range out {
			names = append(names, d.Name)
		}
		if fmt.Sprint(names) != c.want || kept != c.kept {
			t.Errorf("%s: %v %v, want %s %v", name, names, kept, c.want, c.kept)
		}
	}
}

func TestChildNames(t *testing.T) {
	parent := &v1alpha1.Diagnosis{ObjectMeta: metav1.ObjectMeta{Name: strings.Repeat("a.", 126) + "a", UID: "u"}}
	seen := map[string]bool{}
	for _, x := range []target{
		{node: "n"}, {node: "n2"}, {node: "n", pod: &v1alpha1.PodReference{Namespace: "a", Name: "b"}},
		{pod: &v1alpha1.PodReference{Namespace: "a", Name: "b", Container: "c"}},
	} {
		name := child(parent, &x).Name
		if seen[name] || len(name) > 253 || strings.Contains(name, ".-") {
			t.Errorf("name %q", name)
		}
		seen[name] = true
		if again := child(parent, &x).Name; again != name {
			t.Errorf("%q, and then %q", name, again)
		}
	}
	// A pod that has moved is still the same target.
	moved := target{node: "other", pod: &v1alpha1.PodReference{Namespace: "a", Name: "b"}}
	if !seen[child(parent, &moved).Name] {
		t.Error("a pod that has moved has another name")
	}
}
