package clustertest_test

import (
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/kernosis/kernosis/vmtest/kubetest"
)

// withRights returns the configuration of a user with the rights of an agent that
// docs/cluster.md lists.
func withRights(t testing.TB, server *kubetest.Server, namespace string) *rest.Config {
	t.Helper()
	everywhere, inNamespace := kubetest.AgentRights(t, "../../../docs/cluster.md")
	user := "agent-of-" + namespace
	server.Grant(t, user, namespace, rbacv1.ClusterRole{Rules: everywhere}, rbacv1.ClusterRole{TypeMeta: metav1.TypeMeta{Kind: "Role"}, Rules: inNamespace})
	return server.Config(t, user)
}
