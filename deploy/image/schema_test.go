package main

import (
	"bytes"
	"errors"
	"os"
	"path"
	"path/filepath"
	"strings"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"
)

// folder loads schemas by the last part of their URL.
type folder string

func (f folder) Load(url string) (any, error) {
	name := filepath.Join(string(f), path.Base(url))
	text, err := os.ReadFile(name)
	if errors.Is(err, os.ErrNotExist) {
		text, err = os.ReadFile(strings.TrimSuffix(name, ".json") + "x.json") // CycloneDX' library has one with this name
	}
	if err != nil {
		return nil, err
	}
	return jsonschema.UnmarshalJSON(bytes.NewReader(text))
}

func compile(t *testing.T, dir, name string) *jsonschema.Schema {
	t.Helper()
	c := jsonschema.NewCompiler()
	c.UseLoader(folder(dir))
	schema, err := c.Compile("file:///" + name)
	if err != nil {
		t.Fatal(err)
	}
	return schema
}

// imageSchema compiles a schema of the specification of images.
func imageSchema(t *testing.T, name string) *jsonschema.Schema {
	t.Helper()
	return compile(t, filepath.Join(moduleDir(t, "github.com/opencontainers/image-spec"), "schema"), name)
}

func validate(t *testing.T, schema *jsonschema.Schema, text []byte) {
	t.Helper()
	doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(text))
	if err == nil {
		err = schema.Validate(doc)
	}
	if err != nil {
		t.Errorf("%v\n%s", err, text)
	}
}

// moduleDir returns the source folder of a required module.
func moduleDir(t *testing.T, path string) string {
	t.Helper()
	out, err := goCommand(t.Context(), moduleRoot, "list", "-m", "-f", "{{.Dir}}", path)
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(string(out))
}

// bomSchema compiles the schema of CycloneDX, which its library includes for its own tests.
func bomSchema(t *testing.T) *jsonschema.Schema {
	t.Helper()
	return compile(t, filepath.Join(moduleDir(t, "github.com/CycloneDX/cyclonedx-go"), "schema"), "bom-1.6.schema.json")
}
