package repair

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/fake"
	policyclient "k8s.io/client-go/kubernetes/typed/policy/v1"

	"github.com/kernosis/kernosis/diagnose/api/v1alpha1"
	"github.com/kernosis/kernosis/diagnose/operation"
	"github.com/kernosis/kernosis/diagnose/operation/catalog"
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
