package chart_test

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/yaml"
)

func parse(t *testing.T, text string) map[string]any {
	t.Helper()
	out := map[string]any{}
	if err := yaml.UnmarshalStrict([]byte(text), &out); err != nil {
		t.Fatal(err)
	}
	return out
}

// ofTheChart lists the settings that the chart sets itself: flags of the DaemonSet, settings that
// its mounts and probes depend on, and those that differ between pods.
func ofTheChart() []string {
	return []string{
		"host-root", "state-dir", "report-socket", "address", "port", "prometheus-address", "prometheus-port", "metrics-plain-http",
		"config.system-log-monitor", "config.custom-plugin-monitor", "config.system-stats-monitor", "node-name", "namespace", "daemonset",
	}
}

// The schema contains exactly the agent's settings. The chart accepts them, except those that it
// sets itself.
func TestAgentsSettings(t *testing.T) {
	out, err := kernosis(t, "config", "print").Output()
	if err != nil {
		t.Fatal(err)
	}
	known := parse(t, string(out))
	taken := readSchema(t).Properties["agent"].Properties["config"].Properties
	for name := range known {
		if _, ok := taken[name]; !ok {
			t.Errorf("setting %s: is not in the schema of agent.config", name)
		}
	}
	for name := range taken {
		if _, ok := known[name]; !ok {
			t.Errorf("agent.config.%s: unknown to the agent", name)
		}
	}

	_, err = renderer(t).Render(t.Context(), agentsConfig(known))
	if err == nil {
		t.Fatal("settings that the chart sets itself are accepted")
	}
	for name := range known {
		refused := strings.Contains(err.Error(), "agent.config."+name+": the chart sets it")
		if refused != slices.Contains(ofTheChart(), name) {
			t.Errorf("setting %s: is refused: %t\n%v", name, refused, err)
		}
	}
	for _, name := range ofTheChart() {
		delete(known, name)
	}
	config := typed[corev1.ConfigMap](t, rendered(t, agentsConfig(known)), "ConfigMap", "kernosis-agent").Data["config.yaml"]
	got := parse(t, config)
	for name := range known {
		if !reflect.DeepEqual(got[name], known[name]) {
			t.Errorf("setting %s is %v for the agent, want %v", name, got[name], known[name])
		}
	}
}

// flagsOf returns the flags of a command.
func flagsOf(t *testing.T, command ...string) []string {
	t.Helper()
	out, err := kernosis(t, append(command, "--help")...).Output()
	if err != nil {
		t.Fatal(err)
	}
	var flags []string
	for _, m := range regexp.MustCompile(`(?m)^ +(?:-\w, )?--([a-z0-9.-]+)`).FindAllSubmatch(out, -1) {
		flags = append(flags, string(m[1]))
	}
	if len(flags) < 3 {
		t.Fatalf("%v has %d flags", command, len(flags))
	}
	return flags
}

// The same for the controller; addresses and the settings of alerts belong to the chart.
func TestControllersSettings(t *testing.T) {
	chartOwns := func(name string) bool {
		return strings.HasPrefix(name, "alerts-") || strings.HasPrefix(name, "metrics-") || slices.Contains([]string{"config", "kubeconfig", "namespace", "agent-pods", "health-listen", "repairs", "help"}, name)
	}
	flags := flagsOf(t, "controller")
	taken := readSchema(t).Properties["controller"].Properties["config"].Properties
	for _, name := range flags {
		if _, ok := taken[name]; !ok && !chartOwns(name) {
			t.Errorf("setting %s: is not in the schema of controller.config", name)
		}
	}
	for name := range taken {
		if !slices.Contains(flags, name) || chartOwns(name) {
			t.Errorf("controller.config.%s: unknown to the controller, or set by the chart", name)
		}
	}
}

// The controller makes only repairs for which it has the rights.
func TestRepairsNeedTheirRights(t *testing.T) {
	for _, enabled := range []bool{false, true} {
		all := rendered(t, map[string]any{"repairs": map[string]any{"enabled": enabled}})
		args := typed[appsv1.Deployment](t, all, "Deployment", "kernosis-controller").Spec.Template.Spec.Containers[0].Args
		role := slices.ContainsFunc(all, func(o *unstructured.Unstructured) bool { return o.GetName() == "kernosis-controller-repairs" })
		if !slices.Contains(args, fmt.Sprintf("--repairs=%t", enabled)) || role != enabled {
			t.Errorf("repairs.enabled %t: %v, role for repairs: %t", enabled, args, role)
		}
	}
}

// podsOf returns the pod templates in objects, by the objects' names.
func podsOf(t *testing.T, all []*unstructured.Unstructured) map[string]*corev1.PodTemplateSpec {
	t.Helper()
	out := map[string]*corev1.PodTemplateSpec{}
	for _, o := range all {
		template, ok, _ := unstructured.NestedMap(o.Object, "spec", "template")
		if !ok {
			continue
		}
		var p corev1.PodTemplateSpec
		if err := runtime.DefaultUnstructuredConverter.FromUnstructuredWithValidation(template, &p, true); err != nil {
			t.Fatalf("%s %s: %v", o.GetKind(), o.GetName(), err)
		}
		out[o.GetName()] = &p
	}
	return out
}

