package kubetest

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"github.com/kernosis/kernosis/vmtest/testenv"
)

// Kinds of roles.
const (
	clusterRole = "ClusterRole"
	role        = "Role"
)

// ControllerRoles returns the roles of the controller, including those for repairs. root is the
// root of the checkout.
func ControllerRoles(tb testing.TB, root string) []rbacv1.ClusterRole {
	tb.Helper()
	return slices.Concat(Roles(tb, filepath.Join(root, "deploy/kustomize/base/controller-rbac.yaml")), Roles(tb, filepath.Join(root, "docs/controller.md")))
}

// Roles returns the roles in a file of manifests, or in the YAML blocks of a documentation page, as
// ClusterRoles. Their Kind says whether they are cluster-wide or of a namespace.
func Roles(tb testing.TB, page string) []rbacv1.ClusterRole {
	tb.Helper()
	text, err := os.ReadFile(page)
	if err != nil {
		tb.Fatal(err)
	}
	blocks := [][][]byte{{nil, text}}
	if filepath.Ext(page) == ".md" {
		blocks = regexp.MustCompile("(?s)```yaml\n(.*?)```").FindAllSubmatch(text, -1)
	}
	var all []rbacv1.ClusterRole
	for _, block := range blocks {
		for part := range strings.SplitSeq(string(block[1]), "---\n") {
			var kind metav1.TypeMeta
			if err := yaml.Unmarshal([]byte(part), &kind); err != nil || kind.Kind != clusterRole && kind.Kind != role {
				continue // another kind of object
			}
			var r rbacv1.ClusterRole
			if err := yaml.UnmarshalStrict([]byte(part), &r); err != nil {
				tb.Fatalf("%s: %v", page, err)
			}
			all = append(all, r)
		}
	}
	if len(all) == 0 {
		tb.Fatalf("%s has no roles", page)
	}
	return all
}

