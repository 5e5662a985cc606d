package form_test

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"io/fs"
	"net/netip"
	"os"
	"reflect"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"github.com/invopop/jsonschema"
	validator "github.com/santhosh-tekuri/jsonschema/v6"
	"go.yaml.in/yaml/v4"

	"github.com/kernosis/kernosis/collector/event"
	"github.com/kernosis/kernosis/collector/logpattern"
	"github.com/kernosis/kernosis/detector"
	"github.com/kernosis/kernosis/detector/internal/form"
	"github.com/kernosis/kernosis/detector/problem"
	"github.com/kernosis/kernosis/detector/ruletest"
)

var update = flag.Bool("update", false, "write the JSON Schemas")

// schemaOf generates the JSON Schema (draft 2020-12) of a type, and fails the test if the committed
// one differs. change is called with the schema before it is written. schemaOf returns a function
// that validates YAML against the schema.
func schemaOf[T any](t *testing.T, name, id, title string, change func(*jsonschema.Schema)) func(data []byte) error {
	t.Helper()
	r := &jsonschema.Reflector{RequiredFromJSONSchemaTags: true, ExpandedStruct: true, Anonymous: true, Mapper: mapped}
	t.Chdir("../../..") // AddGoComments reads the sources from here
	if err := r.AddGoComments("github.com/kernosis/kernosis", "./collector/event"); err != nil {
		t.Fatal(err)
	}
	var zero T
	s := r.Reflect(&zero)
	s.ID, s.Title = jsonschema.ID(id), title
	change(s)
	text, err := json.MarshalIndent(s, "", "  ")
	if err != nil {
		t.Fatal(err)
	}
	text = append(text, '\n')
	if *update {
		if err := os.WriteFile("detector/rules/schema/"+name+".json", text, 0o644); err != nil {
			t.Fatal(err)
		}
	} else if committed, err := detector.Schema(name); err != nil || !bytes.Equal(committed, text) {
		t.Errorf("detector/rules/schema/%s.json is not what the types give: go test -run Schema -update: %v", name, err)
	}
	return compile(t, text)
}