// The program accepts the arguments and the configuration of the rendered pods.
func TestTheProgramKnowsItsArguments(t *testing.T) {
	for profile, values := range profiles(t) {
		t.Run(profile, func(t *testing.T) {
			all := rendered(t, values)
			pods := podsOf(t, all)
			want := []string{"kernosis-agent", "kernosis-controller", "kernosis-crds", "kernosis-uninstall"}
			if profile == "full" {
				want = append(want, "kernosis-crds-delete")
			}
			for _, name := range want {
				if pods[name] == nil {
					t.Fatalf("no %s", name)
				}
				args := pods[name].Spec.Containers[0].Args
				command := slices.DeleteFunc(slices.Clone(args), func(a string) bool { return strings.HasPrefix(a, "--") })
				flags := flagsOf(t, command...)
				for _, a := range args {
					if flag, _, _ := strings.Cut(strings.TrimPrefix(a, "--"), "="); strings.HasPrefix(a, "--") && !slices.Contains(flags, flag) {
						t.Errorf("%s: %v has no flag --%s", name, command, flag)
					}
				}
			}
			dir := t.TempDir()
			write := func(configMap, into string) {
				t.Helper()
				o := object(all, "ConfigMap", configMap)
				if o == nil {
					return
				}
				data, _, _ := unstructured.NestedStringMap(o.Object, "data")
				for file, text := range data {
					path := filepath.Join(dir, into, file)
					if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
						t.Fatal(err)
					}
					if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
						t.Fatal(err)
					}
				}
			}
			write("kernosis-agent", "etc/kernosis")
			write("kernosis-rules", "etc/kernosis/rules")
			args := []string{"config", "print"}
			for _, a := range pods["kernosis-agent"].Spec.Containers[0].Args[1:] {
				a = strings.ReplaceAll(a, "$(POD_IP)", "fd00::7")
				args = append(args, strings.ReplaceAll(a, "/etc/kernosis", dir+"/etc/kernosis"))
			}
			cmd := kernosis(t, args...)
			var stderr bytes.Buffer
			cmd.Stderr = &stderr
			cmd.Env = append(os.Environ(), "NODE_NAME=n7", "POD_NAMESPACE=kernosis", "POD_IP=fd00::7")
			out, err := cmd.Output()
			if err != nil || stderr.Len() > 0 {
				t.Fatalf("config print: %v\n%s%s", err, out, &stderr)
			}
			inForce := parse(t, string(out))
			// Settings that must match the mounts.
			for setting, want := range map[string]string{
				"state-dir": "/var/lib/kernosis", "host-root": "/host", "report-socket": "/run/kernosis/report.sock", "listen": "", "daemonset": "kernosis-agent",
			} {
				if inForce[setting] != want {
					t.Errorf("%s: %v, want %s", setting, inForce[setting], want)
				}
			}
			if object(all, "ConfigMap", "kernosis-rules") != nil {
				if out, err := kernosis(t, "rules", "check", filepath.Join(dir, "etc/kernosis/rules")).CombinedOutput(); err != nil {
					t.Errorf("rules: %v\n%s", err, out)
				}
			}
			if got := fmt.Sprint(inForce["prometheus-port"]); profile == "full" && got != "9101" || profile == "default" && got != "20257" {
				t.Errorf("port of /metrics: %s", got)
			}
		})
	}
}

// A NetworkPolicy allows the ports that the agent listens on.
func TestAgentsPortsAreInItsNetworkPolicy(t *testing.T) {
	all := rendered(t, map[string]any{
		"agent": map[string]any{"hostNetwork": false, "metrics": map[string]any{"allInterfaces": true}},
		"npd":   map[string]any{"port": 20256}, "networkPolicy": map[string]any{"enabled": true},
	})
	allowed := map[string]bool{}
	for _, rule := range typed[networkingv1.NetworkPolicy](t, all, "NetworkPolicy", "kernosis-agent").Spec.Ingress {
		for _, p := range rule.Ports {
			allowed[p.Port.StrVal] = true
		}
	}
	ports := typed[appsv1.DaemonSet](t, all, "DaemonSet", "kernosis-agent").Spec.Template.Spec.Containers[0].Ports
	if len(ports) != 2 {
		t.Errorf("%d ports", len(ports))
	}
	for _, p := range ports {
		if !allowed[p.Name] {
			t.Errorf("port %s is not allowed: %v", p.Name, allowed)
		}
	}
}

// The Job's deadline allows all its retries to use their full timeout.
func TestDeadlineOfTheRemoval(t *testing.T) {
	for timeout, want := range map[string]int64{"4m": 3600, "2h": 3*7200 + 600, "1h30m": 3*5400 + 600, "0": 3600} {
		all := rendered(t, map[string]any{"uninstall": map[string]any{"timeout": timeout}})
		if got := *typed[batchv1.Job](t, all, "Job", "kernosis-uninstall").Spec.ActiveDeadlineSeconds; got != want {
			t.Errorf("uninstall.timeout %s: the Job ends after %ds, want %ds", timeout, got, want)
		}
	}
}
