package worker_test

import (
	"context"
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kernosis/kernosis/detector/problem"
	"github.com/kernosis/kernosis/diagnose/api/v1alpha1"
	"github.com/kernosis/kernosis/diagnose/operation"
	"github.com/kernosis/kernosis/diagnose/tenancy"
	"github.com/kernosis/kernosis/vmtest/testenv"
)

// tenantsRig returns a worker that runs tenants' Diagnoses. Each look takes lasts; began returns
// the owners of the begun ones, in order: a namespace, or "node".
func tenantsRig(t *testing.T, lasts time.Duration) (r *rig, began func() []string) {
	known := objects(set("looks", v1alpha1.Node{ID: 1, Operation: "pod-look"}))
	known.Operations = []*v1alpha1.Operation{{
		ObjectMeta: metav1.ObjectMeta{Name: "pod-look"},
		Spec:       v1alpha1.OperationSpec{TenantSafe: true, Processor: v1alpha1.Processor{TimeoutSeconds: 1200, Builtin: &v1alpha1.Builtin{Name: "look"}}},
	}}
	r = newRig(t, known)
	r.conf.TenantPod = func(_ context.Context, d *v1alpha1.Diagnosis) (tenancy.Pod, error) {
		return tenancy.Pod{Namespace: d.Namespace, Name: d.Spec.PodReference.Name, UID: "pod-1", Node: "n7", Addresses: []netip.Addr{netip.MustParseAddr("10.0.0.7")}}, nil
	}
	var order []string
	r.ops.do = map[string]func(context.Context, *operation.Call) (operation.Output, error){
		"look": func(ctx context.Context, c *operation.Call) (operation.Output, error) {
			whose, _, tenant := strings.Cut(c.Parameters["podName"], "-")
			if !tenant {
				whose = "node"
			}
			r.mu.Lock()
			order = append(order, whose)
			r.mu.Unlock()
			select {
			case <-ctx.Done():
				return operation.Output{}, ctx.Err()
			case <-time.After(lasts):
				return operation.Output{}, nil
			}
		},
	}
	return r, func() []string {
		r.mu.Lock()
		defer r.mu.Unlock()
		return append([]string(nil), order...)
	}
}

func ofTenant(namespace, name string) *v1alpha1.Diagnosis {
	d := person(name, "looks")
	d.Namespace, d.Spec.PodReference, d.CreationTimestamp = namespace, &v1alpha1.PodReference{Name: namespace + "-0"}, metav1.Now()
	return d
}

func countOf(list []string, one string) (n int) {
	for _, s := range list {
		if s == one {
			n++
		}
	}
	return n
}

// A tenant that creates far too many slow Diagnoses blocks neither those of the node's own faults
// nor another tenant, even across a restart of the agent, and each of them is eventually run.
func TestATenantMakesTooMany(t *testing.T) {
	testenv.OnlyInTestAll(t)
	const many, few = 1200, 20
	synctest.Test(t, func(t *testing.T) {
		r, began := tenantsRig(t, 5*time.Second)
		r.make(nil)
		r.start()
		for i := range many {
			r.api.add(ofTenant("shop", fmt.Sprint("slow", i)))
		}
		time.Sleep(time.Minute)
		before := len(began())
		r.w.Observe(hung(time.Now().Add(-2*time.Second).Round(0), problem.Firing), time.Now())
		time.Sleep(4 * time.Second) // less than a look takes
		if since := began()[before:]; countOf(since, "node") != 1 || len(since) > 3 {
			t.Errorf("the node's own fault is not diagnosed at once: %v", since)
		}
		// Waiting ones report it, in their status and in a metric.
		full := 0
		for i := range many {
			c := meta.FindStatusCondition(r.api.in("shop", fmt.Sprint("slow", i)).Status.Conditions, v1alpha1.ConditionComplete)
			if c != nil && c.Reason == v1alpha1.ReasonQueueFull && c.Message == "100 Diagnoses of this namespace have not ended on this node" {
				full++
			}
		}
		if s := r.w.Stats(); s.QueueFull != full || full < many-200 || s.Dropped["full"] != 0 {
			t.Errorf("%d say that they wait: %+v", full, s)
		}
		before = len(began())
		for i := range few {
			r.api.add(ofTenant("bank", fmt.Sprint("quick", i)))
		}
		for i := range few {
			for wait := 0; r.api.in("bank", fmt.Sprint("quick", i)).Status.Phase != v1alpha1.PhaseSucceeded; wait++ {
				if wait > 600 {
					t.Fatalf("%d waits: %s", i, summary(r.api.in("bank", fmt.Sprint("quick", i))))
				}
				time.Sleep(time.Second)
			}
		}
		if since := began()[before:]; countOf(since, "shop") > 2*few {
			t.Errorf("%d of the first tenant begin before %d of the other have ended", countOf(since, "shop"), few)
		}
		time.Sleep(10 * time.Minute)
		r.stop()
		r.make(nil)
		r.start()
		defer r.stop()
		time.Sleep(many * 5 * time.Second)
		ended := 0
		for i := range many {
			if d := r.api.in("shop", fmt.Sprint("slow", i)); d.Status.Phase == v1alpha1.PhaseSucceeded {
				ended++
			} else if ended == i {
				t.Log(summary(d), d.Status.Conditions)
			}
		}
		if s := r.w.Stats(); ended != many || s.QueueFull != 0 || s.Dropped["full"] != 0 {
			t.Errorf("%d of %d have succeeded: %+v", ended, many, s)
		}
	})
}

