package chart_test

import (
	"context"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kernosis/kernosis/vmtest/kubetest"
)

func TestLint(t *testing.T) {
	for _, helm := range []string{kubetest.Helm(t), kubetest.Helm3(t)} {
		for name := range profiles(t) {
			args := []string{"lint", "--strict", "--namespace", "kernosis", folderOfChart}
			if name != "default" {
				args = append(args, "--values", "kernosis/examples/"+name+".yaml")
			}
			if out, err := exec.CommandContext(t.Context(), helm, args...).CombinedOutput(); err != nil {
				t.Errorf("%s: %s: %v\n%s", filepath.Base(helm), name, err, out)
			}
		}
	}
}

// Helm 3 renders the same as Helm 4 and rejects the same mistakes.
func TestHelm3(t *testing.T) {
	three := renderer(t)
	three.Helm = kubetest.Helm3(t)
	for name, values := range profiles(t) {
		want, got := map[string]*unstructured.Unstructured{}, objectsOf(t, three, values)
		for _, o := range rendered(t, values) {
			want[o.GetKind()+" "+o.GetName()] = o
		}
		if len(got) != len(want) {
			t.Errorf("%s: %d objects, want %d", name, len(got), len(want))
		}
		for _, o := range got {
			if id := o.GetKind() + " " + o.GetName(); !reflect.DeepEqual(o, want[id]) {
				t.Errorf("%s: %s is\n%v\nwant\n%v", name, id, o, want[id])
			}
		}
	}
	for values, want := range map[string]string{"agent: {profile: root}": "/agent/profile", "alerts: {enabled: true}": "alerts.certificateSecret"} {
		if _, err := three.Render(t.Context(), parse(t, values)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", values, err, want)
		}
	}
}

// Helm 3 installs the chart, upgrades it with labels on all objects, and uninstalls it. The hook that
// upgrades the CRDs also runs before an installation that finds other CRDs, which an earlier release
// left. There is no node to run the hooks' Jobs.
func TestHelm3Installs(t *testing.T) {
	server := cluster.Server(t)
	namespace := server.Namespace(t)
	config, home := server.Kubeconfig(t, server.Admin()), t.TempDir()
	helm := func(args ...string) string {
		t.Helper()
		cmd := exec.CommandContext(t.Context(), kubetest.Helm3(t), append(args, "--kubeconfig", config, "--namespace", namespace)...)
		cmd.Env = append(os.Environ(), "HELM_CACHE_HOME="+home, "HELM_CONFIG_HOME="+home, "HELM_DATA_HOME="+home)
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("helm %v: %v\n%s", args, err, out)
		}
		return string(out)
	}
	labelled := func() int {
		t.Helper()
		list, err := server.Client().RbacV1().ClusterRoles().List(t.Context(), metav1.ListOptions{LabelSelector: "app.kubernetes.io/instance=three,team=nodes"})
		if err != nil {
			t.Fatal(err)
		}
		return len(list.Items)
	}
	helm("install", "three", folderOfChart, "--no-hooks")
	if n := labelled(); n != 0 {
		t.Errorf("%d roles have a label that was not requested", n)
	}
	if hooks := helm("get", "hooks", "three"); strings.Contains(hooks, "pre-install") || !strings.Contains(hooks, "helm.sh/hook: pre-upgrade\n") {
		t.Errorf("hooks of an installation with the chart's CRDs:\n%s", hooks)
	}
	helm("upgrade", "three", folderOfChart, "--set", "commonLabels.team=nodes", "--no-hooks")
	agents, err := server.Client().AppsV1().DaemonSets(namespace).Get(t.Context(), "kernosis-agent", metav1.GetOptions{})
	if err != nil || agents.Spec.Template.Labels["team"] != "nodes" || agents.Spec.Selector.MatchLabels["team"] != "" {
		t.Errorf("labels %v, selector %v: %v", agents.Spec.Template.Labels, agents.Spec.Selector, err)
	}
	if n := labelled(); n < 5 {
		t.Errorf("only %d roles have the label", n)
	}
	helm("uninstall", "three", "--no-hooks")
	if n := labelled(); n != 0 {
		t.Errorf("%d roles are left", n)
	}
	ofAnEarlierRelease(t, server)
	helm("install", "three", folderOfChart, "--no-hooks")
	if hooks := helm("get", "hooks", "three"); strings.Count(hooks, "helm.sh/hook: pre-install,pre-upgrade\n") != 4 {
		t.Errorf("hooks of an installation with other CRDs:\n%s", hooks)
	}
	helm("uninstall", "three", "--no-hooks")
}

