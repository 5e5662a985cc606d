package main

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/spf13/viper"
	"go.yaml.in/yaml/v4"

	"github.com/kernosis/kernosis/collector/document"
)

// readFile checks the file strictly, with lines in its errors, before viper, which
// knows neither, reads it. Logs, services and reports come from here: viper would fold the
// case of their keys.
func (c *config) readFile(v *viper.Viper, path string) error {
	raw, err := os.ReadFile(path)
	if err != nil {
		return fmt.Errorf("configuration: %w", err)
	}
	dec := yaml.NewDecoder(bytes.NewReader(raw))
	dec.KnownFields(true)
	var f config
	if err := dec.Decode(&f); err != nil {
		return fileError(path, err)
	}
	v.SetConfigType("yaml")
	if err := v.ReadConfig(bytes.NewReader(raw)); err != nil {
		return fmt.Errorf("configuration %s: %w", path, err)
	}
	lines, err := document.Lines(raw)
	if err != nil {
		return fmt.Errorf("configuration %s: %w", path, err)
	}
	for at, line := range lines {
		if c.origins[at] == "" {
			c.origins[at] = fmt.Sprintf("%s:%d", path, line)
		}
	}
	c.Logs, c.Services, c.Reports = f.Logs, f.Services, f.Reports
	return nil
}

// fileError tells each mistake with file and line.
func fileError(path string, err error) error {
	list, ok := errors.AsType[*yaml.LoadErrors](err)
	if !ok {
		return fmt.Errorf("configuration %s: %w", path, err)
	}
	errs := make([]error, 0, len(list.Errors))
	for _, e := range list.Errors {
		message := e.Message
		if field, ok := strings.CutPrefix(message, "field "); ok {
			if key, _, ok := strings.Cut(field, " not found in type"); ok {
				message = "unknown key " + key
			}
		}
		errs = append(errs, fmt.Errorf("%s:%d: %s", path, e.Mark.Line, message))
	}
	return errors.Join(errs...)
}