// A Diagnosis that waits for a slot may be deleted or ended by others, and survives an outage of
// the API server; if the controller overwrites its condition, it is written again.
func TestWaitsForAPlace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, began := tenantsRig(t, 10*time.Minute)
		r.conf.MaxOpen = 10 // one per tenant
		r.make(nil)
		r.start()
		defer r.stop()
		r.api.add(ofTenant("shop", "first"))
		time.Sleep(time.Second)
		r.api.setAway(true)
		for _, name := range []string{"second", "deleted", "ended", "last"} {
			r.api.add(ofTenant("shop", name))
			time.Sleep(time.Second)
		}
		if s := r.w.Stats(); s.QueueFull != 4 || len(began()) != 1 {
			t.Errorf("%+v, %v", s, began())
		}
		r.api.setAway(false)
		time.Sleep(2 * time.Minute)
		waits := func(name, reason string) {
			t.Helper()
			d := r.api.in("shop", name)
			if c := meta.FindStatusCondition(d.Status.Conditions, v1alpha1.ConditionComplete); c == nil || c.Reason != reason {
				t.Errorf("%s: %+v", name, d.Status)
			}
		}
		waits("last", v1alpha1.ReasonQueueFull)
		in := func(name string) types.NamespacedName { return types.NamespacedName{Namespace: "shop", Name: name} }
		say := func(name string, status metav1.ConditionStatus, reason string) {
			r.api.person(in(name), func(d *v1alpha1.Diagnosis) {
				meta.SetStatusCondition(&d.Status.Conditions, metav1.Condition{Type: v1alpha1.ConditionComplete, Status: status, Reason: reason})
			})
		}
		r.api.remove(in("deleted"))
		say("ended", metav1.ConditionTrue, v1alpha1.ReasonCancelled)
		say("last", metav1.ConditionFalse, v1alpha1.ReasonAgentSilent)
		time.Sleep(time.Minute)
		waits("last", v1alpha1.ReasonQueueFull)
		if s := r.w.Stats(); s.QueueFull != 2 {
			t.Errorf("%+v", s)
		}
		time.Sleep(10 * time.Minute) // the first ends
		waits("second", "Running")
		waits("last", v1alpha1.ReasonQueueFull)
		time.Sleep(21 * time.Minute)
		for _, name := range []string{"first", "second", "last"} {
			want(t, r.api.in("shop", name), "Succeeded PathSucceeded [1] 1 Succeeded")
		}
		if s := r.w.Stats(); s.QueueFull != 0 || len(began()) != 3 || s.Ended[v1alpha1.PhaseSucceeded] != 3 {
			t.Errorf("%+v, %v", s, began())
		}
	})
}