// ofAnEarlierRelease removes a column from a CRD until the test ends.
func ofAnEarlierRelease(t *testing.T, server *kubetest.Server) {
	t.Helper()
	api, err := client.New(server.Admin(), client.Options{})
	if err != nil {
		t.Fatal(err)
	}
	crd := &unstructured.Unstructured{}
	crd.SetAPIVersion("apiextensions.k8s.io/v1")
	crd.SetKind("CustomResourceDefinition")
	if err := api.Get(t.Context(), client.ObjectKey{Name: "triggers.kernosis.io"}, crd); err != nil {
		t.Fatal(err)
	}
	set := func(versions []any) {
		patch, err := json.Marshal(map[string]any{"spec": map[string]any{"versions": versions}})
		if err == nil {
			err = api.Patch(context.WithoutCancel(t.Context()), crd.DeepCopy(), client.RawPatch(types.MergePatchType, patch))
		}
		if err != nil {
			t.Error(err)
		}
	}
	before, _, _ := unstructured.NestedSlice(crd.Object, "spec", "versions")
	t.Cleanup(func() { set(before) })
	versions, _, _ := unstructured.NestedSlice(crd.Object, "spec", "versions") // a copy
	version := versions[0].(map[string]any)
	version["additionalPrinterColumns"] = version["additionalPrinterColumns"].([]any)[1:]
	set(versions)
}

// schema is the JSON schema of a value.
type schema struct {
	Ref                  string            `json:"$ref"`
	Type                 any               `json:"type"`
	Enum                 []any             `json:"enum"`
	Properties           map[string]schema `json:"properties"`
	AdditionalProperties json.RawMessage   `json:"additionalProperties"`
	PatternProperties    map[string]schema `json:"patternProperties"`
	Items                *schema           `json:"items"`
	AnyOf                []schema          `json:"anyOf"`
	Definitions          map[string]schema `json:"definitions"`
}

func readSchema(t *testing.T) schema {
	t.Helper()
	text, err := os.ReadFile("kernosis/values.schema.json")
	if err != nil {
		t.Fatal(err)
	}
	var s schema
	if err := json.Unmarshal(text, &s); err != nil {
		t.Fatal(err)
	}
	return s
}

// free reports whether a value's content is defined by Kubernetes and checked by the API server.
func free(path string) bool {
	return slices.ContainsFunc([]string{".affinity", "extraContainers[]", "extraVolumes[]", "extraVolumeMounts[]", "extraEnv[].valueFrom", "extraObjects[]", "networkPolicy.egress[]", "global",
		".podSelector", ".namespaceSelector", ".ipBlock"}, func(end string) bool { return strings.HasSuffix(path, end) })
}

