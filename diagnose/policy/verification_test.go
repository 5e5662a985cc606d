package policy_test

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/kernosis/kernosis/diagnose/api/v1alpha1"
	"github.com/kernosis/kernosis/diagnose/policy"
)

func TestVerification(t *testing.T) {
	at := func(minutes int) time.Time { return noon.Add(time.Duration(minutes) * time.Minute) }
	for name, test := range map[string]struct {
		o    policy.Observation
		want policy.VerifyState
		says string
	}{
		"lasts":           {policy.Observation{Now: at(4), Problem: v1alpha1.ProblemLasts, Ready: at(-60)}, policy.Verifying, ""},
		"gone":            {policy.Observation{Now: at(4), Problem: v1alpha1.ProblemGone, Gone: at(3), Ready: at(-60)}, policy.Helped, "the problem was gone and the node ready at 2026-11-21T12:03:00Z"},
		"gone unready":    {policy.Observation{Now: at(4), Problem: v1alpha1.ProblemGone, Gone: at(3)}, policy.Verifying, ""},
		"silent":          {policy.Observation{Now: at(4), Ready: at(-60)}, policy.Verifying, ""},
		"at last":         {policy.Observation{Now: at(5), Problem: v1alpha1.ProblemGone, Gone: at(5), Ready: at(2)}, policy.Helped, "the problem was gone and the node ready at 2026-11-21T12:05:00Z"},
		"seen late":       {policy.Observation{Now: at(50), Problem: v1alpha1.ProblemGone, Gone: at(5), Ready: at(4)}, policy.Helped, "the problem was gone and the node ready at 2026-11-21T12:05:00Z"},
		"too late":        {policy.Observation{Now: at(50), Problem: v1alpha1.ProblemGone, Gone: at(6), Ready: at(4)}, policy.NotHelped, "until 2026-11-21T12:05:00Z the problem lasted"},
		"ready too late":  {policy.Observation{Now: at(50), Problem: v1alpha1.ProblemGone, Gone: at(2), Ready: at(6)}, policy.NotHelped, "until 2026-11-21T12:05:00Z the node was not ready"},
		"not in time":     {policy.Observation{Now: at(5).Add(1), Problem: v1alpha1.ProblemLasts, Ready: at(-60)}, policy.NotHelped, "until 2026-11-21T12:05:00Z the problem lasted"},
		"silent too long": {policy.Observation{Now: at(6), Ready: at(-60)}, policy.Unknown, "nothing shows whether the problem was gone by 2026-11-21T12:05:00Z"},
		"silent, unready": {policy.Observation{Now: at(6)}, policy.Unknown, "nothing shows whether the problem was gone by 2026-11-21T12:05:00Z"},
		"last seen early": {policy.Observation{Now: at(50), Problem: v1alpha1.ProblemLasts, Seen: at(5).Add(-1), Ready: at(-60)}, policy.Unknown, "nothing shows whether the problem was gone by 2026-11-21T12:05:00Z"},
		"last seen late":  {policy.Observation{Now: at(50), Problem: v1alpha1.ProblemLasts, Seen: at(5), Ready: at(-60)}, policy.NotHelped, "until 2026-11-21T12:05:00Z the problem lasted"},
		"gone before":     {policy.Observation{Now: at(1), Problem: v1alpha1.ProblemGone, Gone: at(-1), Ready: at(-60)}, policy.Moot, "the problem was gone at 2026-11-21T11:59:00Z, before the repair began at 2026-11-21T12:00:00Z"},
		"node gone":       {policy.Observation{Now: at(1), NodeGone: true}, policy.Moot, "the node is gone"},
	} {
		v := policy.Verify(noon, noon, noon, 5*time.Minute).Observe(&test.o)
		if v.State != test.want || v.Message != test.says {
			t.Errorf("%s: %s: %s", name, v.State, v.Message)
		}
	}
	// Later evidence, after the deadline, decides.
	silent := policy.Verify(noon, noon, noon, 5*time.Minute).Observe(&policy.Observation{Now: at(6), Ready: at(-60)})
	if v := silent.Observe(&policy.Observation{Now: at(9), Problem: v1alpha1.ProblemGone, Gone: at(4), Ready: at(-60)}); v.State != policy.Helped {
		t.Errorf("resolved late: %+v", v)
	}
	if v := silent.Observe(&policy.Observation{Now: at(9), Problem: v1alpha1.ProblemLasts, Seen: at(8), Ready: at(-60)}); v.State != policy.NotHelped {
		t.Errorf("seen late: %+v", v)
	}
	if v := policy.Verify(noon, at(30), at(31), 5*time.Minute); !v.Deadline.Equal(at(36)) || !v.End.Equal(at(35)) {
		t.Errorf("of a repair of 30 min: until %s, for the node %s", v.Deadline, v.End)
	}
}