// AgentRights returns the rights that the table in a documentation page, docs/cluster.md, lists for
// an agent with the given settings, such as "probes: off": those in all namespaces and
// cluster-wide, and those in its own namespace.
func AgentRights(tb testing.TB, page string, settings ...string) (everywhere, inNamespace []rbacv1.PolicyRule) {
	tb.Helper()
	text, err := os.ReadFile(page)
	if err != nil {
		tb.Fatal(err)
	}
	_, section, _ := strings.Cut(string(text), "\n## Rights\n")
	for line := range strings.Lines(section) {
		cells := strings.Split(strings.Trim(strings.TrimSpace(line), "|"), "|")
		if len(cells) != 4 || !strings.Contains(cells[1], "`") || !goesBy(tb, strings.TrimSpace(cells[3]), settings) {
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
	// The only right that is limited to an object's name.
	if strings.Contains(section, "| its own DaemonSet, by name | get |") {
		inNamespace = append(inNamespace, rbacv1.PolicyRule{
			APIGroups: []string{"apps"}, Resources: []string{"daemonsets"}, Verbs: []string{"get"}, ResourceNames: []string{"kernosis-agent"},
		})
	}
	if len(everywhere) < 5 || len(inNamespace) < 2 {
		tb.Fatalf("%s has %d and %d rights", page, len(everywhere), len(inNamespace))
	}
	return everywhere, inNamespace
}

// goesBy reports whether a right applies with the given settings: "not with `probes: off`", "only
// with …", or always.
func goesBy(tb testing.TB, when string, settings []string) bool {
	tb.Helper()
	if when == "" {
		return true
	}
	how, of, ok := strings.Cut(when, " with ")
	if !ok || how != "not" && how != "only" {
		tb.Fatalf("settings of a right: %q", when)
	}
	has := slices.ContainsFunc(strings.Split(of, ", "), func(s string) bool { return slices.Contains(settings, strings.Trim(s, "`")) })
	return has == (how == "only")
}

// groupOf returns the API group of a resource in the table.
func groupOf(resource string) string {
	kind, _, _ := strings.Cut(resource, "/")
	switch {
	case kind == "leases":
		return "coordination.k8s.io"
	case kind == "tokenreviews":
		return "authentication.k8s.io"
	case kind == "subjectaccessreviews":
		return "authorization.k8s.io"
	case slices.Contains([]string{"nodes", "pods", "events"}, kind):
		return ""
	}
	return "kernosis.io"
}

// Grant gives a user roles: in the namespace those of kind Role, the others cluster-wide. It returns
// when the API server's authorizer applies them, which is a moment later.
func (s *Server) Grant(tb testing.TB, user, namespace string, roles ...rbacv1.ClusterRole) {
	tb.Helper()
	rbac, ctx, to := s.client.RbacV1(), tb.Context(), rbacv1.Subject{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: user}
	for i := range roles {
		r, meta := &roles[i], metav1.ObjectMeta{Name: name(tb)}
		subjects, ref := []rbacv1.Subject{to}, rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: clusterRole, Name: meta.Name}
		var err error
		if r.Kind == role {
			ref.Kind = role
			if _, err = rbac.Roles(namespace).Create(ctx, &rbacv1.Role{ObjectMeta: meta, Rules: r.Rules}, metav1.CreateOptions{}); err == nil {
				_, err = rbac.RoleBindings(namespace).Create(ctx, &rbacv1.RoleBinding{ObjectMeta: meta, RoleRef: ref, Subjects: subjects}, metav1.CreateOptions{})
			}
		} else if _, err = rbac.ClusterRoles().Create(ctx, &rbacv1.ClusterRole{ObjectMeta: meta, Rules: r.Rules}, metav1.CreateOptions{}); err == nil {
			_, err = rbac.ClusterRoleBindings().Create(ctx, &rbacv1.ClusterRoleBinding{ObjectMeta: meta, RoleRef: ref, Subjects: subjects}, metav1.CreateOptions{})
		}
		if err != nil {
			tb.Fatal(err)
		}
		s.awaitRules(tb, to, namespace, r)
	}
}

// AwaitRole waits until the API server's authorizer applies a ClusterRole that was bound to a user,
// group or service account without [Server.Grant]: in a namespace, or cluster-wide.
func (s *Server) AwaitRole(tb testing.TB, to rbacv1.Subject, namespace, name string) {
	tb.Helper()
	r, err := s.client.RbacV1().ClusterRoles().Get(tb.Context(), name, metav1.GetOptions{})
	if err != nil {
		tb.Fatal(err)
	}
	s.awaitRules(tb, to, namespace, r)
}

func (s *Server) awaitRules(tb testing.TB, to rbacv1.Subject, namespace string, r *rbacv1.ClusterRole) {
	tb.Helper()
	for i := range r.Rules {
		testenv.Until(tb, "the API server applies the role "+r.Name+" of "+to.Name, 30*time.Second, func() bool {
			return s.may(tb, to, namespace, &r.Rules[i])
		})
	}
}

// may reports whether the API server's authorizer grants a rule.
func (s *Server) may(tb testing.TB, who rbacv1.Subject, namespace string, rule *rbacv1.PolicyRule) bool {
	tb.Helper()
	spec := authorizationv1.SubjectAccessReviewSpec{User: who.Name}
	switch who.Kind {
	case rbacv1.ServiceAccountKind:
		spec.User = accountUser(who.Namespace, who.Name)
	case rbacv1.GroupKind:
		spec.User, spec.Groups = "", []string{who.Name}
	}
	if len(rule.NonResourceURLs) > 0 {
		spec.NonResourceAttributes = &authorizationv1.NonResourceAttributes{Path: rule.NonResourceURLs[0], Verb: rule.Verbs[0]}
	} else {
		resource, sub, _ := strings.Cut(rule.Resources[0], "/")
		spec.ResourceAttributes = &authorizationv1.ResourceAttributes{
			Namespace: namespace, Group: rule.APIGroups[0], Resource: resource, Subresource: sub, Verb: rule.Verbs[0],
		}
		if len(rule.ResourceNames) > 0 {
			spec.ResourceAttributes.Name = rule.ResourceNames[0]
		}
	}
	answer, err := s.client.AuthorizationV1().SubjectAccessReviews().Create(tb.Context(), &authorizationv1.SubjectAccessReview{Spec: spec}, metav1.CreateOptions{})
	if err != nil {
		tb.Fatal(err)
	}
	return answer.Status.Allowed
}
