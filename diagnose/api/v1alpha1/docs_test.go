package v1alpha1_test

import (
	"flag"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"sigs.k8s.io/yaml"

	"github.com/kernosis/kernosis/diagnose/api/crds"
)

var update = flag.Bool("update", false, "write the fields into docs/api.md")

const apiDoc = "../../../docs/api.md"

// definitions returns the CustomResourceDefinitions by kind.
func definitions(t *testing.T) map[string]*apiextensionsv1.CustomResourceDefinition {
	t.Helper()
	names, err := fs.Glob(crds.Files, "*.yaml")
	if err != nil {
		t.Fatal(err)
	}
	all := make(map[string]*apiextensionsv1.CustomResourceDefinition)
	for _, name := range names {
		text, err := crds.Files.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		crd := &apiextensionsv1.CustomResourceDefinition{}
		if err := yaml.UnmarshalStrict(text, crd); err != nil {
			t.Fatal(err)
		}
		all[crd.Spec.Names.Kind] = crd
	}
	return all
}

func TestDocsHaveTheFields(t *testing.T) {
	text, err := os.ReadFile(apiDoc)
	if err != nil {
		t.Fatal(err)
	}
	crds := definitions(t)
	found := 0
	place := regexp.MustCompile(`(?s)(<!-- fields of (\w+):[^\n]*-->\n).*?(<!-- end -->)`)
	want := place.ReplaceAllStringFunc(string(text), func(m string) string {
		parts := place.FindStringSubmatch(m)
		crd := crds[parts[2]]
		if crd == nil {
			t.Fatalf("no kind %s", parts[2])
		}
		found++
		root := crd.Spec.Versions[0].Schema.OpenAPIV3Schema
		var b strings.Builder
		b.WriteString(parts[1] + "\n| field | default | what it is |\n|---|---|---|\n")
		for _, part := range []string{"spec", "status"} {
			if p, ok := root.Properties[part]; ok {
				rows(&b, &p, parts[2], part)
			}
		}
		return b.String() + "\n" + parts[3]
	})
	if found != len(crds) {
		t.Errorf("%d of %d kinds", found, len(crds))
	}
	if *update {
		if err := os.WriteFile(apiDoc, []byte(want), 0o600); err != nil {
			t.Fatal(err)
		}
		return
	}
	if want != string(text) {
		t.Error("docs/api.md is not what the types say: go test ./diagnose/api/... -update")
	}
}

// rows writes one line for each nested field.
func rows(b *strings.Builder, s *apiextensionsv1.JSONSchemaProps, kind, path string) {
	for _, name := range slices.Sorted(maps.Keys(s.Properties)) {
		p := s.Properties[name]
		at := path + "." + name
		what := p.Description
		what = strings.TrimPrefix(strings.Join(strings.Fields(what), " "), name+" ")
		for _, of := range []string{"is ", "are "} {
			what = strings.TrimPrefix(what, of)
		}
		if values := texts(p.Enum); len(values) > 0 {
			what += " (" + strings.Join(values, ", ") + ")"
		}
		if slices.Contains(s.Required, name) {
			what += " **Required.**"
		}
		byDefault := ""
		if p.Default != nil && string(p.Default.Raw) != "{}" {
			byDefault = "`" + strings.Trim(string(p.Default.Raw), `"`) + "`"
		}
		fmt.Fprintf(b, "| `%s` | %s | %s |\n", at, byDefault, strings.ReplaceAll(what, "|", `\|`))
		within := &p
		if p.Items != nil {
			within, at = p.Items.Schema, at+"[]"
		}
		_, selector := within.Properties["matchExpressions"]
		if selector || name == "conditions" || (name == "targetSelector" && kind == "Trigger") {
			continue // a type of Kubernetes, or documented with Diagnosis
		}
		rows(b, within, kind, at)
	}
}

func texts(values []apiextensionsv1.JSON) []string {
	out := make([]string, len(values))
	for i, v := range values {
		out[i] = "`" + strings.Trim(string(v.Raw), `"`) + "`"
	}
	return out
}
