package bundle

import (
	"bytes"
	"encoding/json"
	"errors"

	"go.yaml.in/yaml/v4"

	"github.com/kernosis/kernosis/collector/hostfs"
)

// redactJSON redacts secrets in a JSON value, or in several values, one per line. Lines that can't be
// parsed are left out and counted as skipped.
func redactJSON(text []byte) (clean []byte, skipped int, err error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	var whole any
	if decode(text, &whole) == nil {
		e.SetIndent("", "  ")
		err := e.Encode(redactValue(whole))
		return b.Bytes(), 0, err
	}
	for line := range bytes.Lines(text) {
		if len(bytes.TrimSpace(line)) == 0 {
			continue
		}
		var v any
		if decode(line, &v) != nil {
			skipped++
			continue
		}
		if err := e.Encode(redactValue(v)); err != nil {
			return nil, skipped, err
		}
	}
	if b.Len() == 0 && skipped > 0 {
		return nil, skipped, errors.New("not JSON")
	}
	return b.Bytes(), skipped, nil
}

// decode reads the only value of a text. Numbers keep their text.
func decode(text []byte, into *any) error {
	d := json.NewDecoder(bytes.NewReader(text))
	d.UseNumber()
	if err := d.Decode(into); err != nil {
		return err
	}
	if d.More() {
		return errors.New("more than one value")
	}
	return nil
}

// redactValue redacts secrets in texts, and values whose name says that they are secret.
func redactValue(v any) any {
	switch v := v.(type) {
	case string:
		return hostfs.RedactText(v)
	case []any:
		redactArguments(v)
	case map[string]any:
		of, _ := v["name"].(string)
		for key, value := range v {
			name := nameOf(key, of)
			if text, ok := value.(string); ok {
				v[key] = hostfs.RedactValue(name, text)
				continue
			}
			if v[key] = redactValue(value); hostfs.RedactValue(name, "x") != "x" {
				v[key] = hostfs.Redacted
			}
		}
	}
	return v
}

// nameOf returns the name of a value in an object: its key, or the object's name if it has the form
// of a header: {name: X-Token, value: …}.
func nameOf(key, object string) string {
	if key == "value" || key == "values" {
		return object
	}
	return key
}

// redactArguments redacts a list. A list of texts only is treated as arguments of a command.
func redactArguments(list []any) {
	args := make([]string, len(list))
	for i, v := range list {
		text, ok := v.(string)
		if !ok {
			for i := range list {
				list[i] = redactValue(list[i])
			}
			return
		}
		args[i] = text
	}
	for i, clean := range hostfs.Redact(args) {
		list[i] = hostfs.RedactText(clean)
	}
}

// RedactYAML redacts secrets in a YAML value. It keeps style and comments.
func RedactYAML(n *yaml.Node) error {
	var v any
	if err := n.Decode(&v); err != nil {
		return err
	}
	replaceTexts(n, redactValue(v))
	return nil
}

// replaceTexts sets the texts of a node to those of v, which is its redacted value.
func replaceTexts(n *yaml.Node, v any) {
	switch v := v.(type) {
	case string:
		if n.Value != v {
			n.SetString(v)
		}
	case []any:
		for i := range v {
			replaceTexts(n.Content[i], v[i])
		}
	case map[string]any:
		for i := 0; i+1 < len(n.Content); i += 2 {
			replaceTexts(n.Content[i+1], v[n.Content[i].Value])
		}
	}
}
