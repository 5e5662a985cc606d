package config

import (
	"fmt"
	"strings"
)

// Origins says where the value of each key comes from, as a person would look for
// it: "flag --listen", "env KERNOSIS_LISTEN", "/etc/kernosis.yaml:3". Values below a key of
// the file have theirs too: "logs[1].path". A key that is missing has its default.
type Origins map[string]string

// Default is the origin of a value that nobody has set.
const Default = "default"

// Errorf returns a mistake in a value with where that stands, or what it is part of.
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

// Of returns where a value comes from, or else what it is part of.
func (o Origins) Of(field string) string {
	for field != "" && o[field] == "" {
		field = field[:max(0, strings.LastIndexAny(field, ".["))]
	}
	return o[field]
}
