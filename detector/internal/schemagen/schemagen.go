// Package schemagen generates the JSON Schema (draft 2020-12) of our YAML files from the
// types that describe them. Only tests use it; the schemas are committed.
package schemagen

import (
	"encoding/json"
	"net/netip"
	"reflect"

	"github.com/invopop/jsonschema"

	"github.com/kernosis/kernosis/collector/event"
	"github.com/kernosis/kernosis/detector/internal/form"
	"github.com/kernosis/kernosis/detector/problem"
)

// Config holds the parts of a schema that the types don't define.
type Config struct {
	ID          string // of the schema
	Title       string
	Version     string
	Reserved    string   // pattern of condition types that no rule may have
	Fields      []string // fields that groupBy accepts
	FieldOfLine string   // pattern of the fields that a log rule defines
	MaxCEL      uint64
	MaxPattern  uint64
	// Types are schemas of further types.
	Types map[reflect.Type]func() *jsonschema.Schema
	// Comments adds the Go comments of types and fields as descriptions; may be nil.
	Comments func(*jsonschema.Reflector) error
	// Change is called with the schema before it is written.
	Change func(*jsonschema.Schema)
}

// Make returns the indented schema of a type.
func Make[T any](cfg Config) ([]byte, error) {
	r := &jsonschema.Reflector{
		RequiredFromJSONSchemaTags: true, ExpandedStruct: true, Anonymous: true,
		Mapper: cfg.schemaOf,
	}
	if cfg.Comments != nil {
		if err := cfg.Comments(r); err != nil {
			return nil, err
		}
	}
	var zero T
	s := r.Reflect(&zero)
	s.ID, s.Title = jsonschema.ID(cfg.ID), cfg.Title
	if cfg.Change != nil {
		cfg.Change(s)
	}
	b, err := json.MarshalIndent(s, "", "  ")
	return append(b, '\n'), err
}

// Duration matches a Go duration that is not negative.
const Duration = `^([0-9]+(\.[0-9]*)?(ns|us|µs|ms|s|m|h))+$`

func text(pattern string) *jsonschema.Schema {
	return &jsonschema.Schema{Type: "string", Pattern: pattern}
}

// Enum returns the schema of a text that must be one of values.
func Enum[T ~string](values ...T) *jsonschema.Schema {
	s := &jsonschema.Schema{Type: "string"}
	for _, v := range values {
		s.Enum = append(s.Enum, string(v))
	}
	return s
}

// Status returns the schema of True, False or Unknown, with or without quotes.
func Status() *jsonschema.Schema {
	return &jsonschema.Schema{AnyOf: []*jsonschema.Schema{{Type: "boolean"}, Enum("True", "False", "Unknown")}}
}

// ConditionName returns the schema of a condition type's name.
func (c *Config) ConditionName() *jsonschema.Schema {
	s := text(form.PascalPattern)
	s.Not = &jsonschema.Schema{Pattern: c.Reserved}
	return s
}

func (c *Config) schemaOf(t reflect.Type) *jsonschema.Schema {
	if f := c.Types[t]; f != nil {
		return f()
	}
	switch t {
	case reflect.TypeFor[form.Version]():
		return Enum(c.Version)
	case reflect.TypeFor[form.Name]():
		return text(form.NamePattern)
	case reflect.TypeFor[form.Reason]():
		return text(form.PascalPattern)
	case reflect.TypeFor[form.Condition]():
		return c.ConditionName()
	case reflect.TypeFor[form.Kind](), reflect.TypeFor[event.Kind]():
		return Enum(event.Kinds()...)
	case reflect.TypeFor[form.Severity]():
		return Enum(problem.Severities()...)
	case reflect.TypeFor[form.State]():
		return Enum("pending", "firing", "resolved")
	case reflect.TypeFor[form.Field]():
		return &jsonschema.Schema{AnyOf: []*jsonschema.Schema{Enum(c.Fields...), text(c.FieldOfLine)}}
	case reflect.TypeFor[form.Duration]():
		return text(Duration)
	case reflect.TypeFor[event.Duration]():
		return text(`^-?` + Duration[1:])
	case reflect.TypeFor[form.CEL]():
		s := text("")
		s.MaxLength = &c.MaxCEL
		return s
	case reflect.TypeFor[form.Pattern]():
		s := text("")
		s.MaxLength, s.MinLength = &c.MaxPattern, new(uint64)
		*s.MinLength = 1
		return s
	case reflect.TypeFor[form.Value]():
		return &jsonschema.Schema{AnyOf: []*jsonschema.Schema{{Type: "string"}, {Type: "integer"}, {Type: "boolean"}}}
	case reflect.TypeFor[form.Status]():
		return Status()
	case reflect.TypeFor[netip.AddrPort]():
		return text("")
	}
	return nil
}
