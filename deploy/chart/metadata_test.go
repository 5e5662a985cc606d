package chart_test

import (
	"reflect"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"
)

// Artifact Hub and "helm search" display Chart.yaml.
func TestChartMetadata(t *testing.T) {
	var metadata struct {
		AppVersion  string
		Icon        string
		Sources     []string
		Keywords    []string
		Maintainers []struct{ Name, URL string }
		Annotations map[string]string
	}
	text, err := yaml.Marshal(valuesOf(t, "kernosis/Chart.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	if err := yaml.Unmarshal(text, &metadata); err != nil {
		t.Fatal(err)
	}
	if path, ok := strings.CutPrefix(metadata.Icon, "https://raw.githubusercontent.com/kernosis/kernosis/main/deploy/chart/"); !ok || !exists(path) {
		t.Errorf("icon: %s is not in this repository", metadata.Icon)
	}
	if len(metadata.Sources) == 0 || len(metadata.Keywords) == 0 || len(metadata.Maintainers) == 0 {
		t.Errorf("sources %v, keywords %v, maintainers %v", metadata.Sources, metadata.Keywords, metadata.Maintainers)
	}
	for name, want := range map[string]any{
		"artifacthub.io/images":  &[]struct{ Name, Image string }{},
		"artifacthub.io/links":   &[]struct{ Name, URL string }{},
		"artifacthub.io/changes": &[]struct{ Kind, Description string }{},
	} {
		if err := yaml.Unmarshal([]byte(metadata.Annotations[name]), want); err != nil || reflect.ValueOf(want).Elem().Len() == 0 {
			t.Errorf("%s: %v, %v", name, want, err)
		}
	}
	if image := "image: kernosis/kernosis:" + metadata.AppVersion + "\n"; !strings.Contains(metadata.Annotations["artifacthub.io/images"], image) {
		t.Errorf("artifacthub.io/images lacks %q", image)
	}
	if metadata.Annotations["artifacthub.io/license"] != "Apache-2.0" || metadata.Annotations["artifacthub.io/category"] != "monitoring-logging" {
		t.Errorf("annotations: %v", metadata.Annotations)
	}
}
