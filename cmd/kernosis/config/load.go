// Package config reads the settings of a command into a struct:
//
//	flags ───────┐
//	environment ─┴─ viper ─┬─► a struct whose fields name their keys
//	file of YAML ──────────┘
//
// The first that sets a key wins. Unknown keys of a file are errors, and each error names
// the flag, the variable, or file and line.
package config

import (
	"fmt"
	"reflect"
	"strings"

	"github.com/spf13/pflag"
	"github.com/spf13/viper"
)

// fileFlag is the flag that names the configuration file.
const fileFlag = "config"

// Load sets the struct that into points to, and returns the origin of each value, and warnings. The
// tags mapstructure and yaml of a field have its key, which is also the name of its flag. A field
// with the mapstructure tag "-" can only be set in the YAML file; a variable with its name is an
// error. The file is decoded without viper, which folds the case of keys, and for which 1.10 is the
// text 1.1.
func Load(fs *pflag.FlagSet, environ []string, into any) (Origins, []string, error) {
	v := viper.NewWithOptions(viper.KeyDelimiter("::")) // a dot is part of a flag's name
	if err := v.BindPFlags(fs); err != nil {
		return nil, nil, err
	}
	origins := Origins{}
	target := reflect.ValueOf(into).Elem()
	warnings, err := bindEnv(v, fs, environ, target.Type(), origins)
	if err != nil {
		return nil, nil, err
	}
	if err := v.Unmarshal(into); err != nil {
		return nil, nil, fmt.Errorf("configuration: %w", err)
	}
	if path := v.GetString(fileFlag); path != "" {
		file := reflect.New(target.Type())
		file.Elem().Set(target) // a key that is missing or null has no effect
		lines, err := readFile(path, file.Interface())
		if err != nil {
			return nil, nil, err
		}
		take(target, file.Elem(), func(key string) bool {
			f := fs.Lookup(key)
			return origins[key] == "" && (f == nil || !f.Changed)
		})
		for at, line := range lines {
			if origins[at] == "" {
				origins[at] = fmt.Sprintf("%s:%d", path, line)
			}
		}
	}
	fs.VisitAll(func(f *pflag.Flag) {
		if f.Changed {
			origins[f.Name] = "flag --" + f.Name
		}
	})
	return origins, warnings, nil
}

// take sets the fields of a struct to those of another, if of reports that for the field's key. A nil
// slice is a key without a value, which has no effect.
func take(target, from reflect.Value, of func(key string) bool) {
	for i := range target.NumField() {
		switch name, inline, _ := strings.Cut(target.Type().Field(i).Tag.Get("yaml"), ","); {
		case inline == "inline":
			take(target.Field(i), from.Field(i), of)
		case name != "" && of(name) && (from.Field(i).Kind() != reflect.Slice || !from.Field(i).IsNil()):
			target.Field(i).Set(from.Field(i))
		}
	}
}

// keys returns the keys that a file may have, in the order of the struct's fields.
func keys(t reflect.Type) (keysOf []string) {
	for f := range t.Fields() {
		switch name, inline, _ := strings.Cut(f.Tag.Get("yaml"), ","); {
		case inline == "inline":
			keysOf = append(keysOf, keys(f.Type)...)
		case name != "":
			keysOf = append(keysOf, name)
		}
	}
	return keysOf
}

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
