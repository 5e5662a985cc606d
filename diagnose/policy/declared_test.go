package policy

import (
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/yaml"

	"github.com/kernosis/kernosis/diagnose/api/crds"
)

// The same manifest gives the same form, however a build orders fields, and whether or not it
// writes empty ones.
func TestTheFormIsOfTheManifest(t *testing.T) {
	for _, c := range [][2]string{
		{
			`{"processor":{"scriptRunner":{"script":"true","argKeys":["a"]},"timeoutSeconds":30},"retry":{"limit":2,"backoff":"1s","maxBackoff":"30s"},"effect":"Remediate"}`,
			`{"effect":"Remediate","retry":{"maxBackoff":"30s","limit":2,"backoff":"1s"},"dependences":[],"storage":null,"tenantSafe":false,
			"processor":{"timeoutSeconds":30,"builtin":null,"scriptRunner":{"operationResultKey":"","argKeys":["a"],"script":"true"}}}`,
		},
		{
			`{"processor":{"builtin":{"name":"cordon","parameters":{"a":"1","b":"2"}}}}`,
			`{"processor":{"builtin":{"parameters":{"b":"2","a":"1"},"name":"cordon"},"httpServer":null}}`,
		},
	} {
		a, err := declare([]byte(c[0]))
		if err != nil {
			t.Fatal(err)
		}
		b, err := declare([]byte(c[1]))
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(string(a), string(b)); diff != "" {
			t.Error(diff)
		}
	}
	if _, err := declare([]byte(`{"processor":{"builtin":{"name":"cordon"}},"later":1}`)); err == nil || !strings.Contains(err.Error(), "later") {
		t.Errorf("a field that is not hashed is left out: %v", err)
	}
}

// If the API gets a new field with a default, every existing Operation gets it, and all approvals
// become invalid without a change of any plan. So declare must omit such a default, and this list
// must not grow.
func TestNoDefaultMakesApprovalsFall(t *testing.T) {
	text, err := crds.Files.ReadFile("kernosis.io_operations.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var d struct {
		Spec struct {
			Versions []struct {
				Schema struct {
					OpenAPIV3Schema map[string]any `json:"openAPIV3Schema"`
				} `json:"schema"`
			} `json:"versions"`
		} `json:"spec"`
	}
	if err := yaml.Unmarshal(text, &d); err != nil {
		t.Fatal(err)
	}
	got := map[string]string{}
	for _, v := range d.Spec.Versions {
		defaults("", v.Schema.OpenAPIV3Schema, got)
	}
	want := map[string]string{
		".spec.tenantSafe": `false`, ".spec.processor.timeoutSeconds": `30`,
		".spec.processor.httpServer.address": `"127.0.0.1"`, ".spec.processor.httpServer.path": `"/"`, ".spec.processor.httpServer.scheme": `"http"`,
		".spec.retry.limit": `2`, ".spec.retry.backoff": `"1s"`, ".spec.retry.maxBackoff": `"30s"`,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

func defaults(path string, schema map[string]any, found map[string]string) {
	if value, ok := schema["default"]; ok {
		raw, err := json.Marshal(value)
		if err != nil {
			raw = []byte(err.Error())
		}
		found[path] = string(raw)
	}
	properties, _ := schema["properties"].(map[string]any)
	for _, name := range slices.Sorted(maps.Keys(properties)) {
		of, _ := properties[name].(map[string]any)
		defaults(path+"."+name, of, found)
	}
}
