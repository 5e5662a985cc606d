package ruletest

import (
	"flag"
	"io/fs"
	"reflect"
	"testing"

	"github.com/invopop/jsonschema"

	"github.com/kernosis/kernosis/detector"
	"github.com/kernosis/kernosis/detector/internal/schemagen"
	"github.com/kernosis/kernosis/detector/rules"
)

// TestSchema checks that the committed schema of test files matches the types, and that all
// shipped test files are valid.
func TestSchema(t *testing.T) {
	t.Chdir("../..") // AddGoComments reads the sources from here
	cfg := schemagen.Config{
		ID: "urn:kernosis:rule-tests:v1", Title: "Kernosis rule tests", Version: detector.APIVersion,
		Types: map[reflect.Type]func() *jsonschema.Schema{reflect.TypeFor[wantStatus](): wantedStatus},
		Comments: func(r *jsonschema.Reflector) error {
			return r.AddGoComments("github.com/kernosis/kernosis", "./collector/event")
		},
	}
	made, err := schemagen.Make[fileForm](cfg)
	if err != nil {
		t.Fatal(err)
	}
	schemagen.Current(t, "detector/rules/schema/tests.json", made, flag.Lookup("update").Value.String() == "true")
	valid := schemagen.Compile(t, made)
	files, err := ReadFiles(rules.FS)
	if err != nil || len(files) < 5 {
		t.Fatal(len(files), err)
	}
	for _, f := range files {
		if err := valid(f.Data); err != nil {
			t.Errorf("%s: %v", f.Name, err)
		}
	}
	if _, err := fs.Stat(rules.Schemas, "schema/tests.json"); err != nil {
		t.Error(err)
	}
	const head = "apiVersion: rules.kernosis.io/v1\ntests:\n- "
	for test, want := range map[string]bool{
		"{name: a, expect: [{at: 1h, problems: [{rule: a, state: pending, count: 0}], conditions: {Sick: True, Ill: Unknown, Bad: {status: False, reason: R}}, transitions: {a: 1}}]}": true,
		"{name: a, sources: false, events: [{at: 0s, like: x, repeat: 2, every: 1s, event: {kind: log, log: {name: kmsg, text: x}}}, {at: 1s, restart: true}], expect: []}":            true,
		"{expect: []}":                               false,
		"{name: a}":                                  false,
		"{name: a, expect: [{}]}":                    false,
		"{name: a, expect: [{at: 1}]}":               false,
		"{name: a, expect: [{at: 1s, problem: []}]}": false,
		"{name: a, expect: [{at: 1s, problems: [{state: firing}]}]}":                     false,
		"{name: a, expect: [{at: 1s, problems: [{rule: a, state: fires}]}]}":             false,
		"{name: a, expect: [{at: 1s, conditions: {Sick: maybe}}]}":                       false,
		"{name: a, events: [{at: 1s, event: {kind: oomkil}}], expect: []}":               false,
		"{name: a, events: [{at: 1s, event: {kind: oomkill, oomkill: {}}}], expect: []}": false,
		"{name: a, events: [{at: 1s, repeat: 0}], expect: []}":                           false,
	} {
		if err := valid([]byte(head + test)); (err == nil) != want {
			t.Errorf("%s: valid is %v, want %v: %v", test, err == nil, want, err)
		}
	}
}

func wantedStatus() *jsonschema.Schema {
	long := &jsonschema.Schema{Type: "object", Properties: jsonschema.NewProperties(), AdditionalProperties: jsonschema.FalseSchema}
	long.Properties.Set("status", schemagen.Status())
	long.Properties.Set("reason", &jsonschema.Schema{Type: "string"})
	long.Properties.Set("message", &jsonschema.Schema{Type: "string"})
	return &jsonschema.Schema{AnyOf: []*jsonschema.Schema{schemagen.Status(), long}}
}
