package kubetest

import (
	"bytes"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/yaml"
)

// Manifests returns the objects of deploy/kustomize/base of the given kinds, or all if none is given,
// in the order of their files.
func Manifests(tb testing.TB, kinds ...string) (all []*unstructured.Unstructured) {
	tb.Helper()
	root, err := checkout()
	if err != nil {
		tb.Fatal(err)
	}
	names, err := filepath.Glob(filepath.Join(root, "deploy/kustomize/base/*.yaml"))
	if err != nil {
		tb.Fatal(err)
	}
	for _, name := range names {
		text, err := os.ReadFile(name)
		if err != nil {
			tb.Fatal(err)
		}
		for d := yaml.NewYAMLOrJSONDecoder(bytes.NewReader(text), 4096); ; {
			o := &unstructured.Unstructured{}
			if err := d.Decode(&o.Object); errors.Is(err, io.EOF) {
				break
			} else if err != nil {
				tb.Fatalf("%s: %v", name, err)
			}
			if o.GetKind() != "Kustomization" && len(o.Object) > 0 && (len(kinds) == 0 || slices.Contains(kinds, o.GetKind())) {
				all = append(all, o)
			}
		}
	}
	return all
}
