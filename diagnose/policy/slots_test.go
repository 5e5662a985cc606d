package policy_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kernosis/kernosis/diagnose/api/v1alpha1"
	"github.com/kernosis/kernosis/diagnose/policy"
	"github.com/kernosis/kernosis/vmtest/testenv"
)

// slots returns a budget on the API server whose clock stands at noon.
func slots(c client.Client) *policy.Budget {
	return &policy.Budget{Holder: "one", Now: func() time.Time { return noon }, Reader: c, Writer: c.Status(), TakenOver: func(types.UID) {}}
}

func named(name string, maxNodes int32) *v1alpha1.RemediationPolicy {
	p := enforce(maxNodes)
	p.Name = name
	return p
}

// status writes a policy's repairs, because Create ignores the status.
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

func acquire(t *testing.T, b *policy.Budget, names []string, w *policy.Want, want v1alpha1.RemediationVerb) policy.Decision {
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
	acquire(t, b, names, w, v1alpha1.RemediationRun)
	is("n01:cordon:uid-1")
	acquire(t, b, names, w, v1alpha1.RemediationRun) // again
	w.Operation = "drain"                            // the diagnosis' next repair
	acquire(t, b, names, w, v1alpha1.RemediationRun)
	is("n01:drain:uid-1")
	if err := b.Verify(t.Context(), names, n, "uid-1"); err != nil {
		t.Error(err)
	}
	if err := b.Verify(t.Context(), names, n, "uid-2"); !errors.Is(err, policy.ErrNotHeld) || !strings.Contains(err.Error(), "uid-1") {
		t.Errorf("%v", err)
	}
	other := want("n01")
	other.Diagnosis = "uid-2"
	if d := acquire(t, b, names, other, v1alpha1.RemediationWait); d.Reason != v1alpha1.ReasonNodeUnderRepair {
		t.Errorf("%+v", d)
	}
	for _, s := range []policy.Settlement{policy.End, policy.Remove} {
		if err := b.Release(t.Context(), names, "n01", "uid-2", s); err != nil { // not the holder
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
	if d := acquire(t, b, names, other, v1alpha1.RemediationWait); d.Reason != v1alpha1.ReasonCooldown {
		t.Errorf("%+v", d)
	}
	b.Now = func() time.Time { return noon.Add(time.Hour) }
	acquire(t, b, names, other, v1alpha1.RemediationRun)
	is("n01:drain:uid-2")
	if err := b.Release(t.Context(), names, "n01", "uid-2", policy.Remove); err != nil {
		t.Fatal(err)
	}
	is("")
	if d := acquire(t, b, []string{"none"}, other, v1alpha1.RemediationWouldRun); d.Reason != v1alpha1.ReasonNoPolicy {
		t.Errorf("%+v", d)
	}
}

// If the second policy refuses, the first is restored, including the entry of a repair whose
// cooldown an escalation need not wait for.
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
		w.Attempts = append(w.Attempts, policy.Attempt{Diagnosis: "uid-0", Operation: "restart", Started: noon.Add(-2 * time.Minute), State: policy.NotHelped})
	}
	if d := acquire(t, b, names, w, v1alpha1.RemediationWait); d.Reason != v1alpha1.ReasonBudgetExhausted || !strings.Contains(d.Message, "b-second") {
		t.Errorf("%+v", d)
	}
	if have := repairs(t, c, "a-first"); have != "n01:restart:uid-0+" {
		t.Errorf("%q", have)
	}
	acquire(t, b, names[:1], w, v1alpha1.RemediationRun)
	if d := acquire(t, b, names, w, v1alpha1.RemediationWait); !strings.Contains(d.Message, "b-second") { // it already held the first
		t.Errorf("%+v", d)
	}
	if have := repairs(t, c, "a-first"); have != "n01:cordon:uid-1" {
		t.Errorf("%q", have)
	}
}

