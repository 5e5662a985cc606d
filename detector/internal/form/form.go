// Package form holds the types that describe our YAML files. The readers take the known keys from
// them, and a test generates the JSON Schema of the files, so that editors and readers agree. The
// types are never instantiated.
//
// Tags of a field: json is the key, jsonschema_description its meaning, jsonschema
// the constraints in the syntax of github.com/invopop/jsonschema.
package form

import (
	"reflect"
	"strings"
)

// Kinds of text, each with constraints of its own in the schema.
type (
	Name      string // lower case with dashes
	Reason    string // PascalCase
	Condition string // PascalCase, and not one of Kubernetes' own
	Kind      string // an event kind
	Severity  string
	State     string // of a problem
	Field     string // an event field that groupBy accepts
	Duration  string // as in Go
	CEL       string // an expression
	Pattern   string // RE2
	Version   string // of the file format
)

// Patterns of texts, for the readers and the schema.
const (
	NamePattern   = `^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$` // a DNS label, because it becomes part of object names
	PascalPattern = `^[A-Z][A-Za-z0-9]{0,127}$`            // the API allows 128 characters in an Event's reason
)

// Value is text, a number or a boolean.
type Value string

// Status is a condition's status, with or without quotes.
type Status string

// Keys returns the keys of a form type.
func Keys[T any]() []string {
	t := reflect.TypeFor[T]()
	keys := make([]string, t.NumField())
	for i := range keys {
		keys[i], _, _ = strings.Cut(t.Field(i).Tag.Get("json"), ",")
	}
	return keys
}