// The result does not depend on the node's clock, for repairs of the node, and of the controller,
// whether or not the node has reported their end.
func TestVerificationWithClocksThatDiffer(t *testing.T) {
	at := func(minutes int) time.Time { return noon.Add(time.Duration(minutes) * time.Minute) }
	for _, skew := range []time.Duration{-24 * time.Hour, -5 * time.Minute, -10 * time.Second, 0, 10 * time.Second, 5 * time.Minute, 24 * time.Hour} {
		node := func(minutes int) time.Time { return at(minutes).Add(skew) }
		for name, v := range map[string]policy.Verification{
			"node":                      policy.Verify(node(0), node(1), at(1), 5*time.Minute),
			"controller":                policy.Verify(time.Time{}, node(1), at(1), 5*time.Minute),
			"controller, node says not": policy.Verify(time.Time{}, time.Time{}, at(1), 5*time.Minute),
		} {
			for what, test := range map[string]struct {
				o    policy.Observation
				want policy.VerifyState
			}{
				"lasts":          {policy.Observation{Now: at(6), Problem: v1alpha1.ProblemLasts, Ready: node(-60)}, policy.Verifying},
				"too long":       {policy.Observation{Now: at(6).Add(1), Problem: v1alpha1.ProblemLasts, Ready: node(-60)}, policy.NotHelped},
				"gone":           {policy.Observation{Now: at(4), Problem: v1alpha1.ProblemGone, Gone: node(2), Ready: node(-60)}, policy.Helped},
				"at last":        {policy.Observation{Now: at(6), Problem: v1alpha1.ProblemGone, Gone: node(3), Ready: node(6)}, policy.Helped},
				"too late":       {policy.Observation{Now: at(8), Problem: v1alpha1.ProblemGone, Gone: node(7), Ready: node(-60)}, policy.NotHelped},
				"ready too late": {policy.Observation{Now: at(8), Problem: v1alpha1.ProblemGone, Gone: node(3), Ready: node(7)}, policy.NotHelped},
			} {
				if got := v.Observe(&test.o); got.State != test.want {
					t.Errorf("%s of the %s, %s: %s (%s)", what, name, skew, got.State, got.Message)
				}
			}
		}
	}
	// The end of an alert is by the controller's clock, and since when the node is ready by its own.
	alert := policy.Verify(at(0), at(1), at(1), 5*time.Minute)
	for name, test := range map[string]struct {
		o    policy.Observation
		want policy.VerifyState
	}{
		"ready in time, node's clock ahead": {policy.Observation{Now: at(3), Problem: v1alpha1.ProblemGone, Gone: at(2), Ready: at(11)}, policy.Helped},
		"ready late, node's clock ahead":    {policy.Observation{Now: at(8), Problem: v1alpha1.ProblemGone, Gone: at(2), Ready: at(11)}, policy.NotHelped},
		"ready late":                        {policy.Observation{Now: at(9), Problem: v1alpha1.ProblemGone, Gone: at(2), Ready: at(8)}, policy.NotHelped},
		"not ready":                         {policy.Observation{Now: at(3), Problem: v1alpha1.ProblemGone, Gone: at(2)}, policy.Verifying},
		"ready, seen late":                  {policy.Observation{Now: at(9), Problem: v1alpha1.ProblemGone, Gone: at(2), Ready: at(3)}, policy.Helped},
	} {
		if got := alert.Observe(&test.o); got.State != test.want {
			t.Errorf("alert, %s: %s (%s)", name, got.State, got.Message)
		}
	}
	gone := policy.Observation{Now: at(2), Problem: v1alpha1.ProblemGone, Gone: at(-1), Ready: at(-60)}
	if v := policy.Verify(at(0), at(1), at(1), time.Minute).Observe(&gone); v.State != policy.Moot {
		t.Errorf("gone before the node began: %s", v.State)
	}
}

// A random life of a node, minute by minute, observed occasionally: a final state stays; Helped
// only if the problem really was gone and the node ready in time; and if both came in time and
// stayed, Helped, however late the observation.
func TestVerificationOfRandomLives(t *testing.T) {
	outcomes := make(map[policy.VerifyState]int)
	for range 20000 {
		const minutes, deadline = 20, 8
		gone, ready := make([]bool, minutes), make([]bool, minutes)
		stickyGone, stickyReady := false, rand.N(2) == 0
		for i := range minutes {
			if rand.N(6) == 0 {
				stickyGone = !stickyGone
			}
			if rand.N(6) == 0 {
				stickyReady = !stickyReady
			}
			gone[i], ready[i] = stickyGone, stickyReady
		}
		gone[0] = false // the problem lasts when the repair begins
		since := func(state []bool, i int) time.Time {
			for i > 0 && state[i-1] {
				i--
			}
			return noon.Add(time.Duration(i) * time.Minute)
		}
		v := policy.Verify(noon, noon, noon, deadline*time.Minute)
		looked := false
		for i := range minutes {
			if rand.N(4) > 0 && i != minutes-1 {
				continue
			}
			o := policy.Observation{Now: noon.Add(time.Duration(i) * time.Minute), Problem: v1alpha1.ProblemLasts}
			if gone[i] {
				o.Problem, o.Gone = v1alpha1.ProblemGone, since(gone, i)
			}
			if ready[i] {
				o.Ready = since(ready, i)
			}
			before := v
			v = v.Observe(&o)
			if before.State != policy.Verifying && v != before {
				t.Fatalf("%+v became %+v", before, v)
			}
			if again := v.Observe(&o); again != v {
				t.Fatalf("%+v, seen again: %+v", v, again)
			}
			looked = looked || i > deadline
		}
		truth, lasting := false, true
		for i := range minutes {
			truth = truth || i <= deadline && gone[i] && ready[i]
			lasting = lasting && (i < deadline || gone[i] && ready[i])
		}
		switch {
		case looked && v.State == policy.Verifying:
			t.Fatal("it does not end")
		case v.State == policy.Moot:
			t.Fatalf("%+v", v)
		case v.State == policy.Helped && !truth, lasting && v.State != policy.Helped:
			t.Fatalf("%s\ngone  %v\nready %v", v.State, gone, ready)
		}
		outcomes[v.State]++
	}
	t.Log(outcomes)
	if outcomes[policy.Helped] < 1000 || outcomes[policy.NotHelped] < 1000 {
		t.Error("the lives tell little")
	}
}
