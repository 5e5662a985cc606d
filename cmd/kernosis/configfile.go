package main

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/spf13/viper"
	"go.yaml.in/yaml/v4"
)

// readFile checks the file strictly, with lines in its errors, before viper, which
// knows neither, reads it. Logs and reports come from here: viper would fold the
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
	var doc yaml.Node
	if err := yaml.Unmarshal(raw, &doc); err != nil {
		return fmt.Errorf("configuration %s: %w", path, err)
	}
	lines := map[string]int{}
	if len(doc.Content) > 0 {
		noteLines(doc.Content[0], "", lines)
	}
	for _, key := range configKeys() {
		if line, ok := lines[key]; ok && c.origins[key] == "" {
			c.origins[key] = fmt.Sprintf("%s:%d", path, line)
		}
	}
	if err := placeLogs(f.Logs, path, raw); err != nil {
		return err
	}
	c.Logs = f.Logs
	if err := c.placeServices(f.Services, path, raw); err != nil {
		return err
	}
	return c.placeReports(f.Reports, path, raw)
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
