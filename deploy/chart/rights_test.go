package chart_test

import (
	"maps"
	"slices"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
)

// hostPaths returns the agent's host paths: where each is mounted, and "ro" or "rw".
func hostPaths(ds *appsv1.DaemonSet) map[string]string {
	out := map[string]string{}
	for _, v := range ds.Spec.Template.Spec.Volumes {
		if v.HostPath == nil {
			continue
		}
		for _, m := range ds.Spec.Template.Spec.Containers[0].VolumeMounts {
			if m.Name == v.Name {
				mode := "rw"
				if m.ReadOnly {
					mode = "ro"
				}
				out[v.HostPath.Path] = m.MountPath + " " + mode
			}
		}
	}
	return out
}

func TestTheAgentsHostPaths(t *testing.T) {
	own := map[string]string{
		"/var/lib/kernosis": "/var/lib/kernosis rw", "/run/kernosis": "/run/kernosis rw", "/sys/fs/bpf": "/sys/fs/bpf rw",
	}
	for profile, more := range map[string]map[string]string{
		"privileged": {"/": "/host ro"},
		"hardened": {
			"/proc": "/host/proc ro", "/sys": "/host/sys ro", "/var/log": "/host/var/log ro", "/dev/kmsg": "/dev/kmsg ro",
			"/var/lib/systemd/pstore": "/host/var/lib/systemd/pstore ro", "/var/crash": "/host/var/crash ro",
		},
	} {
		want := map[string]string{}
		for _, m := range []map[string]string{own, more} {
			maps.Copy(want, m)
		}
		ds := typed[appsv1.DaemonSet](t, rendered(t, map[string]any{"agent": map[string]any{"profile": profile}}), "DaemonSet", "kernosis-agent")
		got := hostPaths(ds)
		for _, path := range append(sortedKeys(want), sortedKeys(got)...) {
			if got[path] != want[path] {
				t.Errorf("%s: %s: %q, want %q", profile, path, got[path], want[path])
			}
		}
	}
}

// No pod except the agent's has any special rights.
func TestRights(t *testing.T) {
	for profile, values := range profiles(t) {
		all := rendered(t, values)
		for name, pod := range podsOf(t, all) {
			spec := &pod.Spec
			for _, c := range spec.Containers {
				ctx := c.SecurityContext
				if name == "kernosis-agent" {
					if c.Name != "agent" {
						continue
					}
					hardened := ctx.Privileged == nil || !*ctx.Privileged
					if (profile == "hardened") != hardened {
						t.Errorf("%s: hardened: %v", profile, hardened)
					}
					if hardened && (*ctx.AllowPrivilegeEscalation || !slices.Contains(ctx.Capabilities.Drop, "ALL") || slices.Contains(ctx.Capabilities.Add, "SYS_ADMIN") || ctx.SeccompProfile.Type != corev1.SeccompProfileTypeRuntimeDefault) {
						t.Errorf("%s: %+v", profile, ctx)
					}
					if *ctx.RunAsUser != 0 || !*ctx.ReadOnlyRootFilesystem {
						t.Errorf("%s: %+v", profile, ctx)
					}
					continue
				}
				pod := spec.SecurityContext
				if !*pod.RunAsNonRoot || *pod.RunAsUser == 0 || pod.SeccompProfile.Type != corev1.SeccompProfileTypeRuntimeDefault || !*ctx.RunAsNonRoot || *ctx.AllowPrivilegeEscalation ||
					!*ctx.ReadOnlyRootFilesystem || !slices.Equal(ctx.Capabilities.Drop, []corev1.Capability{"ALL"}) || len(ctx.Capabilities.Add) > 0 || ctx.Privileged != nil {
					t.Errorf("%s: %s: %+v, %+v", profile, name, pod, ctx)
				}
				if c.Resources.Limits.Memory().IsZero() || !c.Resources.Limits.Cpu().IsZero() {
					t.Errorf("%s: %s: %+v", profile, name, c.Resources)
				}
			}
			if name != "kernosis-agent" {
				if spec.HostPID || spec.HostNetwork || spec.HostIPC || slices.ContainsFunc(spec.Volumes, func(v corev1.Volume) bool { return v.HostPath != nil }) {
					t.Errorf("%s: %s uses resources of the host", profile, name)
				}
			}
			if spec.ServiceAccountName != name {
				t.Errorf("%s: %s has the service account %q", profile, name, spec.ServiceAccountName)
			}
		}
		for _, o := range all {
			if o.GetKind() == "ServiceAccount" {
				if mounts, ok := o.Object["automountServiceAccountToken"]; !ok || mounts != false {
					t.Errorf("%s: the token of %s is mounted by default", profile, o.GetName())
				}
			}
			roleHasNoSurprise(t, profile, o)
		}
	}
}

// roleHasNoSurprise checks that a role has no rights that no program may have.
func roleHasNoSurprise(t *testing.T, profile string, o *unstructured.Unstructured) {
	t.Helper()
	if kind := o.GetKind(); kind != "Role" && kind != "ClusterRole" {
		return
	}
	var r rbacv1.ClusterRole
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(o.Object, &r); err != nil {
		t.Fatal(err)
	}
	for _, rule := range r.Rules {
		if slices.Contains(rule.Verbs, "*") || slices.Contains(rule.Resources, "*") || slices.Contains(rule.APIGroups, "*") {
			t.Errorf("%s: %s grants everything: %+v", profile, r.Name, rule)
		}
		if slices.Contains(rule.Resources, "secrets") && (r.Name != "kernosis-agent" || o.GetKind() != "Role" || len(rule.ResourceNames) == 0 || !slices.Equal(rule.Verbs, []string{"get"})) {
			t.Errorf("%s: %s reads Secrets: %+v", profile, r.Name, rule)
		}
	}
}
