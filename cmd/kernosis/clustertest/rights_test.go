package clustertest_test

import (
	"os"
	"slices"
	"strings"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/kernosis/kernosis/diagnose/api/v1alpha1"
	"github.com/kernosis/kernosis/reporter/kubetest"
)

// withRights returns the configuration of a user with the rights of an agent, as
// docs/cluster.md has them.
func withRights(t testing.TB, server *kubetest.Server, namespace string) *rest.Config {
	t.Helper()
	everywhere, inNamespace := documented(t)
	user := "agent-of-" + namespace
	to := rbacv1.Subject{Kind: rbacv1.UserKind, APIGroup: rbacv1.GroupName, Name: user}
	server.Grant(t, to, "", user, &rbacv1.ClusterRole{Rules: everywhere})
	server.Grant(t, to, namespace, user, &rbacv1.ClusterRole{TypeMeta: metav1.TypeMeta{Kind: "Role"}, Rules: inNamespace})
	return server.Config(t, user)
}

// documented returns what the table has for all namespaces, and for the agent's own.
func documented(t testing.TB) (everywhere, inNamespace []rbacv1.PolicyRule) {
	t.Helper()
	text, err := os.ReadFile("../../../docs/cluster.md")
	if err != nil {
		t.Fatal(err)
	}
	_, section, _ := strings.Cut(string(text), "\n## Rights\n")
	for line := range strings.Lines(section) {
		cells := strings.Split(strings.Trim(strings.TrimSpace(line), "|"), "|")
		if len(cells) != 3 || !strings.Contains(cells[1], "`") {
			continue
		}
		names, of, _ := strings.Cut(strings.TrimSpace(cells[1]), " of ")
		for name := range strings.SplitSeq(names, ", ") {
			name = strings.Trim(name, "`")
			rule := rbacv1.PolicyRule{APIGroups: []string{groupOf(name)}, Resources: []string{name}, Verbs: strings.Split(strings.TrimSpace(cells[2]), ", ")}
			if of == "" {
				everywhere = append(everywhere, rule)
			} else {
				inNamespace = append(inNamespace, rule)
			}
		}
	}
	if len(everywhere) == 0 || len(inNamespace) == 0 {
		t.Fatal("docs/cluster.md tells of no rights")
	}
	return everywhere, inNamespace
}

func groupOf(resource string) string {
	kind, _, _ := strings.Cut(resource, "/")
	switch {
	case kind == "leases":
		return "coordination.k8s.io"
	case slices.Contains([]string{"nodes", "pods", "events"}, kind):
		return ""
	}
	return v1alpha1.Group
}
