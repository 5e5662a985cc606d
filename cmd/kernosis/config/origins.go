package config

import (
	"fmt"
	"strings"
)

// Origins has the origin of each key's value, in a form for people: "flag --listen",
// "env KERNOSIS_LISTEN", "/etc/kernosis.yaml:3". Nested values of the file have origins too:
// "logs[1].path". A missing key has its default value.
type Origins map[string]string

// Default is the origin of a value that is not set.
const Default = "default"

// Errorf returns an error about a value, with the origin of the value or of what it is part of.
func (o Origins) Errorf(field, format string, args ...any) error {
	err := fmt.Errorf(format, args...)
	from := o.Of(field)
	switch kind, where, _ := strings.Cut(from, " "); {
	case where != "" && (kind == "flag" || kind == "env"):
		return fmt.Errorf("%s: %w", where, err)
	case from != "" && from != Default:
		return fmt.Errorf("%s: %s: %w", from, field, err)
	}
	return fmt.Errorf("%s: %w", field, err)
}

// Of returns the origin of a value, or else of what it is part of.
func (o Origins) Of(field string) string {
	for field != "" && o[field] == "" {
		field = field[:max(0, strings.LastIndexAny(field, ".["))]
	}
	return o[field]
}
