// Package form is what the types that describe our YAML files are made of. The
// readers take the keys they know from these types, and the JSON Schema of the files
// is generated from them, so that an editor and a reader can't differ. Values of
// these types are never made.
//
// Tags of a field: json is the key, jsonschema_description its meaning, jsonschema
// the constraints in the words of github.com/invopop/jsonschema.
package form

import (
	"reflect"
	"strings"
)

// Kinds of text, each with constraints of its own in the schema.
type (
	Name      string // lower case with dashes
	Reason    string // PascalCase
	Condition string // PascalCase, and none of Kubernetes' own
	Kind      string // an event kind
	Severity  string
	State     string // of a problem
	Field     string // one that can name a group
	Duration  string // as in Go
	CEL       string // an expression
	Pattern   string // RE2
	Version   string // of the file's form
)

// What texts look like, for readers and the schema.
const (
	NamePattern   = `^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$` // a DNS label: it becomes a part of object names
	PascalPattern = `^[A-Z][A-Za-z0-9]{0,127}$`            // the API allows 128 characters in an Event's reason
)

// Value is text, a number or a boolean.
type Value string

// Status is a condition's status, also without quotes.
type Status string

// Keys returns the keys of a form.
func Keys[T any]() []string {
	t := reflect.TypeFor[T]()
	keys := make([]string, t.NumField())
	for i := range keys {
		keys[i], _, _ = strings.Cut(t.Field(i).Tag.Get("json"), ",")
	}
	return keys
}