// The schema describes each value, and no object accepts unknown keys.
func TestTheSchemaKnowsEachValue(t *testing.T) {
	top := readSchema(t)
	resolve := func(s schema) schema {
		if name, ok := strings.CutPrefix(s.Ref, "#/definitions/"); ok {
			return top.Definitions[name]
		}
		return s
	}
	var walk func(path string, s schema)
	walk = func(path string, s schema) {
		s = resolve(s)
		for _, one := range s.AnyOf {
			walk(path, one)
		}
		if s.Items != nil {
			walk(path+"[]", *s.Items)
		}
		if s.Type == "array" && s.Items == nil {
			t.Errorf("%s: list without a type of its items", path)
		}
		if s.Type == nil && s.Enum == nil && s.AnyOf == nil {
			t.Errorf("%s: has no type", path)
		}
		if (s.Type == "object" || s.Properties != nil) && !free(path) && len(s.AdditionalProperties) == 0 {
			t.Errorf("%s: allows unknown keys", path)
		}
		for _, name := range sortedKeys(s.Properties) {
			walk(strings.TrimPrefix(path+"."+name, "."), s.Properties[name])
		}
	}
	walk("", top)

	var compare func(path string, values map[string]any, s schema)
	compare = func(path string, values map[string]any, s schema) {
		for _, name := range sortedKeys(values) {
			one, ok := s.Properties[name]
			if !ok && string(s.AdditionalProperties) == "false" {
				t.Errorf("%s%s: is not in the schema", path, name)
			}
			if below, is := values[name].(map[string]any); is {
				compare(path+name+".", below, resolve(one))
			}
		}
		for _, name := range sortedKeys(s.Properties) {
			if name == "serviceAccountAnnotations" {
				continue // of an earlier chart
			}
			if _, ok := values[name]; !ok && strings.Count(path, ".") < 2 && !strings.HasSuffix(path, ".config.") {
				t.Errorf("%s%s: is in the schema, but not in values.yaml", path, name)
			}
		}
	}
	compare("", valuesOf(t, "kernosis/values.yaml"), top)
}

