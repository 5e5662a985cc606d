package document

import (
	"fmt"
	"slices"
	"strconv"
	"time"

	"go.yaml.in/yaml/v4"
)

// Mapping is a mapping with a fixed set of keys. Its methods return zero values for absent keys.
type Mapping struct {
	Reader *Reader
	Node   *yaml.Node // for mistakes that concern no key
	Path   string     // "rules[2]", empty at the top
	Keys   map[string]*yaml.Node
}

// Object reads a mapping with a fixed set of keys. Other keys are mistakes.
// Keys with a null value count as absent.
func (r *Reader) Object(n *yaml.Node, path string, known ...string) *Mapping {
	m := &Mapping{Reader: r, Node: n, Path: path, Keys: make(map[string]*yaml.Node)}
	for _, p := range r.Map(n, path) {
		switch {
		case !slices.Contains(known, p.Key.Value):
			r.Errorf(p.Key, path, "unknown key %q%s", p.Key.Value, Suggest(p.Key.Value, known))
		case !IsNull(p.Value):
			m.Keys[p.Key.Value] = p.Value
		}
	}
	return m
}

// Field returns the path of a key.
func (m *Mapping) Field(key string) string {
	if m.Path == "" {
		return key
	}
	return m.Path + "." + key
}

// Errorf records a mistake at a key, or at the mapping if the key is absent.
func (m *Mapping) Errorf(key, format string, args ...any) {
	if n := m.Keys[key]; n != nil {
		m.Reader.Errorf(n, m.Field(key), format, args...)
		return
	}
	m.Reader.Errorf(m.Node, m.Path, "%s: "+format, append([]any{key}, args...)...)
}

// ErrorAt records a mistake at a character of a key's scalar, offset from 0.
func (m *Mapping) ErrorAt(key string, offset int, format string, args ...any) {
	line, column := m.Reader.position(m.Keys[key], offset)
	m.Reader.append(&Error{File: m.Reader.Name, Line: line, Column: column, Field: m.Field(key), Msg: fmt.Sprintf(format, args...)})
}

// Need records a mistake for each absent key.
func (m *Mapping) Need(keys ...string) {
	for _, key := range keys {
		if m.Keys[key] == nil {
			m.Reader.Errorf(m.Node, m.Path, "%s is missing", key)
		}
	}
}

// OfVersion reports whether apiVersion is want. Check it first: otherwise each key of another version
// would be a mistake.
func (m *Mapping) OfVersion(want string) bool {
	have := m.Text("apiVersion")
	switch {
	case m.Keys["apiVersion"] == nil:
		m.Reader.Errorf(m.Node, "apiVersion", "missing, want %s", want)
	case have != want:
		m.Errorf("apiVersion", "is %q, want %s", have, want)
	}
	return have == want
}

// Text returns the text of a key.
func (m *Mapping) Text(key string) string { return read(m, key, m.Reader.String) }

// Texts returns the list of texts of a key. Their nodes are the Content of the key's node.
func (m *Mapping) Texts(key string) []string {
	var out []string
	for i, n := range m.List(key) {
		out = append(out, m.Reader.String(n, m.item(key, i)))
	}
	return out
}

// Bool returns true or false.
func (m *Mapping) Bool(key string) bool { return read(m, key, m.Reader.Bool) }

// Int returns an integer between low and high.
func (m *Mapping) Int(key string, low, high int) int {
	return read(m, key, func(n *yaml.Node, path string) int { return m.Reader.Int(n, path, low, high) })
}

// Duration returns a duration from low to high, in Go's format ("90s", "2m30s").
func (m *Mapping) Duration(key string, low, high time.Duration) time.Duration {
	n := m.Keys[key]
	if n == nil {
		return 0
	}
	v, err := time.ParseDuration(n.Value)
	switch {
	case n.Kind != yaml.ScalarNode:
		m.Errorf(key, "want a duration such as 90s, have %s", Kind(n))
	case err != nil:
		m.Errorf(key, "want a duration such as 90s or 2m30s, have %q", n.Value)
	case v < low || v > high:
		m.Errorf(key, "want a duration from %v to %v, have %v", low, high, v)
	default:
		return v
	}
	return low
}

