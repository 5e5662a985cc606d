package v1alpha1_test

import (
	"maps"
	"slices"
	"strings"
	"testing"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
)

// All lists, maps and texts in the API are bounded.
func TestEverythingIsBounded(t *testing.T) {
	all := definitions(t)
	if len(all) != 5 {
		t.Errorf("%d kinds", len(all))
	}
	for kind, crd := range all {
		root := crd.Spec.Versions[0].Schema.OpenAPIV3Schema
		for _, part := range []string{"spec", "status"} {
			if p, ok := root.Properties[part]; ok {
				bounded(t, &p, kind+"."+part)
			}
		}
	}
}

func bounded(t *testing.T, s *apiextensionsv1.JSONSchemaProps, path string) {
	t.Helper()
	switch {
	case s.XIntOrString: // a quantity: its pattern specifies the format
		if s.Pattern == "" {
			t.Errorf("%s: no pattern", path)
		}
	case s.Type == "string":
		if s.MaxLength == nil && len(s.Enum) == 0 && s.Format != "date-time" {
			t.Errorf("%s: no maxLength", path)
		}
	case s.Type == "array":
		if s.MaxItems == nil {
			t.Errorf("%s: no maxItems", path)
		}
		if s.XListType == nil {
			t.Errorf("%s: no list type, which server-side apply goes by", path)
		}
		bounded(t, s.Items.Schema, path+"[]")
	case s.Type == "integer":
		// The API server itself declares observedGeneration of conditions.
		if s.Minimum == nil && !strings.HasSuffix(path, "observedGeneration") {
			t.Errorf("%s: no minimum", path)
		}
	case s.AdditionalProperties != nil:
		if s.MaxProperties == nil {
			t.Errorf("%s: no maxProperties", path)
		}
		bounded(t, s.AdditionalProperties.Schema, path+"{}")
	}
	for _, name := range slices.Sorted(maps.Keys(s.Properties)) {
		p := s.Properties[name]
		bounded(t, &p, path+"."+name)
	}
}
