package document

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v4"
)

// scalarMistake returns what is wrong with a scalar, or "" if all readers interpret it the same.
func scalarMistake(n *yaml.Node) string {
	if n.Style&(yaml.SingleQuotedStyle|yaml.DoubleQuotedStyle|yaml.LiteralStyle|yaml.FoldedStyle) != 0 && n.Style&yaml.TaggedStyle == 0 {
		return ""
	}
	// YAML 1.1, which kubectl reads, has more words for booleans, and octal numbers.
	if n.ShortTag() == "!!str" && slices.Contains([]string{"y", "n", "yes", "no", "on", "off"}, strings.ToLower(n.Value)) {
		return n.Value + " is a boolean to some readers and text to others: write true or false, or put it in quotes"
	}
	if n.ShortTag() == "!!int" && !regexp.MustCompile(`^[-+]?(0|[1-9][0-9]*)$`).MatchString(n.Value) {
		return n.Value + " is not the same number to all readers: write it in decimal, or put it in quotes"
	}
	if _, ok := scalar(n); !ok {
		return n.Value + " is not a value in JSON"
	}
	return ""
}

// scalar returns the value of a scalar: nil, bool, int64, float64 or string.
func scalar(n *yaml.Node) (any, bool) {
	switch n.ShortTag() {
	case "!!null":
		return nil, true
	case "!!str", "!!timestamp":
		return n.Value, true
	}
	var v any
	if err := n.Decode(&v); err != nil {
		return nil, false
	}
	switch v := v.(type) {
	case bool, int64, string:
		return v, true
	case int:
		return int64(v), true
	case float64:
		return v, !math.IsNaN(v) && !math.IsInf(v, 0)
	}
	return nil, false
}

// Value returns a node's value: map[string]any, []any, string, int64, float64, bool, or nil.
func Value(n *yaml.Node) any {
	switch n.Kind {
	case yaml.MappingNode:
		m := make(map[string]any, len(n.Content)/2)
		for i := 0; i+1 < len(n.Content); i += 2 {
			m[n.Content[i].Value] = Value(n.Content[i+1])
		}
		return m
	case yaml.SequenceNode:
		list := make([]any, len(n.Content))
		for i, item := range n.Content {
			list[i] = Value(item)
		}
		return list
	case yaml.ScalarNode:
		v, _ := scalar(n)
		return v
	}
	return nil
}

// Find returns the node at a path such as spec.processor.timeoutSeconds or
// spec.adjacencyList[2].to, or the last node on that path that exists.
func (d *Object) Find(path string) *yaml.Node {
	n := d.Root
	for _, part := range strings.FieldsFunc(path, func(r rune) bool { return r == '.' || r == '[' || r == ']' }) {
		next := Child(n, part)
		if n.Kind == yaml.SequenceNode {
			if i, err := strconv.Atoi(part); err == nil && i >= 0 && i < len(n.Content) {
				next = n.Content[i]
			}
		}
		if next == nil {
			return n
		}
		n = next
	}
	return n
}

// FindKey returns the key node at the end of a path if it exists, else the result of Find.
func (d *Object) FindKey(path string) *yaml.Node {
	parent, key := "", path
	if i := strings.LastIndexByte(path, '.'); i >= 0 {
		parent, key = path[:i], path[i+1:]
	}
	if k, _ := entry(d.Find(parent), key); k != nil {
		return k
	}
	return d.Find(path)
}

// EncodeYAML returns a document as YAML text, indented by two.
func EncodeYAML(doc *yaml.Node) ([]byte, error) {
	var out bytes.Buffer
	enc := yaml.NewEncoder(&out)
	enc.SetIndent(2)
	if err := errors.Join(enc.Encode(doc), enc.Close()); err != nil {
		return nil, fmt.Errorf("write YAML: %w", err)
	}
	return out.Bytes(), nil
}
