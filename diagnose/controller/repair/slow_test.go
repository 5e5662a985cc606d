package repair

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/fake"
	policyclient "k8s.io/client-go/kubernetes/typed/policy/v1"
	k8stesting "k8s.io/client-go/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	clientfake "sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/kernosis/kernosis/diagnose/api/v1alpha1"
	"github.com/kernosis/kernosis/diagnose/operation"
	"github.com/kernosis/kernosis/diagnose/operation/catalog"
	"github.com/kernosis/kernosis/diagnose/policy"
)

// hungEvictions is an API server that answers no eviction of pods whose names begin with "hung".
type hungEvictions struct {
	kubernetes.Interface
	policyclient.PolicyV1Interface
	policyclient.EvictionInterface
	asked map[string]bool
}

func (h *hungEvictions) PolicyV1() policyclient.PolicyV1Interface        { return h }
func (h *hungEvictions) Evictions(string) policyclient.EvictionInterface { return h }
func (h *hungEvictions) Evict(ctx context.Context, e *policyv1.Eviction) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	h.asked[e.Name] = true
	if strings.HasPrefix(e.Name, "hung") {
		<-ctx.Done()
		return ctx.Err()
	}
	return nil
}

// Evictions that hang, because of a webhook for instance, don't keep other pods from being evicted.
func TestDrainWhileEvictionsHang(t *testing.T) {
	for _, hung := range []int{1, 10} {
		synctest.Test(t, func(t *testing.T) {
			api := fake.NewClientset(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n", ResourceVersion: "1"}, Spec: corev1.NodeSpec{Unschedulable: true}})
			yes := true
			names := []string{"web"}
			for i := range hung {
				names = append(names, fmt.Sprint("hung-", i))
			}
			for _, name := range names {
				p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "shop", OwnerReferences: []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "ReplicaSet", Name: "r", Controller: &yes}}}, Spec: corev1.PodSpec{NodeName: "n"}}
				if err := api.Tracker().Add(p); err != nil {
					t.Fatal(err)
				}
			}
			server := &hungEvictions{Interface: api, asked: map[string]bool{}}
			actions, err := NewActions(server, Config{Namespace: "system"})
			if err != nil {
				t.Fatal(err)
			}
			blueprint, _ := operation.Lookup(catalog.All(operation.Host{}), "drain")
			values, err := blueprint.Fill(nil)
			if err != nil {
				t.Fatal(err)
			}
			c := &Call{Builtin: "drain", Values: values, Began: time.Now(), Diagnosis: &v1alpha1.Diagnosis{
				ObjectMeta: metav1.ObjectMeta{Name: "d", Namespace: "system", UID: types.UID("d"), CreationTimestamp: metav1.Now()},
				Spec:       v1alpha1.DiagnosisSpec{NodeName: "n"},
			}}
			for passes := 0; !server.asked["web"] && passes < hung*hung; passes++ {
				ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
				p, err := actions.Do(ctx, c)
				cancel()
				if err != nil || p.State != v1alpha1.ResultRunning || p.Message == "" {
					t.Fatalf("%+v, %v", p, err)
				}
				c.Began, c = time.Now(), again(c, p)
			}
			if !server.asked["web"] {
				t.Error("the eviction of web was never requested")
			}
		})
	}
}

// An action that uses up its pass is retried within its time, and then abandoned, which is recorded.
func TestGoOnOfAnActionThatUsesUpItsPass(t *testing.T) {
	began := metav1.NewMicroTime(time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC))
	for name, test := range map[string]struct {
		after time.Duration
		state v1alpha1.ResultState
	}{"within its time": {patience / 2, v1alpha1.ResultRunning}, "after it": {2 * patience, v1alpha1.ResultUnknown}} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n", ResourceVersion: "1"}}
				api := fake.NewClientset(n)
				api.PrependReactor("patch", "nodes", func(k8stesting.Action) (bool, runtime.Object, error) {
					return true, nil, apierrors.NewInternalError(errors.New("webhook"))
				})
				now := began.Add(test.after)
				config := &Config{Namespace: "system", Holder: "us", Now: func() time.Time { return now }, Log: slog.New(slog.DiscardHandler)}
				actions, err := NewActions(api, *config)
				if err != nil {
					t.Fatal(err)
				}
				set := &v1alpha1.OperationSet{ObjectMeta: metav1.ObjectMeta{Name: "set"}}
				set.Spec.AdjacencyList = []v1alpha1.Node{{ID: 0, To: []int32{1}}, {ID: 1, Operation: "cordon"}}
				d := &v1alpha1.Diagnosis{ObjectMeta: metav1.ObjectMeta{Name: "d", Namespace: "system", UID: "d"}, Spec: v1alpha1.DiagnosisSpec{OperationSet: "set", NodeName: "n"}}
				d.Status.Phase = v1alpha1.PhaseRunning
				d.Status.Results = []v1alpha1.Result{{ID: 1, Operation: "cordon", State: v1alpha1.ResultAwaitingApproval}}
				p := &v1alpha1.RemediationPolicy{ObjectMeta: metav1.ObjectMeta{Name: "p"}, Spec: v1alpha1.RemediationPolicySpec{Mode: v1alpha1.ModeEnforce}}
				p.Status.Repairs = []v1alpha1.Repair{{Node: "n", Diagnosis: "d", Operation: "cordon", Holder: "us"}}
				c := clientfake.NewClientBuilder().WithScheme(scheme(t)).WithObjects(set, n.DeepCopy(), p).WithStatusSubresource(d, p).Build()
				l := &look{d: d, now: now, reconciler: &reconciler{
					client: c, live: c, actions: actions, builtins: catalog.All(operation.Host{}), counts: newCounts(), reporter: &reporter{recorder: silent{}}, config: config,
					budget: &policy.Budget{Reader: c, Writer: c.Status(), Holder: "us", Now: config.Now},
				}}
				u, err := l.due(t.Context(), d, 1)
				if err != nil {
					t.Fatal(err)
				}
				status := d.Status
				status.Remediations = []v1alpha1.Remediation{{
					ID: 1, PlanDigest: u.digest, Verb: v1alpha1.RemediationRun, Time: began,
					Outcome: &v1alpha1.RemediationOutcome{State: v1alpha1.ResultRunning, StartTime: began, Holder: "us"},
				}}
				err = c.Create(t.Context(), d)
				d.Status = status
				if err = errors.Join(err, c.Status().Update(t.Context(), d)); err != nil {
					t.Fatal(err)
				}
				ctx, cancel := context.WithTimeout(t.Context(), passTimeout)
				defer cancel()
				retried := l.goOn(ctx, 1)
				if ctx.Err() != nil {
					t.Errorf("the pass has no time left: %v", ctx.Err())
				}
				if err := c.Get(t.Context(), client.ObjectKeyFromObject(d), d); err != nil {
					t.Fatal(err)
				}
				if o := d.Status.Remediation(1).Outcome; o.State != test.state || (retried != nil) != (test.state == v1alpha1.ResultRunning) {
					t.Errorf("%v, %+v", retried, o)
				}
			})
		})
	}
}
