package chart_test

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	clientgo "k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kernosis/kernosis/deploy/chart"
	"github.com/kernosis/kernosis/diagnose/api/v1alpha1"
)

// ofOthers reports whether an object's kind is not built into the API server.
func ofOthers(o *unstructured.Unstructured) bool {
	return o.GroupVersionKind().Group == "monitoring.coreos.com"
}

// Each object has only the fields of its kind.
func TestObjectsAreOfTheirTypes(t *testing.T) {
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{clientgo.AddToScheme, v1alpha1.AddToScheme, apiextensionsv1.AddToScheme} {
		if err := add(scheme); err != nil {
			t.Fatal(err)
		}
	}
	strict := serializer.NewCodecFactory(scheme, serializer.EnableStrict).UniversalDeserializer()
	for profile, values := range profiles(t) {
		documents, err := renderer(t).Render(t.Context(), values)
		if err != nil {
			t.Fatal(err)
		}
		seen := map[string]bool{}
		for _, d := range documents {
			o, err := d.Object()
			if err != nil {
				t.Fatal(err)
			}
			id := o.GetKind() + " " + o.GetNamespace() + "/" + o.GetName()
			if seen[id] {
				t.Errorf("%s: duplicate %s", profile, id)
			}
			seen[id] = true
			if ofOthers(o) {
				continue
			}
			if _, _, err := strict.Decode([]byte(d.Text), nil, nil); err != nil {
				t.Errorf("%s: %s: %s: %v", profile, d.Source, id, err)
			}
		}
	}
}

// All objects are in the release's namespace, and nothing refers to another.
func TestTheNamespaceIsTheReleases(t *testing.T) {
	r := renderer(t)
	r.Namespace = "elsewhere"
	for profile, values := range profiles(t) {
		documents, err := r.Render(t.Context(), values)
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range documents {
			o, err := d.Object()
			if err != nil {
				t.Fatal(err)
			}
			if ns := o.GetNamespace(); ns != "" && ns != "elsewhere" {
				t.Errorf("%s: %s %s is in %s", profile, o.GetKind(), o.GetName(), ns)
			}
			for _, other := range []string{"serviceaccount:kernosis:", "namespace: kernosis\n", "namespace: kernosis}", "namespace == 'kernosis'", "namespace != 'kernosis'"} {
				if strings.Contains(d.Text, other) {
					t.Errorf("%s: %s %s has %q", profile, o.GetKind(), o.GetName(), other)
				}
			}
		}
	}
}

// The API server accepts each profile, with defaulting, validation and admission.
func TestTheAPIServerTakesIt(t *testing.T) {
	server := cluster.Server(t)
	server.CRDs(t)
	api, err := client.New(server.Admin(), client.Options{})
	if err != nil {
		t.Fatal(err)
	}
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: chart.Namespace}}
	if err := api.Create(t.Context(), namespace); err != nil && !apierrors.IsAlreadyExists(err) {
		t.Fatal(err)
	}
	for profile, values := range profiles(t) {
		t.Run(profile, func(t *testing.T) {
			n := 0
			for _, o := range rendered(t, values) {
				if ofOthers(o) {
					continue
				}
				n++
				if err := dryRun(t.Context(), api, o); err != nil {
					t.Errorf("%s %s: %v", o.GetKind(), o.GetName(), err)
				}
			}
			if n < 30 {
				t.Errorf("only %d objects", n)
			}
		})
	}
}

func dryRun(ctx context.Context, api client.Client, o *unstructured.Unstructured) error {
	return api.Apply(ctx, client.ApplyConfigurationFromUnstructured(o), client.FieldOwner("test"), client.ForceOwnership, client.DryRunAll)
}

// typed returns the object of a kind and name, converted to its Go type.
func typed[T any](t *testing.T, all []*unstructured.Unstructured, kind, name string) *T {
	t.Helper()
	o := object(all, kind, name)
	if o == nil {
		t.Fatalf("no %s %s", kind, name)
	}
	out := new(T)
	if err := runtime.DefaultUnstructuredConverter.FromUnstructuredWithValidation(o.Object, out, true); err != nil {
		t.Fatalf("%s %s: %v", kind, name, err)
	}
	return out
}

func TestImages(t *testing.T) {
	for values, want := range map[string]string{
		"{}":                                    "kernosis/kernosis:" + appVersion(t),
		"image: {tag: v2}":                      "kernosis/kernosis:v2",
		"image: {registry: r.example.com:5000}": "r.example.com:5000/kernosis/kernosis:" + appVersion(t),
		"{image: {registry: r.example.com}, global: {imageRegistry: mirror.example.com/hub/}}":             "mirror.example.com/hub/kernosis/kernosis:" + appVersion(t),
		"image: {repository: mirror/kernosis, tag: v2, digest: 'sha256:" + strings.Repeat("ab", 32) + "'}": "mirror/kernosis:v2@sha256:" + strings.Repeat("ab", 32),
	} {
		pods := podsOf(t, rendered(t, parse(t, values)))
		if len(pods) != 4 {
			t.Errorf("%d kinds of pods", len(pods))
		}
		for name, p := range pods {
			if got := p.Spec.Containers[0].Image; got != want {
				t.Errorf("%s: %s, want %s", name, got, want)
			}
		}
	}
}

func appVersion(t *testing.T) string {
	t.Helper()
	version, _ := valuesOf(t, "kernosis/Chart.yaml")["appVersion"].(string)
	if version == "" {
		t.Fatal("no appVersion")
	}
	return version
}

// Pods are replaced when their settings change, but not when rules change: the agent reloads those.
func TestWhatRestartsAgents(t *testing.T) {
	template := func(values string) *corev1.PodTemplateSpec {
		return podsOf(t, rendered(t, parse(t, values)))["kernosis-agent"]
	}
	const digest = "kernosis.io/config-digest"
	before := template("rules: {a.yaml: 'x'}")
	if after := template("rules: {a.yaml: 'y'}"); after.Annotations[digest] != before.Annotations[digest] {
		t.Error("a changed rule restarts agents")
	}
	for _, values := range []string{"agent: {config: {log-level: debug}}", "targets: [{port: 1}]"} {
		if after := template(values); after.Annotations[digest] == before.Annotations[digest] {
			t.Errorf("%s: agents are not restarted", values)
		}
	}
}

// The chart's copies of files in other folders are identical to them.
func TestCopies(t *testing.T) {
	for from, to := range map[string]string{
		"../../diagnose/api/crds/*.yaml": "kernosis/crds", "../../diagnose/manifest/sets/*.yaml": "kernosis/files/sets",
	} {
		files, err := filepath.Glob(from)
		if err != nil {
			t.Fatal(err)
		}
		var names []string
		for _, file := range files {
			name := filepath.Base(file)
			names = append(names, name)
			original, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			if copied, err := os.ReadFile(filepath.Join(to, name)); err != nil || !bytes.Equal(copied, original) {
				t.Errorf("%s/%s differs from %s (make generate-deploy): %v", to, name, file, err)
			}
		}
		there, err := filepath.Glob(to + "/*")
		if err != nil || len(there) != len(names) {
			t.Errorf("%s: %d files, want %d", to, len(there), len(names))
		}
	}
}