// When a slot that an escalation took over from the previous repair is released unused, that
// repair's entry is restored: its cooldown continues, the escalation can continue from it later,
// and a slot that it held is held again.
func TestAnUnusedSlotOfAnEscalation(t *testing.T) {
	c := newClient(t)
	for name, test := range map[string]struct {
		enter  func(*v1alpha1.RemediationPolicy)
		entry  string
		reason string // why others wait
	}{
		"cooldown": {func(p *v1alpha1.RemediationPolicy) { ended(p, "n01", "restart", 10*time.Minute) }, "n01:restart:uid-0+", v1alpha1.ReasonCooldown},
		"held": {func(p *v1alpha1.RemediationPolicy) {
			underRepair(p, "n01")
			p.Status.Repairs[0].Diagnosis, p.Status.Repairs[0].Operation = "uid-0", "restart"
		}, "n01:restart:uid-0", v1alpha1.ReasonNodeUnderRepair},
	} {
		t.Run(name, func(t *testing.T) {
			p := named("unused-"+name, 1)
			p.Spec.Escalation = []v1alpha1.EscalationStep{{Operation: "restart", Order: 1, Attempts: 2}}
			create(t, c, p)
			test.enter(p)
			status(t, c, p, p.Status.Repairs)
			b, names := slots(c), []string{p.Name}
			w, other := want("n01"), want("n01")
			w.Operation, other.Diagnosis = "restart", "uid-2"
			w.Attempts = []policy.Attempt{{Diagnosis: "uid-0", Operation: "restart", Started: noon.Add(-20 * time.Minute), State: policy.NotHelped, Over: true}}
			give := map[string]func() error{
				"released": func() error { return b.Release(t.Context(), names, "n01", "uid-1", policy.Remove) },
				"swept": func() error {
					_, err := b.Sweep(t.Context(), p.Name, func(r *v1alpha1.Repair) policy.Facts {
						if r.Diagnosis != "uid-1" {
							return policy.Facts{Now: noon, Node: &policy.Node{}, Holder: policy.HolderNotHelped}
						}
						return policy.Facts{Now: noon, Node: &policy.Node{}, Holder: policy.HolderIdle}
					})
					return err
				},
			}
			for how, do := range give {
				acquire(t, b, names, w, v1alpha1.RemediationRun)
				acquire(t, b, names, w, v1alpha1.RemediationRun) // again
				if have := repairs(t, c, p.Name); have != "n01:restart:uid-1" {
					t.Errorf("%q", have)
				}
				if err := do(); err != nil {
					t.Fatal(err)
				}
				if have := repairs(t, c, p.Name); have != test.entry {
					t.Errorf("%s: %q, want %q", how, have, test.entry)
				}
				if d, err := b.Acquire(t.Context(), names, nodes(20), other); err != nil || d.Reason != test.reason {
					t.Errorf("%s: %+v, %v", how, d, err)
				}
			}
			// A repair that was made has its own cooldown.
			acquire(t, b, names, w, v1alpha1.RemediationRun)
			if err := b.Release(t.Context(), names, "n01", "uid-1", policy.End); err != nil {
				t.Fatal(err)
			}
			if have := repairs(t, c, p.Name); have != "n01:restart:uid-1+" {
				t.Errorf("%q", have)
			}
		})
	}
}

