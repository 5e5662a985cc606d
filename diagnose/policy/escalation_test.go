package policy_test

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/kernosis/kernosis/diagnose/api/v1alpha1"
	"github.com/kernosis/kernosis/diagnose/policy"
)

// escalating returns a policy with steps in any order: restart twice, cordon, drain.
func escalating() *v1alpha1.RemediationPolicy {
	p := enforce(1)
	p.Spec.Escalation = []v1alpha1.EscalationStep{
		{Operation: "drain", Order: 30}, {Operation: "restart", Order: 10, Attempts: 2, Timeout: duration(time.Minute)}, {Operation: "cordon", Order: 20, Attempts: 1},
	}
	return p
}

// A problem that no repair helps against goes through the steps in order, each as often as
// configured. At each point only the operation whose turn it is runs, immediately despite the
// node's cooldown, and no other one of the escalation.
func TestEscalationInOrder(t *testing.T) {
	obj, c, now := escalating(), nodes(3), noon
	obj.Spec.CooldownPerNode = duration(24 * time.Hour)
	var attempts []policy.Attempt
	var done []string
	for n := 0; ; n++ {
		p := policy.New(obj)
		due := p.Next(attempts, now)
		for _, operation := range []string{"restart", "cordon", "drain"} {
			w := want("n01")
			w.Operation, w.Attempts = operation, attempts
			d := policy.Decide([]*policy.Policy{p}, c, w, now)
			if (d.Verb == v1alpha1.RemediationRun) != (operation == due) || d.Verb != v1alpha1.RemediationRun && d.Verb != v1alpha1.RemediationWithheld {
				t.Fatalf("after %v due %q: %s %+v", done, due, operation, d)
			}
		}
		other := want("n02")
		other.Operation, other.Attempts = "label", attempts
		if d := policy.Decide([]*policy.Policy{p}, c, other, now); d.Verb != v1alpha1.RemediationRun {
			t.Errorf("what is in no order: %+v", d)
		}
		if due == "" {
			break
		}
		done = append(done, due)
		uid := types.UID(fmt.Sprint("uid-", n))
		attempts = append(attempts, policy.Attempt{Diagnosis: uid, Operation: due, Started: now, State: policy.NotHelped})
		obj = obj.DeepCopy()
		obj.Status.Repairs = nil
		ended(obj, "n01", due, noon.Sub(now.Add(time.Minute)))
		obj.Status.Repairs[0].Diagnosis = uid
		now = now.Add(time.Minute)
	}
	if fmt.Sprint(done) != "[restart restart cordon drain]" {
		t.Errorf("%v", done)
	}
}

func TestEscalationWaitsForTheStepBefore(t *testing.T) {
	p := policy.New(escalating())
	begun := policy.Attempt{Operation: "restart", Started: noon}
	w := want("n01")
	w.Operation, w.Attempts = "cordon", []policy.Attempt{{Operation: "restart", Started: noon.Add(-time.Hour), State: policy.NotHelped}, begun}
	d := policy.Decide([]*policy.Policy{p}, nodes(3), w, noon.Add(time.Minute-1))
	if d.Verb != v1alpha1.RemediationWait || d.Reason != v1alpha1.ReasonEscalationOrder || !d.Again.Equal(noon.Add(time.Minute)) ||
		d.Message != "policy default: restart, begun 2026-11-21T12:00:00Z, may still help" {
		t.Errorf("%+v", d)
	}
	if op := p.Next(w.Attempts, noon); op != "" {
		t.Errorf("next %q", op)
	}
	if d := policy.Decide([]*policy.Policy{p}, nodes(3), w, noon.Add(time.Minute)); d.Verb != v1alpha1.RemediationRun {
		t.Errorf("after its time: %+v", d)
	}
	// While it is being verified, time alone does not make it the next step's turn.
	w.Attempts[1].State = policy.Verifying
	d = policy.Decide([]*policy.Policy{p}, nodes(3), w, noon.Add(time.Hour))
	if op := p.Next(w.Attempts, noon.Add(time.Hour)); d.Verb != v1alpha1.RemediationWait || d.Reason != v1alpha1.ReasonEscalationOrder || !d.Again.IsZero() || op != "" {
		t.Errorf("%+v, next %q", d, op)
	}
	w.Attempts[1].State = policy.Unknown
	if d := policy.Decide([]*policy.Policy{p}, nodes(3), w, noon.Add(time.Hour)); d.Reason != v1alpha1.ReasonProblemUnknown {
		t.Errorf("nothing shows it: %+v", d)
	}
}

