package chaostest_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kernosis/kernosis/diagnose/api/apitest"
	"github.com/kernosis/kernosis/diagnose/api/v1alpha1"
)

// repairs are Diagnoses with a repair of the node, which a web server of the test simulates.
type repairs struct {
	w         *world
	client    client.Client
	namespace string
	port      int32

	mu    sync.Mutex
	calls []time.Time // the latest call of the repair, by Diagnosis
	times []int       // number of its calls
	gone  int         // how many of the first were deleted
	// Diagnoses that taint another node, which compete for the budget.
	other   string
	taints  []string
	tainted int
}

func newRepairs(w *world, namespace string) *repairs {
	w.t.Helper()
	r := &repairs{w: w, client: apitest.Client(w.t, w.server.Admin()), namespace: namespace, other: w.server.Node(w.t)}
	web := httptest.NewServer(http.HandlerFunc(r.serve))
	w.t.Cleanup(web.Close)
	address, err := url.Parse(web.URL)
	w.must(err)
	port, err := strconv.ParseInt(address.Port(), 10, 32)
	w.must(err)
	r.port = int32(port)

	look := &v1alpha1.Operation{ObjectMeta: metav1.ObjectMeta{Name: "look-" + w.node}}
	look.Spec.Effect = v1alpha1.EffectCollect
	look.Spec.Processor.HTTPServer = &v1alpha1.HTTPServer{Port: r.port, Path: "/look"}
	policy := &v1alpha1.RemediationPolicy{ObjectMeta: metav1.ObjectMeta{Name: policyOf(w.node)}}
	most := int32(maxNodes)
	policy.Spec.Mode, policy.Spec.Budget.MaxNodes = v1alpha1.ModeEnforce, &most
	policy.Spec.NodeSelector.MatchLabels = map[string]string{repairLabel: w.node}
	// The next repair may come soon.
	policy.Spec.CooldownPerNode, policy.Spec.VerifyWithin = &metav1.Duration{}, metav1.Duration{Duration: time.Second}
	taint := &v1alpha1.Operation{ObjectMeta: metav1.ObjectMeta{Name: "taint-" + w.node}}
	taint.Spec.Processor.Builtin = &v1alpha1.Builtin{Name: "taint"}
	r.create(look)
	r.create(taint)
	r.create(apitest.SetOf("taint-"+w.node, taint.Name))
	r.create(policy)
	r.label(w.node)
	r.label(r.other)
	return r
}

// maxNodes is how many nodes the policy lets be under repair at once.
const maxNodes = 1

func policyOf(node string) string { return "of-" + node }

// repairLabel is the label of a node that the policy selects.
const repairLabel = "chaos"

func (r *repairs) label(node string) {
	r.w.t.Helper()
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"labels": map[string]string{repairLabel: r.w.node}}})
	r.w.must(err)
	_, err = r.w.server.Client().CoreV1().Nodes().Patch(r.w.t.Context(), node, types.MergePatchType, patch, metav1.PatchOptions{})
	r.w.must(err)
}

func (r *repairs) create(o client.Object) {
	r.w.t.Helper()
	if err := r.client.Create(r.w.t.Context(), o); err != nil && !apierrors.IsAlreadyExists(err) {
		r.w.t.Fatal(err)
	}
}

// forget records that all Diagnoses so far are deleted.
func (r *repairs) forget() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.gone, r.taints = len(r.times), nil
}

// begin creates a Diagnosis with a repair. While the API server is down it does nothing.
func (r *repairs) begin() {
	r.w.t.Helper()
	if r.w.away {
		return
	}
	r.mu.Lock()
	n := len(r.times)
	r.times, r.calls = append(r.times, 0), append(r.calls, time.Time{})
	r.mu.Unlock()
	name := r.name(n)
	repair := &v1alpha1.Operation{ObjectMeta: metav1.ObjectMeta{Name: name}}
	repair.Spec.Effect = v1alpha1.EffectRemediate
	repair.Spec.Processor.HTTPServer = &v1alpha1.HTTPServer{Port: r.port, Path: fmt.Sprint("/", n)}
	set := &v1alpha1.OperationSet{ObjectMeta: metav1.ObjectMeta{Name: name}}
	set.Spec.AdjacencyList = []v1alpha1.Node{
		{ID: 0, To: []int32{1}}, {ID: 1, Operation: "look-" + r.w.node, To: []int32{2}}, {ID: 2, Operation: name},
	}
	d := &v1alpha1.Diagnosis{ObjectMeta: metav1.ObjectMeta{Namespace: r.namespace, Name: name}}
	d.Spec.OperationSet, d.Spec.NodeName = name, r.w.node
	r.create(repair)
	r.create(set)
	r.create(d)
}

// taint creates a Diagnosis that taints the other node. While the API server is down it does nothing.
func (r *repairs) taint() {
	r.w.t.Helper()
	if r.w.away {
		return
	}
	r.tainted++
	name := fmt.Sprintf("taint-%d-%s", r.tainted, r.w.node)
	d := &v1alpha1.Diagnosis{ObjectMeta: metav1.ObjectMeta{Namespace: r.namespace, Name: name}}
	d.Spec.OperationSet, d.Spec.NodeName = "taint-"+r.w.node, r.other
	r.create(d)
	r.taints = append(r.taints, name)
}