// compile returns a function that validates YAML against a schema.
func compile(t *testing.T, schema []byte) func(data []byte) error {
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

// Patterns of texts. Those of condition types that no rule may have, and of the fields that a log
// rule defines, are known to the loader only.
const (
	reserved    = "^(Ready|NetworkUnavailable|.*Pressure)$"
	fieldOfLine = `^match\.[A-Za-z_][A-Za-z0-9_]*$`
	duration    = `^([0-9]+(\.[0-9]*)?(ns|us|µs|ms|s|m|h))+$` // of Go, not negative
)

func text(pattern string) *jsonschema.Schema {
	return &jsonschema.Schema{Type: "string", Pattern: pattern}
}

// enum returns the schema of a text that must be one of values.
func enum[T ~string](values ...T) *jsonschema.Schema {
	s := &jsonschema.Schema{Type: "string"}
	for _, v := range values {
		s.Enum = append(s.Enum, string(v))
	}
	return s
}

// status returns the schema of True, False or Unknown, with or without quotes.
func status() *jsonschema.Schema {
	return &jsonschema.Schema{AnyOf: []*jsonschema.Schema{{Type: "boolean"}, enum("True", "False", "Unknown")}}
}

func conditionName() *jsonschema.Schema {
	s := text(form.PascalPattern)
	s.Not = &jsonschema.Schema{Pattern: reserved}
	return s
}

// mapped returns the schemas of types that are no structs.
func mapped(t reflect.Type) *jsonschema.Schema {
	maxCEL, maxPattern, one := uint64(4096), uint64(logpattern.MaxExpr), uint64(1)
	switch t {
	case reflect.TypeFor[form.Version]():
		return enum(detector.APIVersion)
	case reflect.TypeFor[form.Name]():
		return text(form.NamePattern)
	case reflect.TypeFor[form.Reason]():
		return text(form.PascalPattern)
	case reflect.TypeFor[form.Condition]():
		return conditionName()
	case reflect.TypeFor[form.Kind](), reflect.TypeFor[event.Kind]():
		return enum(event.Kinds()...)
	case reflect.TypeFor[form.Severity]():
		return enum(problem.Severities()...)
	case reflect.TypeFor[form.State]():
		return enum("pending", "firing", "resolved")
	case reflect.TypeFor[form.Field]():
		return &jsonschema.Schema{AnyOf: []*jsonschema.Schema{enum(groupable()...), text(fieldOfLine)}}
	case reflect.TypeFor[form.Duration]():
		return text(duration)
	case reflect.TypeFor[event.Duration]():
		return text(`^-?` + duration[1:])
	case reflect.TypeFor[form.CEL]():
		s := text("")
		s.MaxLength = &maxCEL
		return s
	case reflect.TypeFor[form.Pattern]():
		s := text("")
		s.MaxLength, s.MinLength = &maxPattern, &one
		return s
	case reflect.TypeFor[form.Value]():
		return &jsonschema.Schema{AnyOf: []*jsonschema.Schema{{Type: "string"}, {Type: "integer"}, {Type: "boolean"}}}
	case reflect.TypeFor[form.Status]():
		return status()
	case reflect.TypeFor[form.WantCondition]():
		return wantedCondition()
	case reflect.TypeFor[netip.AddrPort]():
		return text("")
	}
	return nil
}

func groupable() (names []string) {
	for _, f := range event.Fields() {
		if f.Groupable() {
			names = append(names, f.Name)
		}
	}
	return names
}

func wantedCondition() *jsonschema.Schema {
	long := &jsonschema.Schema{Type: "object", Properties: jsonschema.NewProperties(), AdditionalProperties: jsonschema.FalseSchema}
	long.Properties.Set("status", status())
	long.Properties.Set("reason", &jsonschema.Schema{Type: "string"})
	long.Properties.Set("message", &jsonschema.Schema{Type: "string"})
	return &jsonschema.Schema{AnyOf: []*jsonschema.Schema{status(), long}}
}

// need returns a schema that requires these keys.
func need(keys ...string) *jsonschema.Schema { return &jsonschema.Schema{Required: keys} }

// is returns a schema that requires a key to match s.
func is(key string, s *jsonschema.Schema) *jsonschema.Schema {
	out := &jsonschema.Schema{Properties: jsonschema.NewProperties(), Required: []string{key}}
	out.Properties.Set(key, s)
	return out
}

// ruleConstraints returns the constraints between keys of a rule.
func ruleConstraints() []*jsonschema.Schema {
	latched := is("latched", &jsonschema.Schema{Const: true})
	cleared := &jsonschema.Schema{AnyOf: []*jsonschema.Schema{need("clearAfter"), need("clearWhen"), need("clearPattern")}}
	both := &jsonschema.Schema{AllOf: []*jsonschema.Schema{latched, cleared}}
	log := is("events", &jsonschema.Schema{Contains: &jsonschema.Schema{Const: string(event.Log)}})
	logKeys := &jsonschema.Schema{AnyOf: []*jsonschema.Schema{need("pattern"), need("clearPattern"), need("logs"), need("lines"), need("anchorEnd"), need("fallbackFor"), need("rateLimit")}}
	one := uint64(1)
	own := []*jsonschema.Schema{
		{If: need("absentFor"), Then: &jsonschema.Schema{Not: &jsonschema.Schema{AnyOf: []*jsonschema.Schema{
			cleared, need("groupBy"), need("threshold"), need("for"), need("latched"), need("severityWhen"), need("fault"), need("fallbackFor"), need("maxGroups"),
		}}}},
		{If: need("condition"), Then: &jsonschema.Schema{AnyOf: []*jsonschema.Schema{cleared, latched, need("absentFor")}, Not: both},
			Else: &jsonschema.Schema{Not: latched}},
		{If: need("for"), Then: &jsonschema.Schema{Required: []string{"clearWhen"}, Not: need("threshold")}},
		{If: log, Then: &jsonschema.Schema{AllOf: []*jsonschema.Schema{need("pattern"), is("events", &jsonschema.Schema{MaxItems: &one}),
			{If: need("absentFor"), Then: &jsonschema.Schema{AnyOf: []*jsonschema.Schema{need("logs"), need("condition")}}}}},
			Else: &jsonschema.Schema{Not: logKeys}},
	}
	// The schema doesn't know the keys that a rule gets from the rule it extends.
	return []*jsonschema.Schema{{If: need("extends"), Else: &jsonschema.Schema{Required: []string{"events", "reason", "message"}, AllOf: own}}}
}

// TestRuleSchema checks that the committed schema matches the types, that all shipped and
// documented rules are valid, and that the loader also refuses what the schema refuses.
func TestRuleSchema(t *testing.T) {
	valid := schemaOf[form.RuleFile](t, "rules", "urn:kernosis:rules:v1", "Kernosis rules", func(s *jsonschema.Schema) {
		conditions, _ := s.Properties.Get("conditions")
		conditions.PropertyNames = conditionName()
		s.Definitions["Rule"].AllOf = ruleConstraints()
	})
	entries, err := fs.ReadDir(detector.Shipped(), ".")
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	for _, e := range entries {
		if ruletest.IsTestFile(e.Name()) {
			continue
		}
		n++
		data, err := fs.ReadFile(detector.Shipped(), e.Name())
		if err != nil {
			t.Fatal(err)
		}
		if err := valid(data); err != nil {
			t.Errorf("%s: %v", e.Name(), err)
		}
	}
	if n < 5 {
		t.Errorf("only %d rule files", n)
	}

	const head = "apiVersion: rules.kernosis.io/v1\nconditions: {Sick: {healthyReason: Well, healthyMessage: m}}\nrules:\n- {name: a, reason: R, message: m, "
	for _, good := range []string{
		"events: [oomkill]}", "events: [oomkill], condition: Sick, clearAfter: 1h30m0.5s, severity: info, maxGroups: 3}",
		"events: [oomkill], condition: Sick, latched: true, groupBy: [task.comm], dependsOn: []}",
		"events: [hungtask], for: 1m, clearWhen: 'event.kind == \"hungtask.resumed\"'}",
		"events: [log], pattern: 'a(?P<x>.)', groupBy: [match.x], logs: [kmsg], lines: 3, clearPattern: 'b(?P<x>.)'}",
		"events: [oomkill], threshold: {count: 2, within: 1m, distinct: cgroup.path}}",
		"events: [log], pattern: x, absentFor: 1h, logs: [app]}", "events: [log], pattern: x, absentFor: 1h, condition: Sick}", "events: [oomkill], absentFor: 1h}",
	} {
		data := []byte(head + good)
		if err := valid(data); err != nil {
			t.Errorf("%s: %v", good, err)
		}
		if _, err := detector.Load(fstest.MapFS{"r.yaml": {Data: data}}); err != nil {
			t.Errorf("%s: %v", good, err)
		}
	}
	for _, bad := range []string{
		"events: []}", "events: [oomkil]}", "events: [oomkill, oomkill]}", "events: oomkill}", "events: [oomkill], name: A}", "event: [oomkill], events: [oomkill]}",
		"events: [oomkill], severity: bad}", "events: [oomkill], clearAfter: 5}", "events: [oomkill], clearAfter: five}", "events: [oomkill], clearAfter: -5s}",
		"events: [oomkill], condition: Sick}", "events: [oomkill], condition: Sick, latched: false}", "events: [oomkill], condition: Sick, latched: true, clearAfter: 1m}",
		"events: [oomkill], condition: Ready, clearAfter: 1m}", "events: [oomkill], latched: true}", "events: [oomkill], fault: x_y}",
		"events: [hungtask], for: 1m}", "events: [hungtask], for: 1m, clearWhen: 'true', threshold: {count: 2, within: 1m}}", "events: [log]}", "events: [log, oomkill], pattern: x}",
		"events: [oomkill], pattern: x}", "events: [oomkill], groupBy: [task.com]}", "events: [oomkill], groupBy: [task]}", "events: [log], pattern: ''}",
		"events: [oomkill], threshold: {count: 1, within: 1m}}", "events: [oomkill], threshold: {count: 2}}", "events: [oomkill], maxGroups: 0}", "events: [oomkill], doc: " + strings.Repeat("x", 257) + "}",
		"events: [log], pattern: x, lines: 0}", "events: [log], pattern: x, logs: []}", "events: [oomkill], when: " + strings.Repeat("x", 4097) + "}", "events: [oomkill], reason: not pascal}",
		"events: [log], pattern: x, absentFor: 1h}",
	} {
		data := []byte(head + bad)
		if strings.Contains(bad, "name: A") || strings.Contains(bad, "reason: n") {
			data = []byte(strings.NewReplacer("name: a, ", "", "reason: R, ", "").Replace(head) + strings.TrimSuffix(bad, "}") + ", fault: b}")
		}
		if valid(data) == nil {
			t.Errorf("%s: is valid by the schema", bad)
		}
		if _, err := detector.Load(fstest.MapFS{"r.yaml": {Data: data}}); err == nil {
			t.Errorf("%s: is loaded", bad)
		}
	}
	for _, bad := range []string{
		"rules: []", "apiVersion: rules.kernosis.io/v2", "apiVersion: rules.kernosis.io/v1\nrule: []",
		"apiVersion: rules.kernosis.io/v1\nconditions: {Ready: {healthyReason: R, healthyMessage: m}}",
		"apiVersion: rules.kernosis.io/v1\nconditions: {sick: {healthyReason: R, healthyMessage: m}}",
		"apiVersion: rules.kernosis.io/v1\nconditions: {Sick: {healthyReason: R}}",
	} {
		if valid([]byte(bad)) == nil {
			t.Errorf("%s: is valid", bad)
		}
	}
}

// TestMuteSchema checks the same for mutes.
func TestMuteSchema(t *testing.T) {
	valid := schemaOf[form.MuteFile](t, "mutes", "urn:kernosis:mutes:v1", "Kernosis mutes", func(s *jsonschema.Schema) {
		where, _ := s.Definitions["Mute"].Properties.Get("where")
		one := uint64(1)
		where.MinProperties = &one
	})
	const head = "apiVersion: rules.kernosis.io/v1\nmutes:\n- "
	for good, want := range map[string]bool{
		"{rule: a, until: 2026-01-01T00:00:00Z, reason: r}":                                      true,
		"{rule: a, where: {x: 1, y: b, z: true}, until: '2026-01-01T00:00:00+01:00', reason: r}": true,
		"{rule: a, until: tomorrow, reason: r}":                                                  false,
		"{rule: a, until: 2026-01-01T00:00:00Z}":                                                 false,
		"{rule: a, where: {}, until: 2026-01-01T00:00:00Z, reason: r}":                           false,
		"{rule: a, where: {x: [1]}, until: 2026-01-01T00:00:00Z, reason: r}":                     false,
		"{rule: A, until: 2026-01-01T00:00:00Z, reason: ''}":                                     false,
		"{rule: a, group: x, until: 2026-01-01T00:00:00Z, reason: r}":                            false,
	} {
		if err := valid([]byte(head + good)); (err == nil) != want {
			t.Errorf("%s: valid is %v, want %v: %v", good, err == nil, want, err)
		}
	}
}

// TestTestSchema checks that the committed schema of test files matches the types, and that all
// shipped test files are valid.
func TestTestSchema(t *testing.T) {
	valid := schemaOf[form.TestFile](t, "tests", "urn:kernosis:rule-tests:v1", "Kernosis rule tests", func(*jsonschema.Schema) {})
	files, err := ruletest.ReadFiles(detector.Shipped())
	if err != nil || len(files) < 5 {
		t.Fatal(len(files), err)
	}
	for _, f := range files {
		if err := valid(f.Data); err != nil {
			t.Errorf("%s: %v", f.Name, err)
		}
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
