package chart_test

import (
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"github.com/kernosis/kernosis/deploy/chart"
	"github.com/kernosis/kernosis/vmtest/agenttest"
	"github.com/kernosis/kernosis/vmtest/kubetest"
)

var cluster = kubetest.Shared{Own: true} // tests install the chart

func TestMain(m *testing.M) {
	os.Exit(cluster.Run(m))
}

func kernosis(t *testing.T, args ...string) *exec.Cmd {
	t.Helper()
	return exec.CommandContext(t.Context(), agenttest.Program(t), args...)
}

const folderOfChart = "kernosis"

func renderer(t *testing.T) chart.Renderer {
	t.Helper()
	return chart.Renderer{Helm: kubetest.Helm(t), Chart: folderOfChart, Hooks: true}
}

// profiles returns the sets of values under test: the defaults and each example.
func profiles(t *testing.T) map[string]map[string]any {
	t.Helper()
	all := map[string]map[string]any{"default": {}}
	files, err := filepath.Glob("kernosis/examples/*.yaml")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		all[strings.TrimSuffix(filepath.Base(file), ".yaml")] = valuesOf(t, file)
	}
	if len(all) < 5 {
		t.Fatalf("only %d profiles", len(all))
	}
	return all
}

func valuesOf(t *testing.T, file string) map[string]any {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	values := map[string]any{}
	if err := yaml.UnmarshalStrict(text, &values); err != nil {
		t.Fatalf("%s: %v", file, err)
	}
	return values
}

// rendered returns the objects that the chart renders from values.
func rendered(t *testing.T, values map[string]any) []*unstructured.Unstructured {
	t.Helper()
	return objectsOf(t, renderer(t), values)
}

func objectsOf(t *testing.T, r chart.Renderer, values map[string]any) []*unstructured.Unstructured {
	t.Helper()
	documents, err := r.Render(t.Context(), values)
	if err != nil {
		t.Fatal(err)
	}
	all := make([]*unstructured.Unstructured, 0, len(documents))
	for _, d := range documents {
		o, err := d.Object()
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, o)
	}
	return all
}

// object returns the object of a kind and name, or nil.
func object(all []*unstructured.Unstructured, kind, name string) *unstructured.Unstructured {
	i := slices.IndexFunc(all, func(o *unstructured.Unstructured) bool { return o.GetKind() == kind && o.GetName() == name })
	if i < 0 {
		return nil
	}
	return all[i]
}

func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }
