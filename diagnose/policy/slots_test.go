package policy_test

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kernosis/kernosis/diagnose/api/v1alpha1"
	"github.com/kernosis/kernosis/diagnose/policy"
)

// slots is a budget at the API server whose clock stands at noon.
func slots(c client.Client) *policy.Budget {
	return &policy.Budget{Now: func() time.Time { return noon }, Store: &policy.Objects{Reader: c, Writer: c.Status()}}
}

func named(name string, maxNodes int32) *v1alpha1.RemediationPolicy {
	p := enforce(maxNodes)
	p.Name = name
	return p
}

// status writes a policy's repairs, which a Create leaves out.
func status(t *testing.T, c client.Client, p *v1alpha1.RemediationPolicy, repairs []v1alpha1.Repair) {
	t.Helper()
	p.Status.Repairs = repairs
	if err := c.Status().Update(t.Context(), p); err != nil {
		t.Fatal(err)
	}
}

// repairs returns a policy's entries as node:operation:diagnosis, ended ones with a +.
func repairs(t *testing.T, c client.Client, name string) string {
	t.Helper()
	p := &v1alpha1.RemediationPolicy{}
	if err := c.Get(t.Context(), client.ObjectKey{Name: name}, p); err != nil {
		t.Fatal(err)
	}
	var out []string
	for _, r := range p.Status.Repairs {
		mark := ""
		if r.EndTime != nil {
			mark = "+"
		}
		out = append(out, fmt.Sprintf("%s:%s:%s%s", r.Node, r.Operation, r.Diagnosis, mark))
	}
	return strings.Join(out, " ")
}

func acquire(t *testing.T, b *policy.Budget, names []string, w *policy.Want, want policy.Verb) policy.Decision {
	t.Helper()
	d, err := b.Acquire(t.Context(), names, nodes(20), w)
	if err != nil || d.Verb != want {
		t.Fatalf("%+v, %v", d, err)
	}
	return d
}

func TestSlotFromBeginningToEnd(t *testing.T) {
	c := newClient(t)
	create(t, c, named("life", 2))
	b, names, n := slots(c), []string{"life"}, &nodes(3).Nodes[0]
	is := func(want string) {
		t.Helper()
		if have := repairs(t, c, "life"); have != want {
			t.Errorf("%q, want %q", have, want)
		}
	}
	if err := b.Verify(t.Context(), names, n, "uid-1"); !errors.Is(err, policy.ErrNotHeld) {
		t.Errorf("%v", err)
	}
	w := want("n01")
	w.Operation = "cordon"
	acquire(t, b, names, w, policy.Run)
	is("n01:cordon:uid-1")
	acquire(t, b, names, w, policy.Run) // again
	w.Operation = "drain"               // the diagnosis' next repair
	acquire(t, b, names, w, policy.Run)
	is("n01:drain:uid-1")
	if err := b.Verify(t.Context(), names, n, "uid-1"); err != nil {
		t.Error(err)
	}
	if err := b.Verify(t.Context(), names, n, "uid-2"); !errors.Is(err, policy.ErrNotHeld) || !strings.Contains(err.Error(), "uid-1") {
		t.Errorf("%v", err)
	}
	other := want("n01")
	other.Diagnosis = "uid-2"
	if d := acquire(t, b, names, other, policy.Wait); d.Reason != v1alpha1.ReasonNodeUnderRepair {
		t.Errorf("%+v", d)
	}
	for _, s := range []policy.Settlement{policy.End, policy.Remove} {
		if err := b.Release(t.Context(), names, "n01", "uid-2", s); err != nil { // not its own
			t.Fatal(err)
		}
		is("n01:drain:uid-1")
	}
	for range 2 {
		if err := b.Release(t.Context(), names, "n01", "uid-1", policy.End); err != nil {
			t.Fatal(err)
		}
		is("n01:drain:uid-1+")
	}
	if d := acquire(t, b, names, other, policy.Wait); d.Reason != v1alpha1.ReasonCooldown {
		t.Errorf("%+v", d)
	}
	b.Now = func() time.Time { return noon.Add(time.Hour) }
	acquire(t, b, names, other, policy.Run)
	is("n01:drain:uid-2")
	if err := b.Release(t.Context(), names, "n01", "uid-2", policy.Remove); err != nil {
		t.Fatal(err)
	}
	is("")
	if d := acquire(t, b, []string{"none"}, other, policy.WouldRun); d.Reason != v1alpha1.ReasonNoPolicy {
		t.Errorf("%+v", d)
	}
}