// Invalid values are rejected before anything is changed, and the message names the value.
func TestWrongValues(t *testing.T) {
	r := renderer(t)
	for _, c := range []struct {
		what, values string // YAML
		want         []string
	}{
		{"unknown value", "agnt: {}", []string{"agnt"}},
		{"unknown value below", "agent: {profil: hardened}", []string{"/agent", "profil"}},
		{"unknown profile", "agent: {profile: root}", []string{"/agent/profile", "privileged", "hardened"}},
		{"unknown setting", "agent: {config: {lisen: ':1'}}", []string{"/agent/config", "lisen"}},
		{"settings of the chart", "agent: {config: {state-dir: /tmp, node-name: n7}}", []string{"agent.config.state-dir: the chart sets it by the value agent.statePath", "agent.config.node-name: the chart sets it"}},
		{"two folders of rules", "{agent: {config: {rules-dir: /rules}}, rules: {mine.yaml: x}}", []string{"agent.config.rules-dir", "by the value rules"}},
		{"two folders of targets", "{agent: {config: {targets-dir: /targets}}, targets: [{port: 1}]}", []string{"agent.config.targets-dir", "by the value targets"}},
		{"two certificates", "{agent: {config: {metrics-cert-file: /tls.crt}}, metrics: {certificateSecret: a}}", []string{"agent.config.metrics-cert-file", "metrics.certificateSecret"}},
		{"a certificate without TLS", "metrics: {certificateSecret: a, plainHTTP: true}", []string{"metrics.certificateSecret, metrics.plainHTTP: want one of them", `metrics.certificateSecret to ""`}},
		{"tokens without an API server", "agent: {config: {enable-k8s-exporter: false}}", []string{"agent.config.enable-k8s-exporter: false needs metrics.plainHTTP"}},
		{"the same as a flag", "agent: {extraArgs: [--enable-k8s-exporter, --enable-k8s-exporter=false]}", []string{"agent.extraArgs: --enable-k8s-exporter=false needs metrics.plainHTTP"}},
		{"the same as a variable", "agent: {config: {enable-k8s-exporter: true}, extraEnv: [{name: KERNOSIS_ENABLE_K8S_EXPORTER, value: 'False'}]}", []string{"agent.extraEnv: KERNOSIS_ENABLE_K8S_EXPORTER=False needs metrics.plainHTTP", "set metrics.plainHTTP to true"}},
		{"variables of the chart's settings", "agent: {extraEnv: [{name: KERNOSIS_METRICS_PLAIN_HTTP, value: 'true'}, {name: KERNOSIS_CONFIG_SYSTEM_LOG_MONITOR, value: a}, {name: KERNOSIS_NODE_NAME, valueFrom: {}}, {name: KERNOSIS_LOGS, value: kmsg}]}",
			[]string{"agent.extraEnv: KERNOSIS_METRICS_PLAIN_HTTP: the chart sets it by the value metrics.plainHTTP", "KERNOSIS_CONFIG_SYSTEM_LOG_MONITOR: the chart sets it by the value npd.systemLogMonitor", "KERNOSIS_NODE_NAME: the chart sets it", "KERNOSIS_LOGS: set agent.config.logs"}},
		{"a setting's type", "agent: {config: {journal-mib: lots}}", []string{"/agent/config/journal-mib", "integer"}},
		{"a duration", "agent: {config: {heartbeat: 5 minutes}}", []string{"/agent/config/heartbeat"}},
		{"log of no plugin", "agent: {config: {logs: [{name: kern}]}}", []string{"/agent/config/logs/0", "plugin"}},
		{"key of a log", "agent: {config: {logs: [{plugin: kmsg, lokback: 5m}]}}", []string{"/agent/config/logs/0", "lokback"}},
		{"unknown service", "agent: {config: {services: {known: [kubelt]}}}", []string{"/agent/config/services/known/0"}},
		{"key of a report", "agent: {config: {reports: [{name: gpu, conditons: []}]}}", []string{"/agent/config/reports/0", "conditons"}},
		{"port", "agent: {metrics: {port: 70000}}", []string{"/agent/metrics/port"}},
		{"relative path of the host", "agent: {hostPaths: [proc]}", []string{"/agent/hostPaths/0"}},
		{"capability with CAP_", "agent: {hardened: {addCapabilities: [CAP_NET_RAW]}}", []string{"/agent/hardened/addCapabilities/0"}},
		{"flag without dashes", "agent: {extraArgs: [log-level=debug]}", []string{"/agent/extraArgs/0"}},
		{"container without image", "agent: {extraContainers: [{name: x}]}", []string{"/agent/extraContainers/0", "image"}},
		{"toleration", "agent: {tolerations: [{operater: Exists}]}", []string{"/agent/tolerations/0", "operater"}},
		{"rule file of another ending", "rules: {mine.yml: 'rules: []'}", []string{"/rules", "mine.yml"}},
		{"rules that are no text", "rules: {mine.yaml: {rules: []}}", []string{"/rules/mine.yaml", "string"}},
		{"key of a target", "targets: [{addr: 10.0.0.7}]", []string{"/targets/0", "addr"}},
		{"files of node-problem-detector from nowhere", "npd: {systemLogMonitor: [kernel-monitor.json]}", []string{"npd.existingConfigMap"}},
		{"no replicas", "controller: {replicas: 0}", []string{"/controller/replicas"}},
		{"setting of the controller", "controller: {config: {silent-aftr: 1m}}", []string{"/controller/config", "silent-aftr"}},
		{"alerts without certificate", "alerts: {enabled: true}", []string{"alerts.certificateSecret"}},
		{"alerts' authority without names", "alerts: {enabled: true, certificateSecret: a, clientCASecret: b}", []string{"alerts.clientNames"}},
		{"alerts without controller", "alerts: {enabled: true, certificateSecret: a}\ncontroller: {enabled: false}", []string{"alerts.enabled", "controller.enabled"}},
		{"repairs without controller", "repairs: {enabled: true}\ncontroller: {enabled: false}", []string{"repairs.enabled", "controller.enabled"}},
		{"set that is not there", "diagnoseSets: {exclude: [disk]}", []string{"diagnoseSets.exclude", `"disk"`, "disk-error"}},
		{"both monitors", "monitoring: {podMonitor: {enabled: true}, serviceMonitor: {enabled: true}}", []string{"monitoring.podMonitor", "monitoring.serviceMonitor"}},
		{"alert that is not there", "monitoring: {rules: {enabled: true, alerts: {OOMKiling: {enabled: false}}}}", []string{"monitoring.rules.alerts", `"OOMKiling"`}},
		{"alert's name", "monitoring: {rules: {alerts: {oom-killing: {enabled: false}}}}", []string{"/monitoring/rules/alerts", "oom-killing"}},
		{"key of an alert", "monitoring: {rules: {alerts: {OOMKilling: {enable: false}}}}", []string{"/monitoring/rules/alerts/OOMKilling", "enable"}},
		{"alert's severity", "monitoring: {rules: {alerts: {OOMKilling: {severity: page}}}}", []string{"/monitoring/rules/alerts/OOMKilling/severity", "critical"}},
		{"alert's time", "monitoring: {rules: {alerts: {OOMKilling: {for: 5 minutes}}}}", []string{"/monitoring/rules/alerts/OOMKilling/for"}},
		{"alert's label", "monitoring: {rules: {alerts: {OOMKilling: {labels: {my-team: a}}}}}", []string{"/monitoring/rules/alerts/OOMKilling/labels", "my-team"}},
		{"Grafana's address", "monitoring: {rules: {dashboardBaseURL: grafana.example.com}}", []string{"/monitoring/rules/dashboardBaseURL"}},
		{"own rules that are no YAML", "monitoring: {rules: {enabled: true}}\nrules: {mine.yaml: '{'}", []string{"rules.mine.yaml"}},
		{"digest", "image: {digest: abc}", []string{"/image/digest"}},
		{"registry with a path", "image: {registry: a.example.com/b}", []string{"/image/registry"}},
		{"time of the removal", "uninstall: {timeout: soon}", []string{"/uninstall/timeout"}},
		{"common label of a selector", "commonLabels: {app.kubernetes.io/name: mine}", []string{"commonLabels: app.kubernetes.io/name"}},
		{"common label that is no text", "commonLabels: {team: 7}", []string{"/commonLabels/team", "string"}},
		{"extra object", "extraObjects: [[]]", []string{"/extraObjects/0"}},
		{"pull secret", "global: {imagePullSecrets: [{nam: a}]}", []string{"/global/imagePullSecrets/0", "nam"}},
		{"one account for both", "{agent: {serviceAccount: {name: a}}, controller: {serviceAccount: {name: a}}}", []string{"agent.serviceAccount.name", "controller.serviceAccount.name", `"a"`}},
		{"key of an account", "agent: {serviceAccount: {nam: a}}", []string{"/agent/serviceAccount", "nam"}},
		{"key of the hooks", "hooks: {podLabel: {}}", []string{"/hooks", "podLabel"}},
		{"annotations of accounts in chart 0.1.0", "controller: {serviceAccountAnnotations: {example.com/role: a}}", []string{"controller.serviceAccountAnnotations: is now controller.serviceAccount.annotations"}},
		{"strategy", "controller: {updateStrategy: {type: OnDelete}}", []string{"/controller/updateStrategy/type"}},
		{"a second agent of a node", "agent: {updateStrategy: {type: RollingUpdate, rollingUpdate: {maxSurge: 1, maxUnavailable: 0}}}", []string{"/agent/updateStrategy/rollingUpdate", "maxSurge"}},
		{"scrape timeout", "monitoring: {podMonitor: {scrapeTimeout: soon}}", []string{"/monitoring/podMonitor/scrapeTimeout"}},
		{"relabeling", "monitoring: {serviceMonitor: {metricRelabelings: [{source: [a]}]}}", []string{"/monitoring/serviceMonitor/metricRelabelings/0", "source"}},
		{"quota", "priorityClassQuota: {pods: many}", []string{"/priorityClassQuota/pods"}},
	} {
		_, err := r.Render(t.Context(), parse(t, c.values))
		if err == nil {
			t.Errorf("%s: was accepted", c.what)
			continue
		}
		for _, part := range c.want {
			if !strings.Contains(err.Error(), part) {
				t.Errorf("%s: %v: want it to contain %q", c.what, err, part)
			}
		}
	}
	// Flags take precedence over variables, and variables over the file. The last occurrence of a flag counts.
	rendered(t, parse(t, "agent: {config: {enable-k8s-exporter: false}, extraEnv: [{name: KERNOSIS_ENABLE_K8S_EXPORTER, value: 'true'}]}"))
	rendered(t, parse(t, "agent: {extraEnv: [{name: KERNOSIS_ENABLE_K8S_EXPORTER, value: 'false'}], extraArgs: [--enable-k8s-exporter]}"))
	rendered(t, parse(t, "agent: {config: {enable-k8s-exporter: false}, extraArgs: [--enable-k8s-exporter=false, --enable-k8s-exporter]}"))
	rendered(t, parse(t, "agent: {extraArgs: [--enable-k8s-exporter=false]}\nmetrics: {plainHTTP: true}"))
}
