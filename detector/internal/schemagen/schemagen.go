// Package schemagen makes the JSON Schema (draft 2020-12) of our YAML files from the
// types that describe them. Only tests use it; what it makes is committed.
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

// Config is what the types don't say.
type Config struct {
	ID          string // of the schema
	Title       string
	Version     string
	Reserved    string   // pattern of condition types that no rule may have
	Fields      []string // that can name a group
	FieldOfLine string   // pattern of those that a log rule makes
	MaxCEL      uint64
	MaxPattern  uint64
	// Types are schemas of further types.
	Types map[reflect.Type]func() *jsonschema.Schema
	// Comments adds what Go comments say of the fields of types; nil: nothing.
	Comments func(*jsonschema.Reflector) error
	// Change is called with the schema before it is written.
	Change func(*jsonschema.Schema)
}

// Make returns the schema of a type, indented.
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

// Duration is one of Go's, not negative.
const Duration = `^([0-9]+(\.[0-9]*)?(ns|us|µs|ms|s|m|h))+$`

func text(pattern string) *jsonschema.Schema {
	return &jsonschema.Schema{Type: "string", Pattern: pattern}
}

// Enum is one of these texts.
func Enum[T ~string](values ...T) *jsonschema.Schema {
	s := &jsonschema.Schema{Type: "string"}
	for _, v := range values {
		s.Enum = append(s.Enum, string(v))
	}
	return s
}

// Status is True, False or Unknown, with and without quotes.
func Status() *jsonschema.Schema {
	return &jsonschema.Schema{AnyOf: []*jsonschema.Schema{{Type: "boolean"}, Enum("True", "False", "Unknown")}}
}

// ConditionName is the name of a condition type.
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
