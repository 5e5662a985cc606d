package clustertest_test

import (
	"context"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kernosis/kernosis/diagnose/api/v1alpha1"
	"github.com/kernosis/kernosis/vmtest/testenv"
)

// A tenant's Diagnosis looks at the tenant's own pod, with tenant-safe operations only, and its
// status is written in the tenant's namespace.
func TestADiagnosisOfATenant(t *testing.T) {
	testenv.OnlyInTestAll(t)
	server := cluster.Server(t)
	a := newAgent(t, server)
	tenant := server.Namespace(t)
	server.Pod(t, tenant, "web-0", a.node)
	for name, safe := range map[string]bool{"safe": true, "unsafe": false} {
		o := &v1alpha1.Operation{ObjectMeta: metav1.ObjectMeta{Name: name + "-" + a.node}}
		o.Spec.Processor.Builtin, o.Spec.TenantSafe = &v1alpha1.Builtin{Name: "pod-detail"}, safe
		set := &v1alpha1.OperationSet{ObjectMeta: metav1.ObjectMeta{Name: o.Name}}
		set.Spec.AdjacencyList = []v1alpha1.Node{{ID: 0, To: []int32{1}}, {ID: 1, Operation: o.Name}}
		d := &v1alpha1.Diagnosis{ObjectMeta: metav1.ObjectMeta{Namespace: tenant, Name: name}}
		d.Spec.OperationSet, d.Spec.NodeName = set.Name, a.node // normally set by the controller
		d.Spec.PodReference = &v1alpha1.PodReference{Name: "web-0"}
		a.apply(o, set, d)
	}
	gone := &v1alpha1.Diagnosis{ObjectMeta: metav1.ObjectMeta{Namespace: tenant, Name: "gone"}}
	gone.Spec.OperationSet, gone.Spec.NodeName = "safe-"+a.node, a.node
	gone.Spec.PodReference = &v1alpha1.PodReference{Name: "there-is-none"}
	a.apply(gone)
	a.Start()
	for name, want := range map[string]string{
		"safe": v1alpha1.ReasonPathSucceeded, "unsafe": v1alpha1.ReasonNotAllowed, "gone": v1alpha1.ReasonPodNotFound,
	} {
		a.await("end of "+name, time.Minute, func(ctx context.Context) (bool, string, error) {
			var d v1alpha1.Diagnosis
			if err := a.people.Get(ctx, client.ObjectKey{Namespace: tenant, Name: name}, &d); err != nil {
				return false, "", err
			}
			return complete(&d) && d.Status.Conditions[0].Reason == want, summary([]v1alpha1.Diagnosis{d}), nil
		})
	}
	a.Stop()
}
