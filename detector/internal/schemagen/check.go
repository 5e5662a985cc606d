package schemagen

import (
	"bytes"
	"fmt"
	"os"
	"testing"
	"time"

	validator "github.com/santhosh-tekuri/jsonschema/v6"
	"go.yaml.in/yaml/v4"
)

// Current fails the test if the committed schema differs from the generated one; with update
// it writes the file first.
func Current(t *testing.T, path string, made []byte, update bool) {
	t.Helper()
	if update {
		if err := os.WriteFile(path, made, 0o644); err != nil { //nolint:gosec // source
			t.Fatal(err)
		}
	}
	have, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(have, made) {
		t.Errorf("%s is not what the types give: go test -run Schema -update", path)
	}
}

// Compile returns a function that validates YAML against a schema.
func Compile(t *testing.T, schema []byte) func(data []byte) error {
	t.Helper()
	doc, err := validator.UnmarshalJSON(bytes.NewReader(schema))
	if err != nil {
		t.Fatal(err)
	}
	c := validator.NewCompiler()
	c.DefaultDraft(validator.Draft2020)
	c.AssertFormat()
	if err := c.AddResource("schema.json", doc); err != nil {
		t.Fatal(err)
	}
	s, err := c.Compile("schema.json")
	if err != nil {
		t.Fatal(err)
	}
	return func(data []byte) error {
		var v any
		if err := yaml.Load(data, &v); err != nil {
			return err
		}
		return s.Validate(plain(v))
	}
}

// plain converts YAML values to JSON values.
func plain(v any) any {
	switch v := v.(type) {
	case map[string]any:
		for k, e := range v {
			v[k] = plain(e)
		}
	case map[any]any:
		out := make(map[string]any, len(v))
		for k, e := range v {
			out[fmt.Sprint(k)] = plain(e)
		}
		return out
	case []any:
		for i, e := range v {
			v[i] = plain(e)
		}
	case time.Time:
		return v.Format(time.RFC3339)
	}
	return v
}
