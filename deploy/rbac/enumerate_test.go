package rbac_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"
	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/kernosis/kernosis/vmtest/kubetest"
	"github.com/kernosis/kernosis/vmtest/testenv"
)

// act is an action that a request may perform.
type act struct {
	group, resource, verb, namespace, name string
}

func (a act) String() string {
	return fmt.Sprintf("%s %s.%s %s/%s", a.verb, a.resource, a.group, a.namespace, a.name)
}

// verbs returns all verbs of Kubernetes, its admission and its authorizers.
func verbs() []string {
	return []string{
		"get", "list", "watch", "create", "update", "patch", "delete", "deletecollection", "proxy",
		"bind", "escalate", "impersonate", "approve", "sign", "attest", "use", "*",
	}
}

// unlisted returns resources that are authorized but not discoverable: what kubelet asks about, and
// who may be impersonated.
func unlisted() []metav1.APIResource {
	return []metav1.APIResource{
		{Name: "nodes/metrics"}, {Name: "nodes/stats"}, {Name: "nodes/log"}, {Name: "nodes/spec"}, {Name: "nodes/checkpoint"},
		{Name: "nodes/configz"}, {Name: "nodes/healthz"}, {Name: "nodes/pods"},
		{Name: "users"}, {Name: "groups"}, {Name: "*"}, {Name: "*", Group: "*"}, {Name: "*/*", Group: "*"},
		{Name: "userextras/scopes", Group: "authentication.k8s.io"}, {Name: "uids", Group: "authentication.k8s.io"},
		{Name: "signers", Group: "certificates.k8s.io"}, {Name: "attachments", Group: "storage.k8s.io"},
	}
}

// resources returns all resources of the API server and those of unlisted, without duplicates.
func resources(t *testing.T, server *kubetest.Server) (all []metav1.APIResource) {
	t.Helper()
	_, lists, err := server.Client().Discovery().ServerGroupsAndResources()
	if err != nil {
		t.Fatal(err)
	}
	seen := map[string]bool{}
	add := func(r metav1.APIResource) {
		if id := r.Group + " " + r.Name; !seen[id] {
			seen[id] = true
			all = append(all, r)
		}
	}
	for _, l := range lists {
		group, _, ok := strings.Cut(l.GroupVersion, "/")
		if !ok {
			group = ""
		}
		for _, r := range l.APIResources {
			r.Group = group
			add(r)
		}
	}
	if len(all) < 80 {
		t.Fatalf("only %d resources", len(all))
	}
	for _, r := range unlisted() {
		add(r)
	}
	return all
}

// acts returns all possible actions, in the system's namespace, in another one, and in all
// namespaces; on any object, on those that the list names, and on another one. A right in all
// namespaces includes the other namespace, and a right to any object includes another object. So
// actions in all namespaces, or on any object, are included only if the list allows them.
func acts(t *testing.T, server *kubetest.Server, l list, system, other string) (all []act) {
	t.Helper()
	for _, r := range resources(t, server) {
		namespaces := []string{""}
		if r.Namespaced {
			namespaces = []string{"", system, other}
		}
		names := append([]string{"", "some-other"}, l.names(r.Group, r.Name)...)
		for _, verb := range verbs() {
			for _, ns := range namespaces {
				for _, name := range names {
					a := act{r.Group, r.Name, verb, ns, name}
					if implied := name == "" || r.Namespaced && ns == ""; !implied || l.allows(a, system) {
						all = append(all, a)
					}
				}
			}
		}
	}
	return all
}

// paths returns non-resource paths: some that everybody may read, and others that expose or do
// more.
func paths() []string {
	return []string{
		"/", "/api", "/api/v1", "/apis", "/version", "/healthz", "/livez", "/readyz", "/livez/ping", "/healthz/etcd", "/readyz/etcd", "/openapi/v3", "/metrics", "/metrics/slis", "/logs", "/logs/x",
		"/debug/pprof/", "/debug/pprof/profile", "/debug/flags/v", "/configz", "/flagz", "/statusz", "/openid/v1/jwks", "/.well-known/openid-configuration",
		"/api/v1/alerts", "/api/v1/alerts/webhook", "/api/v2/alerts", "/*", "*",
	}
}

// inspector asks the API server, as a given user, whether the user may perform actions.
type inspector struct {
	kube   *kubernetes.Clientset
	system string
	other  string
}

func newInspector(t *testing.T, server *kubetest.Server, token, system string) *inspector {
	t.Helper()
	return &inspector{kube: kubetest.Clientset(t, server.WithToken(token)), system: system, other: server.Namespace(t)}
}

func (i *inspector) may(ctx context.Context, a act) (bool, error) {
	resource, sub, _ := strings.Cut(a.resource, "/")
	return i.ask(ctx, authorizationv1.SelfSubjectAccessReviewSpec{ResourceAttributes: &authorizationv1.ResourceAttributes{
		Namespace: a.namespace, Verb: a.verb, Group: a.group, Resource: resource, Subresource: sub, Name: a.name,
	}})
}