// Ten nodes want slots of three policies with one slot each: there is no deadlock, and nothing is
// left over.
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
				if d.Verb == v1alpha1.RemediationRun {
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

// A policy that was deleted and recreated is a different one; a status without an origin is not
// written.
func TestUpdateOfAnotherObject(t *testing.T) {
	c := newClient(t)
	p := named("anew", 1)
	create(t, c, p)
	old := &v1alpha1.RemediationPolicy{}
	if err := c.Get(t.Context(), client.ObjectKey{Name: "anew"}, old); err != nil {
		t.Fatal(err)
	}
	if err := c.Delete(t.Context(), p); err != nil {
		t.Fatal(err)
	}
	if err := c.Status().Update(t.Context(), old); !apierrors.IsNotFound(err) {
		t.Errorf("%v", err)
	}
	create(t, c, named("anew", 1))
	underRepair(old, "n01")
	if err := c.Status().Update(t.Context(), old); !apierrors.IsConflict(err) {
		t.Errorf("%v", err)
	}
	if err := c.Status().Update(t.Context(), named("anew", 1)); err == nil || apierrors.IsConflict(err) {
		t.Errorf("%v", err)
	}
}

// A policy with long cooldowns keeps 4,096 nodes: 512 full repairs, and node and end of the oldest
// ones, which the server accepts even with the longest names. Only beyond that does another node
// wait, with a reason of its own; deleted nodes and expired cooldowns make room.
func TestFullListOfRepairs(t *testing.T) {
	testenv.OnlyInTestAll(t)
	c := newClient(t)
	p := named("full", 2)
	p.Spec.CooldownPerNode = duration(720 * time.Hour)
	create(t, c, p)
	long := func(i int) string { return fmt.Sprintf("%s-%04d", strings.Repeat("n", 248), i) }
	all := nodes(20).Nodes // plus as many as there are entries
	for i := range 4096 {
		all = append(all, policy.Node{Name: long(i), Ready: true, Labels: map[string]string{"pool": "a"}})
	}
	cluster := policy.NewCluster(all)
	for i := range 512 {
		ended(p, long(i), strings.Repeat("o", 253), time.Duration(i+1)*time.Minute)
		p.Status.Repairs[i].Diagnosis = types.UID(fmt.Sprintf("%036d", i))
		p.Status.Repairs[i].Holder = strings.Repeat("h", 128)
	}
	status(t, c, p, p.Status.Repairs)
	b := slots(c)
	ask := func(node string, verb v1alpha1.RemediationVerb) policy.Decision {
		t.Helper()
		d, err := b.Acquire(t.Context(), []string{"full"}, cluster, want(node))
		if err != nil || d.Verb != verb {
			t.Fatalf("%+v, %v", d, err)
		}
		return d
	}
	get := func() *v1alpha1.RemediationPolicy {
		t.Helper()
		p := &v1alpha1.RemediationPolicy{}
		if err := c.Get(t.Context(), client.ObjectKey{Name: "full"}, p); err != nil {
			t.Fatal(err)
		}
		return p
	}
	ask("n01", v1alpha1.RemediationRun)
	if p = get(); len(p.Status.Repairs) != 512 || len(p.Status.Cooldowns) != 1 || p.Status.Cooldowns[0].Node != long(511) {
		t.Fatalf("%d repairs, cooldowns %v", len(p.Status.Repairs), p.Status.Cooldowns)
	}
	// Cooldowns in short form count as before.
	if d := ask(long(511), v1alpha1.RemediationWait); d.Reason != v1alpha1.ReasonCooldown {
		t.Errorf("%+v", d)
	}
	if d := ask(long(0), v1alpha1.RemediationWait); d.Reason != v1alpha1.ReasonCooldown {
		t.Errorf("%+v", d)
	}
	// Full, with the largest possible size.
	for i := 512; len(p.Status.Cooldowns) < 3584; i++ {
		p.Status.Cooldowns = append(p.Status.Cooldowns, v1alpha1.Cooldown{Node: long(i), EndTime: metav1.NewTime(noon.Add(-10 * time.Hour))})
	}
	status(t, c, p, p.Status.Repairs)
	d := ask("n02", v1alpha1.RemediationWait)
	if d.Reason != v1alpha1.ReasonCooldownsFull || d.Message != "policy full: 4096 nodes are under repair or in their cooldown, and a policy can track no more; shorten cooldownPerNode to make room" {
		t.Errorf("%+v", d)
	}
	if d := policy.New(get()).Paused(cluster, noon); d.Reason != v1alpha1.ReasonCooldownsFull {
		t.Errorf("%+v", d)
	}
	ask("n01", v1alpha1.RemediationRun) // it already has an entry
	if err := b.Release(t.Context(), []string{"full"}, "n01", "uid-1", policy.End); err != nil {
		t.Fatal(err)
	}
	// A node is gone: its cooldown makes room.
	all = all[:len(all)-1]
	all[len(all)-1].Name = "other" // another one is gone too
	cluster = policy.NewCluster(all)
	ask("n02", v1alpha1.RemediationRun)
	if p = get(); len(p.Status.Repairs) != 512 || len(p.Status.Cooldowns) > 3584 {
		t.Errorf("%d repairs, %d cooldowns", len(p.Status.Repairs), len(p.Status.Cooldowns))
	}
	if err := b.Release(t.Context(), []string{"full"}, "n02", "uid-1", policy.End); err != nil {
		t.Fatal(err)
	}
	b.Now = func() time.Time { return noon.Add(710*time.Hour + time.Minute) } // the cooldowns of 10 h ago are over
	ask("n03", v1alpha1.RemediationRun)
	if p = get(); len(p.Status.Cooldowns) > 3 {
		t.Errorf("%d cooldowns", len(p.Status.Cooldowns))
	}
}

// Two controllers that both believe they lead decide on the same Diagnosis: neither acts on or
// releases a slot of the other before it has taken the slot over.
func TestASlotHasOneHolder(t *testing.T) {
	c := newClient(t)
	create(t, c, named("held-a", 1))
	create(t, c, named("held-b", 1))
	names := []string{"held-a", "held-b"}
	one, two := slots(c), slots(c)
	two.Holder = "two"
	w := want(name(1))
	node := nodes(1).Node(w.Node)
	verify := func(b *policy.Budget, want error) {
		t.Helper()
		if err := b.Verify(t.Context(), names, node, w.Diagnosis); !errors.Is(err, want) {
			t.Errorf("%s: %v, want %v", b.Holder, err, want)
		}
	}
	release := func(b *policy.Budget) {
		t.Helper()
		if err := b.Release(t.Context(), names, w.Node, w.Diagnosis, policy.Remove); err != nil {
			t.Error(err)
		}
	}
	acquire(t, one, names, w, v1alpha1.RemediationRun)
	verify(one, nil)
	verify(two, policy.ErrTakenOver)
	release(two) // it had found no room, and its cache did not show the slot's holder
	verify(one, nil)

	acquire(t, two, names, w, v1alpha1.RemediationRun)
	verify(two, nil)
	verify(one, policy.ErrTakenOver)
	release(one)
	verify(two, nil)

	held := func(b *policy.Budget, ours, others []string) {
		t.Helper()
		if o, x, err := b.Held(t.Context(), append(names, "none"), w.Node, w.Diagnosis, w.Operation); err != nil || !slices.Equal(o, ours) || !slices.Equal(x, others) {
			t.Errorf("%s: %v and %v: %v; want %v and %v", b.Holder, o, x, err, ours, others)
		}
	}
	held(one, nil, names)
	taken := 0
	one.TakenOver = func(types.UID) { taken++ }
	for range 2 {
		if err := one.Claim(t.Context(), append(names, "none"), w.Node, w.Diagnosis); err != nil || taken != len(names) {
			t.Errorf("%d taken over: %v", taken, err)
		}
	}
	held(one, names, nil)
	verify(one, nil)
	verify(two, policy.ErrTakenOver)
	release(one)
	verify(one, policy.ErrNotHeld)
	held(two, nil, nil)
	if err := two.Claim(t.Context(), names, w.Node, w.Diagnosis); err != nil {
		t.Error(err)
	}
	verify(two, policy.ErrNotHeld)
}
