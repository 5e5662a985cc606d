package admission_test

import (
	"strings"
	"testing"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kernosis/kernosis/diagnose/api/apitest"
	"github.com/kernosis/kernosis/reporter/kube/lease"
	"github.com/kernosis/kernosis/vmtest/kubetest"
)

// leaseOf returns the Lease of a node's agent, as the agent creates it.
func leaseOf(node string) *coordinationv1.Lease {
	return &coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{Namespace: system, Name: lease.Name(node), Labels: map[string]string{lease.LabelComponent: lease.ComponentAgent}},
		Spec:       coordinationv1.LeaseSpec{HolderIdentity: &node},
	}
}

func TestAgentsLeases(t *testing.T) {
	server := installedServer(t)
	node, elsewhere, unborn := server.Node(t), server.Node(t), "not-yet"
	own, other := bound(t, server, node), bound(t, server, elsewhere)
	loose := apitest.Client(t, server.WithToken(server.Token(t, kubetest.TokenFor{Namespace: system, ServiceAccount: agent})))
	const holder = "spec.holderIdentity: must be the node of the agent"

	mine, theirs := leaseOf(node), leaseOf(elsewhere)
	outcome(t, "its own", own.Create(t.Context(), mine), "")
	outcome(t, "the other's own", other.Create(t.Context(), theirs), "")
	mine.Annotations = map[string]string{lease.AnnotationTypes: "KernelDeadlock"}
	outcome(t, "its own, renewed", own.Update(t.Context(), mine), "")

	drained := theirs.DeepCopy()
	drained.Annotations = map[string]string{lease.AnnotationDraining: "2026-01-01T00:00:00Z"}
	outcome(t, "another's", own.Update(t.Context(), drained), holder)
	taken := theirs.DeepCopy()
	taken.Spec.HolderIdentity = &node
	outcome(t, "another's, taken over", own.Update(t.Context(), taken), holder)
	outcome(t, "another's, made before it comes", own.Create(t.Context(), leaseOf(unborn)), holder)
	squat := leaseOf(unborn)
	squat.Spec.HolderIdentity = &node
	outcome(t, "another's name", own.Create(t.Context(), squat), "metadata.name: must be kernosis-"+node)
	given := mine.DeepCopy()
	given.Spec.HolderIdentity = &elsewhere
	outcome(t, "its own, given away", own.Update(t.Context(), given), holder)
	outcome(t, "by an unbound token", loose.Update(t.Context(), mine.DeepCopy()), "is not bound to a node")
	outcome(t, "its deletion", own.Delete(t.Context(), mine.DeepCopy()), "kernosis-agent-leases")
	outside := leaseOf(node)
	outside.Namespace = server.Namespace(t)
	outcome(t, "in another namespace", own.Create(t.Context(), outside), "in the system's namespace")

	// A name that is too long with its prefix, and the controller, which is not an agent.
	long := strings.Repeat("n", 60) + "." + strings.Repeat("o", 63) + "." + strings.Repeat("d", 63) + "." + strings.Repeat("e", 60)
	must(t, apitest.Client(t, server.Admin()), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: long}})
	outcome(t, "of a long name", bound(t, server, long).Create(t.Context(), leaseOf(long)), "")
	control := apitest.Client(t, server.WithToken(server.Token(t, kubetest.TokenFor{Namespace: system, ServiceAccount: controller})))
	election := leaseOf(node)
	election.Name = "controller.kernosis.io"
	outcome(t, "the controller's", control.Create(t.Context(), election), "")
	outcome(t, "the controller's, by an agent", own.Update(t.Context(), election), "metadata.name")
}
