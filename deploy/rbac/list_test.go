package rbac_test

import (
	"slices"
	"strings"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"

	"github.com/kernosis/kernosis/diagnose/api/v1alpha1"
	"github.com/kernosis/kernosis/vmtest/kubetest"
)

// list is a list of rights: those in all namespaces and cluster-wide, and those in one namespace.
type list struct {
	everywhere, inNamespace []rbacv1.PolicyRule
}

// allows reports whether an act is on the list. A subresource follows the resource after a slash.
func (l list) allows(a act, system string) bool {
	rules := l.everywhere
	if a.namespace == system {
		rules = append(slices.Clone(rules), l.inNamespace...)
	}
	return slices.ContainsFunc(rules, func(r rbacv1.PolicyRule) bool {
		return slices.Contains(r.APIGroups, a.group) && slices.Contains(r.Resources, a.resource) && slices.Contains(r.Verbs, a.verb) &&
			(len(r.ResourceNames) == 0 || slices.Contains(r.ResourceNames, a.name))
	})
}

// allowsURL is allows for non-resource paths.
func (l list) allowsURL(path, verb string) bool {
	return slices.ContainsFunc(l.everywhere, func(r rbacv1.PolicyRule) bool {
		return slices.Contains(r.Verbs, verb) && slices.ContainsFunc(r.NonResourceURLs, func(url string) bool {
			prefix, any := strings.CutSuffix(url, "*")
			return url == path || any && strings.HasPrefix(path, prefix)
		})
	})
}

// names returns the resource names in the rules for a resource.
func (l list) names(group, resource string) (out []string) {
	for _, r := range slices.Concat(l.everywhere, l.inNamespace) {
		if slices.Contains(r.APIGroups, group) && slices.Contains(r.Resources, resource) {
			out = append(out, r.ResourceNames...)
		}
	}
	return out
}

func (l list) and(more list) list {
	return list{slices.Concat(l.everywhere, more.everywhere), slices.Concat(l.inNamespace, more.inNamespace)}
}

// everybodys returns the rights of every service account through Kubernetes' own roles: to query
// its own rights and to discover the API. The chart adds the right to read OperationSets.
func everybodys() list {
	return list{everywhere: []rbacv1.PolicyRule{
		{APIGroups: []string{"authorization.k8s.io"}, Resources: []string{"selfsubjectaccessreviews", "selfsubjectrulesreviews"}, Verbs: []string{"create"}},
		{APIGroups: []string{"authentication.k8s.io"}, Resources: []string{"selfsubjectreviews"}, Verbs: []string{"create"}},
		{NonResourceURLs: []string{"/api", "/api/*", "/apis", "/apis/*", "/healthz", "/livez", "/openapi", "/openapi/*", "/readyz", "/version", "/version/",
			"/.well-known/openid-configuration", "/.well-known/openid-configuration/", "/openid/v1/jwks", "/openid/v1/jwks/"}, Verbs: []string{"get"}},
		{APIGroups: []string{v1alpha1.Group}, Resources: []string{"operationsets"}, Verbs: []string{"get", "list", "watch"}},
	}}
}

// agents returns the rights in docs/cluster.md for an agent with the given settings.
func agents(t *testing.T, settings ...string) list {
	t.Helper()
	everywhere, inNamespace := kubetest.AgentRights(t, "../../docs/cluster.md", settings...)
	return list{everywhere, inNamespace}
}

// documented returns the rights in a page's roles of the given names.
func documented(t *testing.T, page string, roles ...string) (l list) {
	t.Helper()
	found := 0
	for _, r := range kubetest.Roles(t, page) {
		switch {
		case !slices.Contains(roles, r.Name):
			continue
		case r.Kind == "Role":
			l.inNamespace = append(l.inNamespace, r.Rules...)
		default:
			l.everywhere = append(l.everywhere, r.Rules...)
		}
		found++
	}
	if found < len(roles) {
		t.Fatalf("%s: %d of the roles %v", page, found, roles)
	}
	return l
}

// documentedSecrets returns the row of docs/cluster.md for Secrets, whose names come from the value
// agent.clientCertificateSecrets.
func documentedSecrets(names ...string) []rbacv1.PolicyRule {
	return []rbacv1.PolicyRule{{APIGroups: []string{""}, Resources: []string{"secrets"}, Verbs: []string{"get"}, ResourceNames: names}}
}
