package chart_test

import (
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
)

// agentsConfig returns values with settings of the agent.
func agentsConfig(settings map[string]any) map[string]any {
	return map[string]any{"agent": map[string]any{"config": settings}}
}

// If a setting disables a feature, the agent's role lacks the rights for it. The role never has the
// rights that kubelets before 1.33 require for reading their pods.
func TestTheRoleGoesByTheSettings(t *testing.T) {
	type settings = map[string]any
	for name, c := range map[string]struct {
		config      settings
		has, hasNot []string // resource and verb
	}{
		"default":     {nil, []string{"pods list", "pods watch", "pods get", "events list", "nodes/metrics get", "diagnoses list"}, []string{"nodes/pods get"}},
		"api":         {settings{"pods-from": "api", "kubelet-events": true, "diagnose": true}, []string{"pods list", "events list", "diagnoses list"}, []string{"nodes/pods get"}},
		"kubelet":     {settings{"pods-from": "kubelet"}, []string{"nodes/pods get", "events list", "events create", "diagnoses list"}, []string{"pods get", "pods list", "pods watch"}},
		"no events":   {settings{"kubelet-events": false}, []string{"events create", "events patch", "nodes/metrics get"}, []string{"events list"}},
		"no probes":   {settings{"probes": "off"}, []string{"events create", "pods list"}, []string{"events list", "nodes/metrics get"}},
		"unquoted":    {parse(t, "probes: off"), []string{"events create", "pods list"}, []string{"events list", "nodes/metrics get"}},
		"no diagnose": {settings{"diagnose": false}, []string{"pods list"}, []string{"diagnoses list", "diagnoses create", "diagnoses/status patch", "operations list", "triggers list"}},
	} {
		t.Run(name, func(t *testing.T) {
			all := rendered(t, agentsConfig(c.config))
			var can []string
			for _, rules := range [][]rbacv1.PolicyRule{typed[rbacv1.ClusterRole](t, all, "ClusterRole", "kernosis-agent").Rules, typed[rbacv1.Role](t, all, "Role", "kernosis-agent").Rules} {
				for _, r := range rules {
					for _, resource := range r.Resources {
						for _, verb := range r.Verbs {
							can = append(can, resource+" "+verb)
						}
					}
				}
			}
			for _, right := range c.has {
				if !slices.Contains(can, right) {
					t.Errorf("missing right: %s", right)
				}
			}
			for _, right := range append(c.hasNot, "nodes/proxy get") {
				if slices.Contains(can, right) {
					t.Errorf("unexpected right: %s", right)
				}
			}
			config := typed[corev1.ConfigMap](t, all, "ConfigMap", "kernosis-agent").Data["config.yaml"]
			if from, ok := c.config["pods-from"]; ok && !strings.Contains(config, "pods-from: "+from.(string)) {
				t.Errorf("pods-from is not in the agent's config: %s", config)
			}
			if _, ok := c.config["probes"]; ok && !strings.Contains(config, `probes: "off"`) {
				t.Errorf("probes are not off in the agent's config: %s", config)
			}
		})
	}
}

// OpenShift's default policy rejects pods with a fixed user: docs/platforms.md allows each service
// account.
func TestOpenShiftTakesTheFixedUser(t *testing.T) {
	page, err := os.ReadFile("../../docs/platforms.md")
	if err != nil {
		t.Fatal(err)
	}
	for name, pod := range podsOf(t, rendered(t, parse(t, "uninstall: {crds: true}"))) {
		if pod.Spec.SecurityContext == nil || pod.Spec.SecurityContext.RunAsUser == nil {
			continue
		}
		if granted := regexp.MustCompile(`oc adm policy add-scc-to-user nonroot-v2 .*-z ` + pod.Spec.ServiceAccountName + ` `); !granted.Match(page) {
			t.Errorf("docs/platforms.md does not allow %s", name)
		}
	}
}
