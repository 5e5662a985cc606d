package kube_test

import (
	"os"
	"sync"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/kernosis/kernosis/reporter/kubetest"
)

var cluster = kubetest.Shared{Own: true} // one test counts all writes of its etcd

func TestMain(m *testing.M) { os.Exit(cluster.Run(m)) }

// serviceAccount returns the configuration of the agents' user. It may do no more
// than they do, and the API server's fairness among users holds for it: a fleet is
// one user.
func serviceAccount(t *testing.T, server *kubetest.Server, namespace string) *rest.Config {
	t.Helper()
	rbac := server.Client().RbacV1()
	if _, err := rbac.ClusterRoles().Create(t.Context(), &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: namespace}, Rules: []rbacv1.PolicyRule{
		{APIGroups: []string{""}, Resources: []string{"nodes"}, Verbs: []string{"get", "watch"}},
		{APIGroups: []string{""}, Resources: []string{"nodes/status"}, Verbs: []string{"patch"}},
		{APIGroups: []string{""}, Resources: []string{"events"}, Verbs: []string{"create", "patch"}},
		{APIGroups: []string{"coordination.k8s.io"}, Resources: []string{"leases"}, Verbs: []string{"get", "create", "update"}},
	}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, err := rbac.ClusterRoleBindings().Create(t.Context(), &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: namespace}, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: namespace},
		Subjects: []rbacv1.Subject{{Kind: "ServiceAccount", Namespace: namespace, Name: "default"}},
	}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	c := server.WithToken(server.Token(t, kubetest.TokenFor{Namespace: namespace, ServiceAccount: "default"}))
	c.ContentType, c.AcceptContentTypes = "application/vnd.kubernetes.protobuf", "application/vnd.kubernetes.protobuf,application/json"
	return c
}

// makeNodes makes so many Nodes, some at a time.
func makeNodes(t *testing.T, server *kubetest.Server, n int) []string {
	t.Helper()
	var mu sync.Mutex
	var names []string
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for {
				node := ""
				mu.Lock()
				if len(names) < n {
					node = nodeName(len(names))
					names = append(names, node)
				}
				mu.Unlock()
				if node == "" {
					return
				}
				server.NodeNamed(t, node)
			}
		})
	}
	wg.Wait()
	if t.Failed() {
		t.FailNow()
	}
	return names
}
