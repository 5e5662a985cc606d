package chart

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"go.yaml.in/yaml/v4"
)

// The markers around the part that Readme writes.
const (
	valuesBegin = "<!-- values: written by make generate-deploy from the comments of values.yaml -->\n"
	valuesEnd   = "<!-- end of values -->\n"
)

// Readme returns the chart's README with tables of the values in values.yaml. Its comments follow
// helm-docs: "# -- text" above a key describes it, "# @default -- text" replaces the default in the
// table. A map with such a comment is one row; any other map has a row per key. A top-level map
// with a plain comment gets a table of its own; all others share the first one.
func Readme(readme, values []byte) ([]byte, error) {
	head, rest, begins := strings.Cut(string(readme), valuesBegin)
	_, tail, ends := strings.Cut(rest, valuesEnd)
	if !begins || !ends {
		return nil, fmt.Errorf("README.md: want the lines %q and %q around the values", strings.TrimSpace(valuesBegin), strings.TrimSpace(valuesEnd))
	}
	sections, err := sectionsOf(values)
	if err != nil {
		return nil, err
	}
	var out bytes.Buffer
	out.WriteString(head + valuesBegin)
	for _, s := range sections {
		s.write(&out)
	}
	out.WriteString("\n" + valuesEnd + tail)
	return out.Bytes(), nil
}

// section is one table.
type section struct {
	name, text string
	rows       []row
}

type row struct{ key, kind, value, text string }

func (s *section) write(out *bytes.Buffer) {
	fmt.Fprintf(out, "\n### %s\n\n", s.name)
	if s.text != "" {
		fmt.Fprintf(out, "%s\n\n", s.text)
	}
	out.WriteString("| Key | Type | Default | Description |\n|---|---|---|---|\n")
	cell := strings.NewReplacer("|", `\|`).Replace
	for _, r := range s.rows {
		fmt.Fprintf(out, "| %s | %s | %s | %s |\n", r.key, r.kind, cell(r.value), cell(r.text))
	}
}

// reader reads the comments of values.yaml.
type reader struct {
	lines []string
	errs  []error
}

func sectionsOf(values []byte) ([]*section, error) {
	var doc yaml.Node
	if err := yaml.Unmarshal(values, &doc); err != nil {
		return nil, fmt.Errorf("values.yaml: %w", err)
	}
	if len(doc.Content) == 0 || doc.Content[0].Kind != yaml.MappingNode {
		return nil, errors.New("values.yaml: want a map")
	}
	r := &reader{lines: strings.Split(string(values), "\n")}
	general := &section{name: "General"}
	all := []*section{general}
	top := doc.Content[0]
	for i := 0; i+1 < len(top.Content); i += 2 {
		key, value := top.Content[i], top.Content[i+1]
		of := general
		if c := r.above(key); c.text == "" && len(c.plain) > 0 && hasKeys(value) {
			of = &section{name: key.Value, text: strings.Join(c.plain, " ")}
			all = append(all, of)
		}
		r.read(key.Value, key, value, of)
	}
	return all, errors.Join(r.errs...)
}

// read adds the rows of a value to a section.
func (r *reader) read(path string, key, value *yaml.Node, to *section) {
	c := r.above(key)
	if c.text == "" && hasKeys(value) {
		for i := 0; i+1 < len(value.Content); i += 2 {
			r.read(path+"."+value.Content[i].Value, value.Content[i], value.Content[i+1], to)
		}
		return
	}
	if c.text == "" {
		r.errs = append(r.errs, fmt.Errorf("values.yaml:%d: %s has no description: want a comment \"# -- text\" above it", key.Line, path))
		return
	}
	if c.value == "" {
		text, err := jsonOf(value)
		if err != nil {
			r.errs = append(r.errs, fmt.Errorf("values.yaml:%d: %s: %w", key.Line, path, err))
			return
		}
		c.value = "`" + text + "`"
	}
	to.rows = append(to.rows, row{path, kindOf(value), c.value, c.text})
}

func hasKeys(n *yaml.Node) bool { return n.Kind == yaml.MappingNode && len(n.Content) > 0 }

// comment holds the comment lines directly above a key.
type comment struct {
	text  string   // after "# -- "
	value string   // after "# @default -- "
	plain []string // lines before these
}

func (r *reader) above(key *yaml.Node) (c comment) {
	first := key.Line - 1 // lines count from 1
	for first > 0 && strings.HasPrefix(strings.TrimSpace(r.lines[first-1]), "#") {
		first--
	}
	for _, line := range r.lines[first : key.Line-1] {
		line = strings.TrimSpace(strings.TrimPrefix(strings.TrimSpace(line), "#"))
		text, described := strings.CutPrefix(line, "-- ")
		value, isDefault := strings.CutPrefix(line, "@default -- ")
		switch {
		case isDefault:
			c.value = value
		case described:
			c.text = text
		case c.text != "":
			c.text += " " + line
		default:
			c.plain = append(c.plain, line)
		}
	}
	return c
}

// kindOf returns helm-docs' name of a type.
func kindOf(n *yaml.Node) string {
	switch n.ShortTag() {
	case "!!map":
		return "object"
	case "!!seq":
		return "list"
	case "!!null":
		return "nil"
	default: // !!str is string, the others are named as in YAML
		return strings.Replace(strings.TrimPrefix(n.ShortTag(), "!!"), "str", "string", 1)
	}
}

func jsonOf(n *yaml.Node) (string, error) {
	var value any
	if err := n.Decode(&value); err != nil {
		return "", err
	}
	var out bytes.Buffer
	enc := json.NewEncoder(&out)
	enc.SetEscapeHTML(false)
	err := enc.Encode(value)
	return strings.TrimSpace(out.String()), err
}
