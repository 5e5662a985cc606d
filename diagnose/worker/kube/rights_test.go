package kube

import (
	"errors"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kernosis/kernosis/diagnose/api/apitest"
	"github.com/kernosis/kernosis/diagnose/api/v1alpha1"
	"github.com/kernosis/kernosis/diagnose/worker"
	"github.com/kernosis/kernosis/reporter/kube/conditions"
	"github.com/kernosis/kernosis/vmtest/kubetest"
)

// documented returns the rights for Diagnoses listed in docs/cluster.md: those in the whole
// cluster, and those in the system namespace.
func documented(t testing.TB) (everywhere, ofSystem []rbacv1.PolicyRule) {
	t.Helper()
	everywhere, ofSystem = kubetest.AgentRights(t, "../../../docs/cluster.md")
	others := func(r rbacv1.PolicyRule) bool { return r.APIGroups[0] != v1alpha1.Group }
	return slices.DeleteFunc(everywhere, others), slices.DeleteFunc(ofSystem, others)
}

// userWith returns the configuration of a user with the given rights.
func userWith(t testing.TB, server *kubetest.Server, user, system string, everywhere, ofSystem []rbacv1.PolicyRule) *rest.Config {
	t.Helper()
	server.Grant(t, user, system, rbacv1.ClusterRole{Rules: everywhere}, rbacv1.ClusterRole{TypeMeta: metav1.TypeMeta{Kind: "Role"}, Rules: ofSystem})
	return server.Config(t, user)
}

// The documented rights are sufficient, each is used, and they are limited as documented.
func TestRightsAsDocumented(t *testing.T) {
	server, c := served(t)
	system, tenant, node := server.Namespace(t), server.Namespace(t), unique(t, "node")
	everywhere, ofSystem := documented(t)
	as := userWith(t, server, unique(t, "user"), system, everywhere, ofSystem)
	// An API server that does not stream lists, like that of Kubernetes 1.31, is listed.
	p, through := kubetest.NewProxy(t, server, as)
	p.Do(func(w http.ResponseWriter, r *http.Request) bool {
		return r.URL.Query().Get("sendInitialEvents") == "true" && kubetest.Answer(w, http.StatusUnprocessableEntity, "Invalid")
	})
	r := start(t, through, func(c *Config) { c.Node, c.Settle = node, time.Nanosecond })
	r.synced()
	if n := r.count(verbWatch, triggers, conditions.Refused); n == 0 || r.logs.count("refused") != 0 {
		t.Errorf("%d refusals, logged:\n%s", n, r.logs)
	}
	set := create(t, c, apitest.SetOf(unique(t, "s"), "kernel-facts"))
	waitFor(t, "a set", func() bool { return r.set(set.Name) != nil })
	running := func(s *v1alpha1.DiagnosisStatus) { s.Phase = v1alpha1.PhaseRunning }

	own, err := r.Create(t.Context(), diagnosisOf(system, "own", node))
	if err != nil {
		t.Fatal(err)
	}
	if again, err := r.Create(t.Context(), diagnosisOf(system, "own", node)); err != nil || again.UID != own.UID {
		t.Fatal(again, err)
	}
	if _, err := r.Write(t.Context(), keyOf(own), running); err != nil {
		t.Error(err)
	}
	theirs := create(t, c, diagnosisOf(tenant, "theirs", node))
	waitFor(t, "a tenant's", func() bool { return r.last("theirs") != nil })
	if _, err := r.Write(t.Context(), keyOf(theirs), running); err != nil {
		t.Error(err)
	}
	if n := r.logs.count("permission is missing"); n != 0 {
		t.Errorf("rights are missing:\n%s", r.logs)
	}

	// What is not known is requested.
	unknown, unready := diagnosisOf(system, "unknown", node), diagnosisOf(system, "unready", node)
	unready.Spec.OperationSet = create(t, c, apitest.SetOf(unique(t, "s3"), "there-is-none")).Name
	create(t, c, unknown)
	create(t, c, unready)
	waitFor(t, "they are reported", func() bool { return r.last("unknown") != nil && r.last("unready") != nil })

	used := map[[2]string]bool{}
	for q := range r.Stats().Requests {
		used[[2]string{q.Verb, q.Resource}] = true
	}
	for _, rule := range slices.Concat(everywhere, ofSystem) {
		for _, resource := range rule.Resources {
			for _, verb := range rule.Verbs {
				if !used[[2]string{verb, resource}] {
					t.Errorf("nobody needs to %s %s; used is %v", verb, resource, slices.Collect(maps.Keys(used)))
				}
			}
		}
	}

	t.Run("none for a tenant's namespace", func(t *testing.T) {
		_, err := r.Create(t.Context(), diagnosisOf(tenant, "forbidden", node))
		if err == nil || errors.Is(err, worker.ErrAway) || !strings.Contains(err.Error(), "cannot create resource") {
			t.Error(err)
		}
	})
	t.Run("none for a spec", func(t *testing.T) {
		agent, err := client.New(as, client.Options{Scheme: c.Scheme()})
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range []*v1alpha1.Diagnosis{own, theirs} {
			cancel := client.RawPatch("application/merge-patch+json", []byte(`{"spec":{"cancel":true}}`))
			if err := agent.Patch(t.Context(), d.DeepCopy(), cancel); !apierrors.IsForbidden(err) {
				t.Error(err)
			}
			if err := agent.Delete(t.Context(), d.DeepCopy()); !apierrors.IsForbidden(err) {
				t.Error(err)
			}
		}
		// Nor through the status subresource.
		patch := client.RawPatch("application/merge-patch+json", []byte(`{"spec":{"cancel":true},"status":{"subject":"x"}}`))
		d := own.DeepCopy()
		if err := agent.Status().Patch(t.Context(), d, patch); err != nil || d.Spec.Cancel {
			t.Error(d.Spec, err)
		}
	})
}