// The cooldown is waived only for a repair that continues from the one that the cooldown belongs
// to.
func TestCooldownBesideEscalation(t *testing.T) {
	for name, change := range map[string]func(*v1alpha1.RemediationPolicy, *policy.Want){
		"helped":            func(_ *v1alpha1.RemediationPolicy, w *policy.Want) { w.Attempts[1].State = policy.Helped },
		"other diagnosis":   func(p *v1alpha1.RemediationPolicy, _ *policy.Want) { p.Status.Repairs[0].Diagnosis = "uid-9" },
		"in no order":       func(_ *v1alpha1.RemediationPolicy, w *policy.Want) { w.Operation = "label" },
		"after none such":   func(p *v1alpha1.RemediationPolicy, _ *policy.Want) { p.Status.Repairs[0].Operation = "label" },
		"of another policy": func(p *v1alpha1.RemediationPolicy, _ *policy.Want) { p.Spec.Escalation = nil },
	} {
		obj, w := escalating(), want("n01")
		ended(obj, "n01", "restart", time.Minute)
		w.Operation = "cordon"
		for range 2 {
			w.Attempts = append(w.Attempts, policy.Attempt{Diagnosis: "uid-0", Operation: "restart", Started: noon.Add(-time.Hour), State: policy.NotHelped})
		}
		if d := policy.Decide([]*policy.Policy{policy.New(obj)}, nodes(3), w, noon); d.Verb != v1alpha1.RemediationRun {
			t.Fatalf("%+v", d)
		}
		change(obj, w)
		if d := policy.Decide([]*policy.Policy{policy.New(obj)}, nodes(3), w, noon); d.Reason != v1alpha1.ReasonCooldown {
			t.Errorf("%s: %+v", name, d)
		}
	}
}

// On a node that is out of service, a repair that has not helped keeps its slot. The next step
// takes the slot over once that repair's Diagnosis makes no more repairs.
func TestEscalationTakesTheSlotOver(t *testing.T) {
	for name, test := range map[string]struct {
		change func(*v1alpha1.RemediationPolicy, *policy.Want)
		want   string
	}{
		"over":            {func(*v1alpha1.RemediationPolicy, *policy.Want) {}, "Run Allowed"},
		"runs":            {func(_ *v1alpha1.RemediationPolicy, w *policy.Want) { w.Attempts[0].Over = false }, "Wait NodeUnderRepair"},
		"other diagnosis": {func(p *v1alpha1.RemediationPolicy, _ *policy.Want) { p.Status.Repairs[0].Diagnosis = "uid-9" }, "Wait NodeUnderRepair"},
		"in no order":     {func(_ *v1alpha1.RemediationPolicy, w *policy.Want) { w.Operation = "label" }, "Wait NodeUnderRepair"},
		"helped":          {func(_ *v1alpha1.RemediationPolicy, w *policy.Want) { w.Attempts[0].State = policy.Helped }, "Wait NodeUnderRepair"},
	} {
		obj, w, c := escalating(), want("n01"), nodes(3)
		c.Nodes[0].Ready = false
		underRepair(obj, "n01")
		obj.Status.Repairs[0].Operation = "restart"
		w.Operation = "restart"
		w.Attempts = []policy.Attempt{{Diagnosis: "uid-x", Operation: "restart", Started: noon.Add(-time.Hour), State: policy.NotHelped, Over: true}}
		test.change(obj, w)
		d := policy.Decide([]*policy.Policy{policy.New(obj)}, c, w, noon)
		if have := string(d.Verb) + " " + d.Reason; have != test.want {
			t.Errorf("%s: %s: %s", name, have, d.Message)
		}
	}
}

// Whatever was attempted: at most one operation of the escalation may run, it is the one that Next
// returns, and none runs more often than allowed.
func TestEscalationProperties(t *testing.T) {
	names := []string{"restart", "cordon", "drain", "label"}
	for range 5000 {
		var attempts []policy.Attempt
		for range rand.N(6) {
			a := policy.Attempt{Operation: names[rand.N(len(names))], Started: noon.Add(-time.Duration(rand.N(10)) * time.Minute)}
			if rand.N(3) > 0 {
				a.State = policy.NotHelped
			}
			attempts = append(attempts, a)
		}
		p := policy.New(escalating())
		next := p.Next(attempts, noon)
		for _, operation := range names[:3] {
			w := want("n01")
			w.Operation, w.Attempts = operation, attempts
			d := policy.Decide([]*policy.Policy{p}, nodes(3), w, noon)
			if (d.Verb == v1alpha1.RemediationRun) != (operation == next) {
				t.Fatalf("%s, next %q: %+v\n%+v", operation, next, d, attempts)
			}
		}
	}
}