// List returns the items of a key's list.
func (m *Mapping) List(key string) []*yaml.Node {
	n := m.Keys[key]
	if n == nil {
		return nil
	}
	if n.Kind != yaml.SequenceNode {
		m.Errorf(key, "want a list, have %s", Kind(n))
		return nil
	}
	return n.Content
}

// Map returns the pairs of a key's mapping, whose keys are free names.
func (m *Mapping) Map(key string) []Pair { return read(m, key, m.Reader.Map) }

// Object returns a key's mapping with a fixed set of keys; nil if the key is absent.
func (m *Mapping) Object(key string, known ...string) *Mapping {
	return read(m, key, func(n *yaml.Node, path string) *Mapping { return m.Reader.Object(n, path, known...) })
}

// Objects returns the items of a key's list of such mappings.
func (m *Mapping) Objects(key string, known ...string) []*Mapping {
	var out []*Mapping
	for i, n := range m.List(key) {
		out = append(out, m.Reader.Object(n, m.item(key, i), known...))
	}
	return out
}

// item returns the path of an item of a key's list.
func (m *Mapping) item(key string, i int) string { return fmt.Sprintf("%s[%d]", m.Field(key), i) }

func read[T any](m *Mapping, key string, as func(n *yaml.Node, path string) T) (v T) {
	if n := m.Keys[key]; n != nil {
		return as(n, m.Field(key))
	}
	return v
}

// Pair is one key of a mapping with its value.
type Pair struct {
	Key   *yaml.Node
	Value *yaml.Node
}

// Map reads a mapping of arbitrary names, in file order. Keys must be strings and occur once.
func (r *Reader) Map(n *yaml.Node, field string) []Pair {
	if n.Kind != yaml.MappingNode {
		r.Errorf(n, field, "want a mapping (key: value), have %s", Kind(n))
		return nil
	}
	var pairs []Pair
	seen := make(map[string]int)
	for i := 0; i+1 < len(n.Content); i += 2 {
		k, v := n.Content[i], n.Content[i+1]
		if k.Kind != yaml.ScalarNode {
			r.Errorf(k, field, "want a name as key, have %s", Kind(k))
			continue
		}
		if line, dup := seen[k.Value]; dup {
			r.Errorf(k, field, "duplicate key %q, first on line %d", k.Value, line)
			continue
		}
		seen[k.Value] = k.Line
		pairs = append(pairs, Pair{k, v})
	}
	return pairs
}

// String returns a scalar's text. It refuses numbers and booleans: unquoted, they are rarely intended.
func (r *Reader) String(n *yaml.Node, field string) string {
	if n.Kind != yaml.ScalarNode || n.ShortTag() != "!!str" {
		r.Errorf(n, field, "want text, have %s", Kind(n))
		return ""
	}
	return n.Value
}

// Bool returns true or false.
func (r *Reader) Bool(n *yaml.Node, field string) bool {
	if n.Kind != yaml.ScalarNode || n.ShortTag() != "!!bool" {
		r.Errorf(n, field, "want true or false, have %s", Kind(n))
		return false
	}
	return n.Value == "true" || n.Value == "True" || n.Value == "TRUE"
}

// Int returns an integer between low and high.
func (r *Reader) Int(n *yaml.Node, field string, low, high int) int {
	if n.Kind != yaml.ScalarNode || n.ShortTag() != "!!int" {
		r.Errorf(n, field, "want a whole number, have %s", Kind(n))
		return low
	}
	v, err := strconv.Atoi(n.Value)
	if err != nil || v < low || v > high {
		r.Errorf(n, field, "want a number from %d to %d, have %s", low, high, n.Value)
		return low
	}
	return v
}
