package detector

import (
	"flag"
	"io/fs"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/invopop/jsonschema"

	"github.com/kernosis/kernosis/collector/event"
	"github.com/kernosis/kernosis/collector/logpattern"
	"github.com/kernosis/kernosis/detector/internal/schemagen"
	"github.com/kernosis/kernosis/detector/rules"
)

func updating() bool { return flag.Lookup("update").Value.String() == "true" }

func schemaConfig() schemagen.Config {
	cfg := schemagen.Config{
		Version: APIVersion, Reserved: "^(Ready|NetworkUnavailable|.*Pressure)$",
		FieldOfLine: `^match\.[A-Za-z_][A-Za-z0-9_]*$`, MaxCEL: maxExpr, MaxPattern: logpattern.MaxExpr,
	}
	for _, f := range event.Fields() {
		if f.Groupable() {
			cfg.Fields = append(cfg.Fields, f.Name)
		}
	}
	return cfg
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
	cfg := schemaConfig()
	cfg.ID, cfg.Title = "urn:kernosis:rules:v1", "Kernosis rules"
	cfg.Change = func(s *jsonschema.Schema) {
		conditions, _ := s.Properties.Get("conditions")
		conditions.PropertyNames = cfg.ConditionName()
		s.Definitions["ruleForm"].AllOf = ruleConstraints()
	}
	made, err := schemagen.Make[ruleFileForm](cfg)
	if err != nil {
		t.Fatal(err)
	}
	schemagen.Current(t, "rules/schema/rules.json", made, updating())
	valid := schemagen.Compile(t, made)
	entries, err := fs.ReadDir(rules.FS, ".")
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	for _, e := range entries {
		if !isRuleFile(e.Name()) {
			continue
		}
		n++
		data, err := fs.ReadFile(rules.FS, e.Name())
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
		if _, err := Load(fstest.MapFS{"r.yaml": {Data: data}}); err != nil {
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
		if _, err := Load(fstest.MapFS{"r.yaml": {Data: data}}); err == nil {
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
	cfg := schemaConfig()
	cfg.ID, cfg.Title = "urn:kernosis:mutes:v1", "Kernosis mutes"
	cfg.Change = func(s *jsonschema.Schema) {
		where, _ := s.Definitions["muteForm"].Properties.Get("where")
		one := uint64(1)
		where.MinProperties = &one
	}
	made, err := schemagen.Make[muteFileForm](cfg)
	if err != nil {
		t.Fatal(err)
	}
	schemagen.Current(t, "rules/schema/mutes.json", made, updating())
	valid := schemagen.Compile(t, made)
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
