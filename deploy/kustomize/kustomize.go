// Package kustomize holds the manifests for an installation without Helm, which "make
// generate-deploy" renders from the chart (deploy/chart): a base and its overlays.
package kustomize

import (
	"bytes"
	"embed"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"slices"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/yaml"
)

// Files has the base, and the overlay of the hardened profile.
//
//go:embed base/*.yaml hardened/*.yaml
var Files embed.FS

// Objects returns the base's objects of the given kinds, or all if none is given, in the order of
// their files.
func Objects(kinds ...string) (all []*unstructured.Unstructured, err error) {
	names, err := fs.Glob(Files, "base/*.yaml")
	if err != nil {
		return nil, err
	}
	for _, name := range names {
		text, err := Files.ReadFile(name)
		if err != nil {
			return nil, err
		}
		for d := yaml.NewYAMLOrJSONDecoder(bytes.NewReader(text), 4096); ; {
			o := &unstructured.Unstructured{}
			if err := d.Decode(&o.Object); errors.Is(err, io.EOF) {
				break
			} else if err != nil {
				return nil, fmt.Errorf("%s: %w", name, err)
			}
			if o.GetKind() != "Kustomization" && len(o.Object) > 0 && (len(kinds) == 0 || slices.Contains(kinds, o.GetKind())) {
				all = append(all, o)
			}
		}
	}
	return all, nil
}