// A missing right is logged once, affects nothing else, and may be granted later.
func TestRightsThatAreMissing(t *testing.T) {
	server, c := served(t)
	system, node := server.Namespace(t), unique(t, "node")
	everywhere, ofSystem := documented(t)
	var some []rbacv1.PolicyRule
	for _, rule := range everywhere {
		rule.Resources = slices.DeleteFunc(slices.Clone(rule.Resources), func(r string) bool { return r == triggers })
		if len(rule.Resources) > 0 {
			some = append(some, rule)
		}
	}
	user := unique(t, "user")
	as := userWith(t, server, user, system, some, ofSystem)
	set := create(t, c, apitest.SetOf(unique(t, "s"), "kernel-facts"))
	create(t, c, diagnosisOf(system, "by-hand", node))
	r := start(t, as, func(c *Config) { c.Node, c.Settle = node, time.Nanosecond })
	waitFor(t, "what can be read is", func() bool { return r.set(set.Name) != nil && r.last("by-hand") != nil })
	waitFor(t, "the list was tried again", func() bool { return r.count(verbList, triggers, conditions.Forbidden) > 1 })
	if r.changed() == 0 {
		t.Error("the worker waits for triggers that it can't know")
	}
	for _, verb := range []string{verbList, verbWatch} {
		if n := r.logs.count("permission is missing", "verb="+verb, "resource=triggers"); n != 1 {
			t.Errorf("%s: reported %d times:\n%s", verb, n, r.logs)
		}
	}
	if n := r.logs.count("permission is missing"); n != 2 {
		t.Errorf("%d rights are reported:\n%s", n, r.logs)
	}
	server.Grant(t, user, system, rbacv1.ClusterRole{Rules: everywhere})
	r.synced()
	waitFor(t, "it is reported", func() bool { return r.logs.count("permission was granted", "verb=watch", "resource=triggers") == 1 })
}