func (i *inspector) ask(ctx context.Context, spec authorizationv1.SelfSubjectAccessReviewSpec) (bool, error) {
	r, err := i.kube.AuthorizationV1().SelfSubjectAccessReviews().Create(ctx, &authorizationv1.SelfSubjectAccessReview{Spec: spec}, metav1.CreateOptions{})
	if err != nil {
		return false, err
	}
	return r.Status.Allowed, nil
}

// inForce waits until the API server applies everything on the list.
func (i *inspector) inForce(t *testing.T, all []act, l list) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), testenv.Within(30*time.Second))
	defer cancel()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for _, a := range all {
		if !l.allows(a, i.system) {
			continue
		}
		for {
			ok, err := i.may(ctx, a)
			if err != nil {
				t.Fatalf("%v: on the list but not allowed: %v", a, err)
			}
			if ok {
				break
			}
			select {
			case <-tick.C:
			case <-ctx.Done():
				t.Fatalf("%v: on the list but not allowed", a)
			}
		}
	}
}

// awaitGone waits until the API server no longer grants some rights of a role.
func (i *inspector) awaitGone(t *testing.T, gone []act) {
	t.Helper()
	for _, a := range gone {
		testenv.Until(t, "loss of "+a.String(), 30*time.Second, func() bool {
			ok, err := i.may(t.Context(), a)
			if err != nil {
				t.Fatal(err)
			}
			return !ok
		})
	}
}

// canDo checks that a user can do what is on the list, and nothing else.
func (i *inspector) canDo(t *testing.T, server *kubetest.Server, l list) {
	t.Helper()
	l = l.and(everybodys())
	all := acts(t, server, l, i.system, i.other)
	i.inForce(t, all, l)
	var mu sync.Mutex
	allowed, beyond := 0, []string{}
	check := func(what string, ok, want bool) {
		mu.Lock()
		defer mu.Unlock()
		if ok {
			allowed++
		}
		if ok != want {
			beyond = append(beyond, fmt.Sprintf("%s: allowed %v, on the list %v", what, ok, want))
		}
	}
	g, ctx := errgroup.WithContext(t.Context())
	g.SetLimit(16)
	for _, a := range all {
		g.Go(func() error {
			ok, err := i.may(ctx, a)
			if err == nil {
				check(a.String(), ok, l.allows(a, i.system))
			}
			return err
		})
	}
	for _, path := range paths() {
		for _, verb := range []string{"get", "head", "options", "post", "put", "patch", "delete", "*"} {
			g.Go(func() error {
				ok, err := i.ask(ctx, authorizationv1.SelfSubjectAccessReviewSpec{NonResourceAttributes: &authorizationv1.NonResourceAttributes{Path: path, Verb: verb}})
				if err == nil {
					check(verb+" "+path, ok, l.allowsURL(path, verb))
				}
				return err
			})
		}
	}
	if err := g.Wait(); err != nil {
		t.Fatal(err)
	}
	slices.Sort(beyond)
	if len(beyond) > 0 {
		t.Errorf("%d rights differ from the list:\n%s", len(beyond), strings.Join(beyond[:min(len(beyond), 40)], "\n"))
	}
	t.Logf("%d rights queried, %d allowed", len(all), allowed)
	i.rules(t, l)
}

// rules checks the rules themselves, as the API server combines them: they would include a right
// that the tests above don't consider.
func (i *inspector) rules(t *testing.T, l list) {
	t.Helper()
	for _, ns := range []string{i.system, i.other} {
		r, err := i.kube.AuthorizationV1().SelfSubjectRulesReviews().Create(t.Context(), &authorizationv1.SelfSubjectRulesReview{
			Spec: authorizationv1.SelfSubjectRulesReviewSpec{Namespace: ns},
		}, metav1.CreateOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if len(r.Status.ResourceRules) < 3 {
			t.Fatalf("only %d rules", len(r.Status.ResourceRules))
		}
		for _, rule := range r.Status.ResourceRules {
			names := rule.ResourceNames
			if len(names) == 0 {
				names = []string{""}
			}
			for _, group := range rule.APIGroups {
				for _, resource := range rule.Resources {
					for _, verb := range rule.Verbs {
						for _, name := range names {
							if a := (act{group, resource, verb, ns, name}); !l.allows(a, i.system) {
								t.Errorf("a rule allows what is not on the list: %v", a)
							}
						}
					}
				}
			}
		}
		for _, rule := range r.Status.NonResourceRules {
			for _, url := range rule.NonResourceURLs {
				for _, verb := range rule.Verbs {
					if !l.allowsURL(url, verb) {
						t.Errorf("a rule allows what is not on the list: %s %s", verb, url)
					}
				}
			}
		}
	}
}
