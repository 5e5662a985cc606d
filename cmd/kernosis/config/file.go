package config

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"reflect"
	"strings"

	"go.yaml.in/yaml/v4"

	"github.com/kernosis/kernosis/collector/document"
)

// readFile decodes a file strictly, with lines in errors. It returns the lines of the file's values.
func readFile(path string, into any) (map[string]int, error) {
	raw, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("configuration: %w", err)
	}
	dec := yaml.NewDecoder(bytes.NewReader(raw))
	dec.KnownFields(true)
	if err := oneDocument(dec, into); err != nil {
		return nil, fileError(path, err, reflect.TypeOf(into).Elem())
	}
	lines, err := document.Lines(raw)
	if err != nil {
		return nil, fmt.Errorf("configuration %s: %w", path, err)
	}
	return lines, nil
}

// oneDocument decodes the only document of a file, if any. Empty documents may follow it.
func oneDocument(dec *yaml.Decoder, into any) error {
	err := dec.Decode(into)
	for err == nil {
		var more yaml.Node
		if err = dec.Decode(&more); err == nil && len(more.Content) > 0 && !document.IsNull(more.Content[0]) {
			return &yaml.LoadErrors{Errors: []*yaml.LoadError{{
				Mark: yaml.Mark{Line: more.Content[0].Line}, Message: "a second YAML document: only one is allowed",
			}}}
		}
	}
	if errors.Is(err, io.EOF) {
		return nil
	}
	return err
}

// fileError returns err with file and line of each mistake, and with a suggestion for each unknown
// key.
func fileError(path string, err error, t reflect.Type) error {
	list, ok := errors.AsType[*yaml.LoadErrors](err)
	if !ok {
		return fmt.Errorf("configuration %s: %w", path, err)
	}
	errs := make([]error, 0, len(list.Errors))
	for _, e := range list.Errors {
		message := e.Message
		if field, ok := strings.CutPrefix(message, "field "); ok {
			if key, of, ok := strings.Cut(field, " not found in type "); ok {
				message = "unknown key " + key
				if of == t.String() {
					message += document.Suggest(key, keys(t))
				}
			}
		}
		errs = append(errs, fmt.Errorf("%s:%d: %s", path, e.Mark.Line, message))
	}
	return errors.Join(errs...)
}
