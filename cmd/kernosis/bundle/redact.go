package bundle

import (
	"bytes"
	"encoding/json"
	"errors"

	"go.yaml.in/yaml/v4"

	"github.com/kernosis/kernosis/collector/hostfs"
)

// redactJSON takes what looks like a secret out of JSON values: of several, one a line, those that
// can't be read are left out.
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
		return nil, skipped, errors.New("it is no JSON")
	}
	return b.Bytes(), skipped, nil
}

// decode reads the only value of a text; numbers stay as they are.
func decode(text []byte, into *any) error {
	d := json.NewDecoder(bytes.NewReader(text))
	d.UseNumber()
	if err := d.Decode(into); err != nil {
		return err
	}
	if d.More() {
		return errors.New("there is more than one value")
	}
	return nil
}

// redactValue takes secrets out of texts, and out of values whose name says that they are one.
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

// nameOf is the name of a value in an object: its key, or the name that the object has, as a
// header does: {name: X-Token, value: …}.
func nameOf(key, object string) string {
	if key == "value" || key == "values" {
		return object
	}
	return key
}

// redactArguments takes a list for arguments of a command where it has only texts.
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

// RedactYAML takes what looks like a secret out of a document of YAML.
func RedactYAML(n *yaml.Node) {
	switch n.Kind {
	case yaml.ScalarNode:
		n.Value = hostfs.RedactText(n.Value)
	case yaml.MappingNode:
		redactMapping(n)
	case yaml.SequenceNode:
		redactSequence(n)
	default:
		for _, c := range n.Content {
			RedactYAML(c)
		}
	}
}

func redactMapping(n *yaml.Node) {
	of := ""
	for i := 0; i+1 < len(n.Content); i += 2 {
		if n.Content[i].Value == "name" {
			of = n.Content[i+1].Value
		}
	}
	for i := 0; i+1 < len(n.Content); i += 2 {
		name, value := nameOf(n.Content[i].Value, of), n.Content[i+1]
		switch {
		case value.Kind == yaml.ScalarNode:
			value.Value = hostfs.RedactValue(name, value.Value)
		case hostfs.RedactValue(name, "x") != "x":
			n.Content[i+1] = &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!str", Value: hostfs.Redacted}
		default:
			RedactYAML(value)
		}
	}
}

// redactSequence is redactArguments for YAML.
func redactSequence(n *yaml.Node) {
	args := make([]string, len(n.Content))
	for i, c := range n.Content {
		if c.Kind != yaml.ScalarNode {
			for _, c := range n.Content {
				RedactYAML(c)
			}
			return
		}
		args[i] = c.Value
	}
	for i, clean := range hostfs.Redact(args) {
		n.Content[i].Value = hostfs.RedactText(clean)
	}
}