// Where the second policy refuses, the first is as it was: also the entry of a repair
// whose cooldown an escalation need not wait for.
func TestNoSlotOfOneOfSeveralPolicies(t *testing.T) {
	c := newClient(t)
	first, second := named("a-first", 1), named("b-second", 0)
	first.Spec.Escalation = escalating().Spec.Escalation
	create(t, c, first)
	create(t, c, second)
	ended(first, "n01", "restart", time.Minute)
	status(t, c, first, first.Status.Repairs)
	b, names := slots(c), []string{"a-first", "b-second"}
	w := want("n01")
	w.Operation = "cordon"
	for range 2 {
		w.Attempts = append(w.Attempts, policy.Attempt{Diagnosis: "uid-0", Operation: "restart", Started: noon.Add(-2 * time.Minute), Ended: noon.Add(-time.Minute)})
	}
	if d := acquire(t, b, names, w, policy.Wait); d.Reason != v1alpha1.ReasonBudgetExhausted || !strings.Contains(d.Message, "b-second") {
		t.Errorf("%+v", d)
	}
	if have := repairs(t, c, "a-first"); have != "n01:restart:uid-0+" {
		t.Errorf("%q", have)
	}
	acquire(t, b, names[:1], w, policy.Run)
	if d := acquire(t, b, names, w, policy.Wait); !strings.Contains(d.Message, "b-second") { // it held that one before
		t.Errorf("%+v", d)
	}
	if have := repairs(t, c, "a-first"); have != "n01:cordon:uid-1" {
		t.Errorf("%q", have)
	}
}

// Ten nodes want slots of three policies with one slot each: nobody waits for another that
// waits for it, and nothing is left.
func TestSlotsOfSeveralPoliciesAtOnce(t *testing.T) {
	c := newClient(t)
	names := []string{"p1", "p2", "p3"}
	for _, n := range names {
		create(t, c, named(n, 1))
	}
	var inside atomic.Int64
	var wg sync.WaitGroup
	for i := range 10 {
		b := slots(newClient(t))
		wg.Go(func() {
			w := want(name(i + 1))
			w.Diagnosis = types.UID(fmt.Sprint("uid-", i))
			for {
				d, err := b.Acquire(t.Context(), names[i%3:], nodes(20), w)
				if err != nil {
					t.Error(err)
					return
				}
				if d.Verb == policy.Run {
					break
				}
			}
			if inside.Add(1) > 1 {
				t.Error("two have the only slot of p3")
			}
			inside.Add(-1)
			if err := b.Release(t.Context(), names, w.Node, w.Diagnosis, policy.Remove); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	for _, n := range names {
		if have := repairs(t, c, n); have != "" {
			t.Errorf("%s: %q", n, have)
		}
	}
}

// A policy that was deleted and made anew is another; a status without an origin is not
// written.
func TestUpdateOfAnotherObject(t *testing.T) {
	c := newClient(t)
	p := named("anew", 1)
	create(t, c, p)
	store := &policy.Objects{Reader: c, Writer: c.Status()}
	old, err := store.Get(t.Context(), "anew")
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Delete(t.Context(), p); err != nil {
		t.Fatal(err)
	}
	if err := store.Update(t.Context(), old); !errors.Is(err, policy.ErrNoPolicy) {
		t.Errorf("%v", err)
	}
	create(t, c, named("anew", 1))
	underRepair(old, "n01")
	if err := store.Update(t.Context(), old); !errors.Is(err, policy.ErrConflict) {
		t.Errorf("%v", err)
	}
	if err := store.Update(t.Context(), named("anew", 1)); err == nil || errors.Is(err, policy.ErrConflict) {
		t.Errorf("%v", err)
	}
	if _, err := store.Get(t.Context(), "none"); !errors.Is(err, policy.ErrNoPolicy) {
		t.Errorf("%v", err)
	}
}

// The list of repairs has room for 512; a further one waits until a cooldown is over.
func TestFullListOfRepairs(t *testing.T) {
	c := newClient(t)
	p := named("full", 2)
	create(t, c, p)
	for i := range 512 {
		ended(p, fmt.Sprint("old-", i), "drain", time.Minute)
	}
	first := metav1.NewTime(noon.Add(-2 * time.Minute))
	p.Status.Repairs[7].EndTime = &first
	status(t, c, p, p.Status.Repairs)
	b := slots(c)
	if d := acquire(t, b, []string{"full"}, want("n01"), policy.Wait); d.Message != "policy full: 512 repairs are under way or in their cooldown, it can hold no more" {
		t.Errorf("%+v", d)
	}
	b.Now = func() time.Time { return noon.Add(58 * time.Minute) }
	acquire(t, b, []string{"full"}, want("n01"), policy.Run)
}