func (r *repairs) name(n int) string { return fmt.Sprintf("repair-%d-%s", n, r.w.node) }

// serve answers the agent's requests. A repair takes a while, so that it can be interrupted.
func (r *repairs) serve(rw http.ResponseWriter, request *http.Request) {
	defer fmt.Fprint(rw, `{}`)
	n, err := strconv.Atoi(strings.TrimPrefix(request.URL.Path, "/"))
	if err != nil {
		return // not a repair
	}
	r.mu.Lock()
	r.times[n]++
	r.calls[n] = time.Now()
	r.mu.Unlock()
	r.w.note("  repair %d is made: %s", n, r.grantAtCall(n))
	select {
	case <-time.After(300 * time.Millisecond):
	case <-request.Context().Done():
	}
}

// grantAtCall checks that a repair that is being made has a decision and a slot of the policy. It returns what it
// found, which is nothing while the API server does not answer.
func (r *repairs) grantAtCall(n int) string {
	ctx, cancel := context.WithTimeout(r.w.t.Context(), 5*time.Second)
	defer cancel()
	var d v1alpha1.Diagnosis
	var p v1alpha1.RemediationPolicy
	err := r.client.Get(ctx, client.ObjectKey{Namespace: r.namespace, Name: r.name(n)}, &d)
	if err == nil {
		err = r.client.Get(ctx, client.ObjectKey{Name: policyOf(r.w.node)}, &p)
	}
	if err != nil {
		return "the grant can't be read: " + err.Error()
	}
	r.w.checked("a repair has its grant when it is called")
	slot := slices.ContainsFunc(p.Status.Repairs, func(s v1alpha1.Repair) bool { return s.Diagnosis == d.UID && s.EndTime == nil })
	if !allowed(&d) || !slot {
		r.w.t.Errorf("%s is made without a grant: decisions %+v, slots %+v", d.Name, d.Status.Remediations, p.Status.Repairs)
	}
	return "it is granted"
}

// allowed reports whether the Diagnosis has the decision that its repair is made.
func allowed(d *v1alpha1.Diagnosis) bool {
	return len(d.Status.Remediations) == 1 && d.Status.Remediations[0].Verb == v1alpha1.RemediationRun
}

// check waits until all Diagnoses have ended, and checks that each repair was made at most once, and only
// after a decision, and that no slot of the policy is left.
func (r *repairs) check() {
	r.w.t.Helper()
	for n, times := range r.times[:r.gone] {
		if times > 1 {
			r.w.t.Errorf("%s, which is deleted, was made %d times", r.name(n), times)
		}
	}
	for n := r.gone; n < len(r.times); n++ {
		name := r.name(n)
		var d v1alpha1.Diagnosis
		r.w.await("end of "+name, func() (bool, string) {
			err := r.client.Get(r.w.t.Context(), client.ObjectKey{Namespace: r.namespace, Name: name}, &d)
			return err == nil && d.Status.Phase.Ended(), fmt.Sprintf("%s %+v %v", d.Status.Phase, d.Status.Conditions, err)
		})
		r.mu.Lock()
		times, call := r.times[n], r.calls[n]
		r.mu.Unlock()
		i := slices.IndexFunc(d.Status.Results, func(r v1alpha1.Result) bool { return r.ID == 2 })
		made := i >= 0 && d.Status.Results[i].State == v1alpha1.ResultSucceeded
		r.w.checked("a repair is made at most once, and only after its decision")
		if times > 1 || times == 1 && (!allowed(&d) || d.Status.Remediations[0].Time.After(call)) || made && times == 0 {
			r.w.t.Errorf("%s was made %d times, last at %v: %s, %+v, decisions %+v", name, times, call, d.Status.Phase, d.Status.Results, d.Status.Remediations)
		}
		if times == 1 && !r.w.witness.sawGrant(d.UID) {
			r.w.t.Errorf("%s was made, but never had a slot of the policy", name)
		}
		r.w.note("  %s: %s, made %d times; %+v", name, d.Status.Phase, times, d.Status.Results)
	}
	for _, name := range r.taints {
		var d v1alpha1.Diagnosis
		r.w.await("end of "+name, func() (bool, string) {
			err := r.client.Get(r.w.t.Context(), client.ObjectKey{Namespace: r.namespace, Name: name}, &d)
			return err == nil && d.Status.Phase.Ended(), fmt.Sprintf("%s %+v %v", d.Status.Phase, d.Status.Conditions, err)
		})
		r.w.note("  %s: %s; %+v", name, d.Status.Phase, d.Status.Remediations)
		if d.Status.Phase == v1alpha1.PhaseSucceeded && !r.w.witness.sawGrant(d.UID) {
			r.w.t.Errorf("%s succeeded, but never had a slot of the policy", name)
		}
	}
	r.w.checked("no slot of a policy is left")
	r.w.await("slots that are returned", func() (bool, string) {
		var p v1alpha1.RemediationPolicy
		err := r.client.Get(r.w.t.Context(), client.ObjectKey{Name: policyOf(r.w.node)}, &p)
		held := slices.ContainsFunc(p.Status.Repairs, func(s v1alpha1.Repair) bool { return s.EndTime == nil })
		return err == nil && !held, fmt.Sprintf("%+v %v", p.Status.Repairs, err)
	})
}
