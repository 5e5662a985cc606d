package clustertest_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kernosis/kernosis/diagnose/api/v1alpha1"
	"github.com/kernosis/kernosis/diagnose/policy"
	"github.com/kernosis/kernosis/vmtest/testenv"
)

// state returns the state of a graph node's result, or "" if it has none.
func state(d *v1alpha1.Diagnosis, id int32) v1alpha1.ResultState {
	i := slices.IndexFunc(d.Status.Results, func(r v1alpha1.Result) bool { return r.ID == id })
	if i < 0 {
		return ""
	}
	return d.Status.Results[i].State
}

// allow allows a repair, as the controller does.
func (a *agent) allow(name string, id int, operation string) {
	a.t.Helper()
	var op v1alpha1.Operation
	if err := a.people.Get(a.t.Context(), client.ObjectKey{Name: operation}, &op); err != nil {
		a.t.Fatal(err)
	}
	a.await("place for a decision", time.Minute, func(ctx context.Context) (bool, string, error) {
		var d v1alpha1.Diagnosis
		if err := a.people.Get(ctx, client.ObjectKey{Namespace: a.namespace, Name: name}, &d); err != nil {
			return false, "", err
		}
		if state(&d, int32(id)) != v1alpha1.ResultAwaitingApproval {
			return false, summary([]v1alpha1.Diagnosis{d}), nil
		}
		plan, err := policy.PlanOf(&d, id, operation, &op.Spec, nil)
		if err != nil {
			return false, "", err
		}
		digest, err := plan.Digest()
		if err != nil {
			return false, "", err
		}
		d.Status.Remediations = []v1alpha1.Remediation{{
			ID: int32(id), PlanDigest: digest, Verb: v1alpha1.RemediationRun, Reason: v1alpha1.ReasonAllowed, Time: metav1.NowMicro(),
		}}
		return true, "", a.people.Status().Update(ctx, &d)
	})
}

// A repair waits for its decision, is reported before it begins, is made once, and is not repeated
// if its outcome is unknown.
func TestARepairOfTheNode(t *testing.T) {
	testenv.OnlyInTestAll(t)
	a := newAgent(t, cluster.Server(t))
	hang, calls := make(chan bool, 1), make(chan *v1alpha1.Diagnosis, 10)
	web := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		if r.URL.Path != "/look" {
			var d v1alpha1.Diagnosis // as it is while the repair runs
			if err := a.people.Get(context.WithoutCancel(r.Context()), client.ObjectKey{Namespace: a.namespace, Name: r.URL.Path[1:]}, &d); err != nil {
				t.Error(err)
			}
			calls <- &d
			if <-hang {
				<-r.Context().Done()
				return
			}
		}
		fmt.Fprint(w, `{}`)
	}))
	t.Cleanup(web.Close)
	begin := func(name string) (operation string) {
		look := &v1alpha1.Operation{ObjectMeta: metav1.ObjectMeta{Name: "look-" + a.node}}
		look.Spec.Effect = v1alpha1.EffectCollect
		look.Spec.Processor.HTTPServer = &v1alpha1.HTTPServer{Port: portOf(t, web), Path: "/look"}
		repair := &v1alpha1.Operation{ObjectMeta: metav1.ObjectMeta{Name: name + "-" + a.node}}
		repair.Spec.Effect = v1alpha1.EffectRemediate
		repair.Spec.Processor.HTTPServer = &v1alpha1.HTTPServer{Port: portOf(t, web), Path: "/" + name}
		set := &v1alpha1.OperationSet{ObjectMeta: metav1.ObjectMeta{Name: repair.Name}}
		set.Spec.AdjacencyList = []v1alpha1.Node{
			{ID: 0, To: []int32{1}}, {ID: 1, Operation: look.Name, To: []int32{2}}, {ID: 2, Operation: repair.Name},
		}
		d := &v1alpha1.Diagnosis{ObjectMeta: metav1.ObjectMeta{Namespace: a.namespace, Name: name}}
		d.Spec.OperationSet, d.Spec.NodeName = set.Name, a.node
		a.apply(look, repair, set, d)
		return repair.Name
	}
	called := func() *v1alpha1.Diagnosis {
		t.Helper()
		select {
		case d := <-calls:
			return d
		case <-time.After(testenv.Within(time.Minute)):
			t.Fatal("the repair is not made")
			return nil
		}
	}
	reported := func(d *v1alpha1.Diagnosis) {
		t.Helper()
		if c := d.Status.Checkpoint; c == nil || c.Intent == nil || c.Intent.ID != 2 {
			t.Errorf("it is not reported before: %+v", c)
		}
		if len(d.Status.Remediations) != 1 {
			t.Errorf("the decision is written over: %+v", d.Status.Remediations)
		}
	}
	a.Start()

	hang <- false
	operation := begin("made")
	a.allow("made", 2, operation)
	reported(called())
	d := a.awaitEnd(time.Minute, named("made"))
	if d.Status.Phase != v1alpha1.PhaseSucceeded || state(d, 2) != v1alpha1.ResultSucceeded || d.Status.Checkpoint.Intent != nil || len(d.Status.Remediations) != 1 {
		t.Errorf("status %+v", d.Status)
	}

	hang <- true
	operation = begin("killed")
	a.allow("killed", 2, operation)
	reported(called())
	a.Kill()
	a.Start()
	d = a.awaitEnd(time.Minute, named("killed"))
	if d.Status.Phase != v1alpha1.PhaseUnknown || state(d, 2) != v1alpha1.ResultUnknown || len(d.Status.Remediations) != 1 {
		t.Errorf("status %+v", d.Status)
	}
	if len(calls) > 0 {
		t.Error("the repair was made again")
	}
	a.Stop()
}
