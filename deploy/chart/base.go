package chart

import (
	"context"
	"fmt"
	"maps"
	"path"
	"reflect"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"
)

// overlays returns the values of each overlay by name.
func overlays() map[string]map[string]any {
	return map[string]map[string]any{
		"hardened":           {"agent": map[string]any{"profile": "hardened"}},
		"without-controller": {"controller": map[string]any{"enabled": false}},
	}
}

// BaseValues returns the values of the base and its overlays. The shipped diagnosis sets are left
// out because their CRDs are part of the base and must be applied first; they are in diagnose/manifest/sets.
func BaseValues() map[string]any {
	return map[string]any{"diagnoseSets": map[string]any{"enabled": false}}
}

const generated = "# Made from deploy/chart/kernosis by \"make generate-deploy\".\n"

// Kustomize returns the files of deploy/kustomize by relative path.
func Kustomize(ctx context.Context, r Renderer) (map[string][]byte, error) {
	base, err := r.Render(ctx, BaseValues())
	if err != nil {
		return nil, err
	}
	files := map[string][]byte{"base/namespace.yaml": []byte(generated + namespaceManifest)}
	resources := []string{"namespace.yaml"}
	for i := range base {
		d := &base[i]
		name := path.Join("base", d.Source)
		if files[name] == nil {
			files[name] = []byte(generated)
			resources = append(resources, d.Source)
		} else {
			files[name] = append(files[name], "---\n"...)
		}
		d.Text = ownedByKustomize(d.Text)
		files[name] = append(files[name], d.Text...)
	}
	slices.Sort(resources[1:])
	if files["base/kustomization.yaml"], err = kustomization(map[string]any{"resources": resources}); err != nil {
		return nil, err
	}
	for name, values := range overlays() {
		changed, err := r.Render(ctx, merged(BaseValues(), values))
		if err != nil {
			return nil, fmt.Errorf("overlay %s: %w", name, err)
		}
		if files[path.Join(name, "kustomization.yaml")], err = overlay(base, changed); err != nil {
			return nil, fmt.Errorf("overlay %s: %w", name, err)
		}
	}
	return files, nil
}

// namespaceManifest is the namespace, which Helm creates by itself. Its labels let agents run where
// Pod Security is enforced.
const namespaceManifest = `apiVersion: v1
kind: Namespace
metadata:
  name: ` + Namespace + `
  labels:
    app.kubernetes.io/name: kernosis
    pod-security.kubernetes.io/enforce: privileged
    pod-security.kubernetes.io/audit: privileged
    pod-security.kubernetes.io/warn: privileged
`

func ownedByKustomize(text string) string {
	return strings.ReplaceAll(text, "app.kubernetes.io/managed-by: Helm", "app.kubernetes.io/managed-by: kustomize")
}

// overlay returns the kustomization that turns the base into the changed documents.
func overlay(base, changed []Document) ([]byte, error) {
	after := make(map[string]*unstructured.Unstructured, len(changed))
	for _, d := range changed {
		d.Text = ownedByKustomize(d.Text)
		o, err := d.Object()
		if err != nil {
			return nil, err
		}
		after[id(o)] = o
	}
	var patches []any
	for _, d := range base {
		before, err := d.Object()
		if err != nil {
			return nil, err
		}
		patch, err := patchOf(before, after[id(before)])
		if err != nil {
			return nil, err
		}
		delete(after, id(before))
		if patch != nil {
			patches = append(patches, patch)
		}
	}
	if len(after) > 0 {
		return nil, fmt.Errorf("contains %d objects that the base does not contain", len(after))
	}
	return kustomization(map[string]any{"resources": []string{"../base"}, "patches": patches})
}

func id(o *unstructured.Unstructured) string {
	return o.GetKind() + " " + o.GetNamespace() + "/" + o.GetName()
}

// patchOf returns an entry of patches, or nil if nothing has changed. It replaces whole top-level
// fields, because how lists are merged depends on the kind.
func patchOf(before, after *unstructured.Unstructured) (any, error) {
	if after == nil {
		meta := map[string]any{"name": before.GetName()}
		if before.GetNamespace() != "" {
			meta["namespace"] = before.GetNamespace()
		}
		text, err := yaml.Marshal(map[string]any{"$patch": "delete", "apiVersion": before.GetAPIVersion(), "kind": before.GetKind(), "metadata": meta})
		return map[string]any{"patch": string(text)}, err
	}
	var operations []any
	for _, field := range slices.Sorted(maps.Keys(after.Object)) {
		if !reflect.DeepEqual(before.Object[field], after.Object[field]) {
			operations = append(operations, map[string]any{"op": "add", "path": "/" + field, "value": after.Object[field]})
		}
	}
	if operations == nil {
		return nil, nil
	}
	text, err := yaml.Marshal(operations)
	return map[string]any{"target": map[string]any{"kind": before.GetKind(), "name": before.GetName()}, "patch": string(text)}, err
}

func kustomization(fields map[string]any) ([]byte, error) {
	fields["apiVersion"], fields["kind"] = "kustomize.config.k8s.io/v1beta1", "Kustomization"
	text, err := yaml.Marshal(fields)
	return append([]byte(generated), text...), err
}

// merged returns the values of under, overridden by those of over.
func merged(under, over map[string]any) map[string]any {
	out := maps.Clone(under)
	for k, v := range over {
		below, ok := out[k].(map[string]any)
		if above, both := v.(map[string]any); ok && both {
			v = merged(below, above)
		}
		out[k] = v
	}
	return out
}
