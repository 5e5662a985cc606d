package chart_test

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/yaml"

	"github.com/kernosis/kernosis/deploy/chart"
	"github.com/kernosis/kernosis/vmtest/kubetest"
)

// deploy/kustomize is generated from the chart.
func TestTheBaseIsTheCharts(t *testing.T) {
	r := renderer(t)
	r.Hooks = false
	files, err := chart.Kustomize(t.Context(), r)
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range files {
		if got, err := os.ReadFile(filepath.Join("../kustomize", name)); err != nil || !bytes.Equal(got, want) {
			t.Errorf("deploy/kustomize/%s is not what the chart makes (make generate-deploy): %v", name, err)
		}
	}
	there, err := filepath.Glob("../kustomize/*/*.yaml")
	if err != nil || len(there) != len(files) {
		t.Errorf("%d files, want %d: %v", len(there), len(files), err)
	}
}

// kustomize builds the same objects from base and overlays as Helm renders from the values.
func TestKustomizeBuilds(t *testing.T) {
	kubectl := kubetest.Kubectl(t)
	r := renderer(t)
	r.Hooks = false
	for name, values := range map[string]map[string]any{
		"base":               {},
		"hardened":           {"agent": map[string]any{"profile": "hardened"}},
		"without-controller": {"controller": map[string]any{"enabled": false}},
	} {
		values["diagnoseSets"] = map[string]any{"enabled": false}
		want := map[string]*unstructured.Unstructured{}
		for _, o := range objectsOf(t, r, values) {
			want[o.GetKind()+" "+o.GetName()] = o
		}
		var stderr bytes.Buffer
		cmd := exec.CommandContext(t.Context(), kubectl, "kustomize", "../kustomize/"+name)
		cmd.Stderr = &stderr
		out, err := cmd.Output()
		if err != nil {
			t.Fatalf("%s: %v\n%s", name, err, &stderr)
		}
		out = bytes.ReplaceAll(out, []byte("app.kubernetes.io/managed-by: kustomize"), []byte("app.kubernetes.io/managed-by: Helm"))
		n := 0
		for d := yaml.NewYAMLOrJSONDecoder(bytes.NewReader(out), 4096); ; {
			o := &unstructured.Unstructured{}
			if d.Decode(&o.Object) != nil {
				break
			}
			if o.GetKind() == "Namespace" {
				continue
			}
			n++
			id := o.GetKind() + " " + o.GetName()
			if want[id] == nil {
				t.Errorf("%s: %s is not in the chart", name, id)
			} else if a, b := normal(t, o), normal(t, want[id]); !reflect.DeepEqual(a, b) {
				t.Errorf("%s: %s is\n%v\nwant\n%v", name, id, a, b)
			}
		}
		if n != len(want) {
			t.Errorf("%s: %d objects, want %d", name, n, len(want))
		}
	}
}

// normal removes differences in how numbers are decoded.
func normal(t *testing.T, o *unstructured.Unstructured) map[string]any {
	t.Helper()
	text, err := o.MarshalJSON()
	if err != nil {
		t.Fatal(err)
	}
	var out unstructured.Unstructured
	if err := out.UnmarshalJSON(text); err != nil {
		t.Fatal(err)
	}
	return out.Object
}

// The documented removal without Helm deletes everything except the CRDs, their objects and the
// namespace with its other contents.
func TestRemovalWithoutHelm(t *testing.T) {
	page, err := os.ReadFile("../../docs/uninstall.md")
	if err != nil {
		t.Fatal(err)
	}
	removal := regexp.MustCompile(`(?m)^kubectl (delete -k .+)$`).FindSubmatch(page)
	if removal == nil {
		t.Fatal("docs/uninstall.md has no kubectl delete -k")
	}
	server := cluster.Server(t)
	server.CRDs(t)
	config, program := server.Kubeconfig(t, server.Admin()), kubetest.Kubectl(t)
	kubectl := func(command string, args ...string) string {
		t.Helper()
		cmd := exec.CommandContext(t.Context(), program, append(append(strings.Fields(command), "--kubeconfig", config), args...)...)
		cmd.Dir = "../.."
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("kubectl %s: %v\n%s", command, err, out)
		}
		return string(out)
	}
	kubectl("apply --server-side -k deploy/kustomize/base")
	kubectl("apply --server-side -f diagnose/manifest/sets/oom-kill.yaml")
	kubectl("delete daemonset kernosis-agent -n " + chart.Namespace) // like kernosis uninstall
	kubectl("create configmap other -n " + chart.Namespace)
	kubectl(string(removal[1]))
	kubectl("get configmap other -n " + chart.Namespace)
	kubectl("get -f diagnose/manifest/sets/oom-kill.yaml")
	left := kubectl("get -k deploy/kustomize/base --ignore-not-found -o name")
	for name := range strings.FieldsSeq(left) {
		if name != "namespace/"+chart.Namespace && !strings.HasPrefix(name, "customresourcedefinition.") {
			t.Errorf("%s is left", name)
		}
	}
	if phase := kubectl("get namespace " + chart.Namespace + " -o jsonpath={.status.phase}"); phase != "Active" {
		t.Errorf("the namespace is %s", phase)
	}
	kubectl("delete configmap other -n " + chart.Namespace)
	kubectl("delete -f diagnose/manifest/sets/oom-kill.yaml")
}

// The documented deletion of what Helm's hooks leave matches each object of a hook, and no others.
func TestRemovalOfHooks(t *testing.T) {
	page, err := os.ReadFile("../../docs/uninstall.md")
	if err != nil {
		t.Fatal(err)
	}
	removal := regexp.MustCompile(`(?m)^kubectl -n kernosis delete (\S+) \\\n  -l '(.+)'$`).FindStringSubmatch(string(page))
	if removal == nil {
		t.Fatal("docs/uninstall.md has no kubectl delete of Jobs")
	}
	selector, err := labels.Parse(removal[2])
	if err != nil {
		t.Fatal(err)
	}
	hooks := 0
	for _, o := range rendered(t, parse(t, "uninstall: {crds: true}")) {
		hook := o.GetAnnotations()["helm.sh/hook"]
		if hook != "" {
			hooks++
		}
		deleted := selector.Matches(labels.Set(o.GetLabels())) && slices.Contains(strings.Split(removal[1], ","), strings.ToLower(o.GetKind()))
		if deleted != (hook != "") {
			t.Errorf("%s %s of the hook %q: deleted %t", o.GetKind(), o.GetName(), hook, deleted)
		}
	}
	if hooks != 14 {
		t.Errorf("%d objects of hooks, want 14", hooks)
	}
}

func TestObjectsOfTheBase(t *testing.T) {
	var kinds []string
	for _, o := range kubetest.Manifests(t) {
		kinds = append(kinds, o.GetKind())
	}
	for _, kind := range []string{"Namespace", "CustomResourceDefinition", "DaemonSet", "Deployment", "ValidatingAdmissionPolicy"} {
		if !slices.Contains(kinds, kind) {
			t.Errorf("no %s in %s", kind, strings.Join(kinds, " "))
		}
	}
	if some := kubetest.Manifests(t, "DaemonSet"); len(some) != 1 || some[0].GetName() != "kernosis-agent" {
		t.Errorf("%v", some)
	}
}