// A step's timeout alone does not make it the next step's turn: something must show that the
// problem lasts.
func TestEscalationNeedsToKnowThatTheProblemLasts(t *testing.T) {
	p := policy.New(escalating())
	w := want("n01")
	w.Operation, w.Attempts = "cordon", []policy.Attempt{
		{Operation: "restart", Started: noon.Add(-time.Hour), State: policy.NotHelped}, {Operation: "restart", Started: noon},
	}
	late := noon.Add(10 * time.Minute) // its timeout is a minute
	for name, test := range map[string]struct {
		change func()
		want   string
	}{
		"it is not known":     {func() { w.Problem = "" }, "Wait ProblemUnknown"},
		"seen too early":      {func() { w.Problem, w.Seen = v1alpha1.ProblemLasts, noon.Add(time.Minute-1) }, "Wait ProblemUnknown"},
		"seen when it was up": {func() { w.Problem, w.Seen = v1alpha1.ProblemLasts, noon.Add(time.Minute) }, "Run Allowed"},
		"seen all along":      {func() { w.Problem, w.Seen = v1alpha1.ProblemLasts, time.Time{} }, "Run Allowed"},
		"verified":            {func() { w.Problem, w.Attempts[1].State = "", policy.NotHelped }, "Run Allowed"},
		"approved": {func() {
			w.Problem, w.Approval = "", &v1alpha1.Approval{PlanDigest: w.Digest}
		}, "Run Allowed"},
		"helped": {func() {
			w.Problem, w.Attempts[1].State = "", policy.Helped
		}, "Withheld ProblemResolved"},
		"came back": {func() {
			w.Problem, w.Attempts[1].State = v1alpha1.ProblemLasts, policy.Helped
		}, "Run Allowed"},
		"gone": {func() { w.Problem = v1alpha1.ProblemGone }, "Withheld ProblemResolved"},
	} {
		w.Attempts[1].State, w.Approval, w.Seen = "", nil, time.Time{}
		test.change()
		d := policy.Decide([]*policy.Policy{p}, nodes(3), w, late)
		if have := string(d.Verb) + " " + d.Reason; have != test.want {
			t.Errorf("%s: %s: %s", name, have, d.Message)
		}
	}
	w.Attempts[1].State, w.Approval = "", nil
	w.Problem, w.Seen, w.Due = v1alpha1.ProblemLasts, noon, noon
	if d := policy.Decide([]*policy.Policy{p}, nodes(3), w, noon.Add(time.Hour+time.Minute)); d.Reason != v1alpha1.ReasonWaitedTooLong {
		t.Errorf("heard of an hour ago: %+v", d)
	}
}

// A Diagnosis that runs the set again makes a step as often as allowed, and continues after what
// was made; after what failed (!) only on the way to another step.
func TestRepairsOfARunThatFollows(t *testing.T) {
	p := policy.New(escalating())
	w := want("n01")
	w.Again = true
	made := func(operations ...string) {
		w.Attempts = nil
		for _, o := range operations {
			name, failed := strings.CutSuffix(o, "!")
			w.Attempts = append(w.Attempts, policy.Attempt{Operation: name, Started: noon.Add(-time.Hour), State: policy.NotHelped, Failed: failed})
		}
	}
	for _, test := range []struct {
		before    []string
		operation string
		want      string
	}{
		{[]string{"restart"}, "restart", "Run Allowed"},
		{[]string{"restart", "restart"}, "restart", "Withheld MadeBefore"},
		{[]string{"restart", "restart"}, "cordon", "Run Allowed"},
		{[]string{"label", "restart"}, "label", "Withheld MadeBefore"},
		{[]string{"restart"}, "label", "Run Allowed"},
		{[]string{"label!"}, "label", "Withheld AttemptsExhausted"},
		{[]string{"label!", "restart"}, "label", "Withheld AttemptsExhausted"},
		{[]string{"restart!", "restart"}, "restart before label", "Withheld MadeBefore"},
		{[]string{"restart", "restart!", "cordon"}, "restart before cordon", "Withheld AttemptsExhausted"},
		{[]string{"restart", "restart", "cordon", "drain!"}, "drain", "Withheld AttemptsExhausted"},
		{[]string{"restart!"}, "label", "Withheld AttemptsExhausted"},
		{[]string{"restart!"}, "label before cordon", "Run Allowed"},
		{[]string{"restart!", "restart!"}, "restart before label", "Withheld AttemptsExhausted"},
		{[]string{"restart!", "restart!"}, "restart before cordon", "Withheld MadeBefore"},
	} {
		made(test.before...)
		var later string
		w.Operation, later, _ = strings.Cut(test.operation, " before ")
		w.Later = []string{later}
		d := policy.Decide([]*policy.Policy{p}, nodes(3), w, noon)
		if have := string(d.Verb) + " " + d.Reason; have != test.want {
			t.Errorf("%s after %v: %s: %s", test.operation, test.before, have, d.Message)
		}
	}
}
