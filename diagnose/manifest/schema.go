package manifest

import (
	"cmp"
	"fmt"
	"io/fs"
	"regexp"

	"cel.dev/cel-go/cel"
	"sigs.k8s.io/yaml"

	"github.com/kernosis/kernosis/diagnose/api/crds"
	"github.com/kernosis/kernosis/diagnose/api/v1alpha1"
)

// schema is the part of an OpenAPI schema that our CRDs use. A CRD that uses more is rejected.
type schema struct {
	Description          string             `json:"description"`
	Type                 string             `json:"type"`
	Format               string             `json:"format"`
	Default              any                `json:"default"`
	Enum                 []any              `json:"enum"`
	Pattern              string             `json:"pattern"`
	MinLength            *int               `json:"minLength"`
	MaxLength            *int               `json:"maxLength"`
	Minimum              *float64           `json:"minimum"`
	Maximum              *float64           `json:"maximum"`
	Items                *schema            `json:"items"`
	MinItems             *int               `json:"minItems"`
	MaxItems             *int               `json:"maxItems"`
	Properties           map[string]*schema `json:"properties"`
	AdditionalProperties *schema            `json:"additionalProperties"`
	MinProperties        *int               `json:"minProperties"`
	MaxProperties        *int               `json:"maxProperties"`
	Required             []string           `json:"required"`
	ListType             string             `json:"x-kubernetes-list-type"`
	ListMapKeys          []string           `json:"x-kubernetes-list-map-keys"`
	MapType              string             `json:"x-kubernetes-map-type"`
	Rules                []*rule            `json:"x-kubernetes-validations"`

	pattern *regexp.Regexp
}

// within returns the schema of a field; nil: there is no such field.
func (s *schema) within(name string) *schema {
	return cmp.Or(s.AdditionalProperties, s.Properties[name])
}

// rule is a CEL expression that a value must satisfy.
type rule struct {
	Rule      string `json:"rule"`
	Message   string `json:"message"`
	FieldPath string `json:"fieldPath"`

	program cel.Program // nil: it compares with a previous state
}

// kind is a kind of the API.
type kind struct {
	name       string
	namespaced bool
	spec       *schema
	rules      []*rule // of the whole object
}

// definition is the part of a CustomResourceDefinition that is read here.
type definition struct {
	Spec struct {
		Names struct {
			Kind string `json:"kind"`
		} `json:"names"`
		Scope    string `json:"scope"`
		Versions []struct {
			Name   string `json:"name"`
			Schema struct {
				OpenAPIV3Schema struct {
					Rules      []*rule `json:"x-kubernetes-validations"`
					Properties struct {
						// Decoded strictly later: an unknown keyword would not be enforced.
						Spec map[string]any `json:"spec"`
					} `json:"properties"`
				} `json:"openAPIV3Schema"`
			} `json:"schema"`
		} `json:"versions"`
	} `json:"spec"`
}

// readKinds reads the embedded CRDs. An error is a defect of the build.
func readKinds() (map[string]*kind, error) {
	names, err := fs.Glob(crds.Files, "*.yaml")
	if err != nil {
		return nil, err
	}
	env, err := newEnv()
	if err != nil {
		return nil, fmt.Errorf("cel environment: %w", err)
	}
	kinds := make(map[string]*kind, len(names))
	for _, name := range names {
		text, err := crds.Files.ReadFile(name)
		if err != nil {
			return nil, err
		}
		k, err := readKind(text)
		if err == nil {
			err = (&schema{Rules: k.rules, Items: k.spec}).compile(env)
		}
		if err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		kinds[k.name] = k
	}
	return kinds, nil
}

func readKind(text []byte) (*kind, error) {
	var d definition
	if err := yaml.Unmarshal(text, &d); err != nil {
		return nil, err
	}
	for _, v := range d.Spec.Versions {
		if v.Name != v1alpha1.Version {
			continue
		}
		root := v.Schema.OpenAPIV3Schema
		spec, err := yaml.Marshal(root.Properties.Spec)
		if err != nil {
			return nil, err
		}
		k := &kind{name: d.Spec.Names.Kind, namespaced: d.Spec.Scope == "Namespaced", spec: &schema{}, rules: root.Rules}
		if err := yaml.UnmarshalStrict(spec, k.spec); err != nil {
			return nil, fmt.Errorf("schema: %w", err)
		}
		return k, nil
	}
	return nil, fmt.Errorf("no version %s", v1alpha1.Version)
}
