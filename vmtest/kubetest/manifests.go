package kubetest

import (
	"bytes"
	"errors"
	"io"
	"io/fs"
	"slices"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/yaml"

	"github.com/kernosis/kernosis/deploy/kustomize"
)

// Manifests returns the objects of deploy/kustomize/base of the given kinds, or all if none is given,
// in the order of their files.
func Manifests(tb testing.TB, kinds ...string) (all []*unstructured.Unstructured) {
	tb.Helper()
	names, err := fs.Glob(kustomize.Files, "base/*.yaml")
	if err != nil {
		tb.Fatal(err)
	}
	for _, name := range names {
		text, err := kustomize.Files.ReadFile(name)
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
