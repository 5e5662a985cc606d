package manifest

import (
	"encoding/base64"
	"fmt"
	"maps"
	"slices"
	"strings"
	"unicode/utf8"

	"go.yaml.in/yaml/v4"

	"github.com/kernosis/kernosis/collector/document"
)

// walker validates the values of a document against a schema.
type walker struct {
	doc    *document.Object
	errors document.Errors
}

func (w *walker) wrong(n *yaml.Node, field, format string, args ...any) {
	w.errors = append(w.errors, w.doc.At(n, field, format, args...))
}

// value returns a node's value, with the schema's defaults. Mistakes are added to w.errors.
func (w *walker) value(n *yaml.Node, s *schema, field string) any {
	v := document.Value(n)
	switch s.Type {
	case "object":
		if n.Kind != yaml.MappingNode {
			break
		}
		return w.object(n, s, field)
	case "array":
		if n.Kind != yaml.SequenceNode {
			break
		}
		return w.list(n, s, field)
	case "string":
		if text, ok := v.(string); ok {
			w.text(n, s, field, text)
			return text
		}
	case "boolean":
		if b, ok := v.(bool); ok {
			return b
		}
	case "integer":
		if i, ok := v.(int64); ok {
			w.number(n, s, field, i)
			return i
		}
	}
	w.wrong(n, field, "want %s, have %s", article(s.Type), document.Kind(n))
	return nil
}

func article(kind string) string {
	switch kind {
	case "object":
		return "an object"
	case "array":
		return "a list"
	case "boolean":
		return "true or false"
	case "integer":
		return "an integer"
	}
	return "text"
}

func (w *walker) object(n *yaml.Node, s *schema, field string) any {
	m := make(map[string]any, len(n.Content)/2)
	for i := 0; i+1 < len(n.Content); i += 2 {
		key, value := n.Content[i], n.Content[i+1]
		within := s.within(key.Value)
		if within == nil {
			w.wrong(key, field+key.Value, "unknown key; want one of %s", strings.Join(slices.Sorted(maps.Keys(s.Properties)), ", "))
			continue
		}
		if document.IsNull(value) {
			continue // the API server drops it
		}
		m[key.Value] = w.value(value, within, field+key.Value+".")
	}
	for name, within := range s.Properties {
		if _, there := m[name]; !there && within.Default != nil {
			m[name] = withDefaults(within.Default, within)
		}
	}
	for _, name := range s.Required {
		if _, there := m[name]; !there {
			w.wrong(n, field+name, "is required")
		}
	}
	w.bounds(n, field, len(m), s.MinProperties, s.MaxProperties, "keys")
	return m
}

// withDefaults returns a default value, with the defaults of its own fields.
func withDefaults(v any, s *schema) any {
	object, ok := v.(map[string]any)
	if !ok {
		if f, ok := v.(float64); ok && s.Type == "integer" {
			return int64(f)
		}
		return v
	}
	object = maps.Clone(object)
	for name, within := range s.Properties {
		if _, there := object[name]; !there && within.Default != nil {
			object[name] = withDefaults(within.Default, within)
		}
	}
	return object
}

func (w *walker) list(n *yaml.Node, s *schema, field string) any {
	list := make([]any, len(n.Content))
	field = strings.TrimSuffix(field, ".")
	w.bounds(n, field, len(list), s.MinItems, s.MaxItems, "items")
	seen := make(map[string]bool)
	for i, item := range n.Content {
		at := fmt.Sprintf("%s[%d].", field, i)
		list[i] = w.value(item, s.Items, at)
		var key string
		switch object, _ := list[i].(map[string]any); s.ListType {
		case "set":
			key = fmt.Sprint(list[i])
		case "map":
			keys := make([]string, len(s.ListMapKeys))
			for i, k := range s.ListMapKeys {
				keys[i] = fmt.Sprintf("%s %v", k, object[k])
			}
			key = strings.Join(keys, " ")
		default:
			continue
		}
		if seen[key] {
			w.wrong(item, at, "%s is listed twice", key)
		}
		seen[key] = true
	}
	return list
}

func (w *walker) text(n *yaml.Node, s *schema, field, text string) {
	w.bounds(n, field, utf8.RuneCountInString(text), s.MinLength, s.MaxLength, "characters")
	if s.pattern != nil && !s.pattern.MatchString(text) {
		w.wrong(n, field, "%q does not match %s", text, s.Pattern)
	}
	if s.Format == "byte" {
		if _, err := base64.StdEncoding.DecodeString(text); err != nil {
			w.wrong(n, field, "want base64: %s", err)
		}
	}
	if len(s.Enum) > 0 && !slices.Contains(s.Enum, any(text)) {
		w.wrong(n, field, "%q: want one of %s", text, strings.ReplaceAll(strings.Trim(fmt.Sprint(s.Enum), "[]"), " ", ", "))
	}
}

func (w *walker) number(n *yaml.Node, s *schema, field string, i int64) {
	if s.Minimum != nil && float64(i) < *s.Minimum {
		w.wrong(n, field, "%d is less than %v", i, *s.Minimum)
	}
	if s.Maximum != nil && float64(i) > *s.Maximum {
		w.wrong(n, field, "%d is more than %v", i, *s.Maximum)
	}
}

func (w *walker) bounds(n *yaml.Node, field string, have int, least, most *int, what string) {
	if least != nil && have < *least {
		w.wrong(n, field, "%d %s, want at least %d", have, what, *least)
	}
	if most != nil && have > *most {
		w.wrong(n, field, "%d %s, want at most %d", have, what, *most)
	}
}

// rules checks a value, with defaults filled in, against the rules of its schema and subschemas.
func (w *walker) rules(v any, s *schema, field string) {
	for _, r := range s.Rules {
		if err := r.check(v); err != nil {
			at := strings.TrimPrefix(strings.TrimSuffix(field, ".")+r.FieldPath, ".")
			w.wrong(w.doc.FindKey(at), at, "%s", err)
		}
	}
	switch v := v.(type) {
	case map[string]any:
		for _, name := range slices.Sorted(maps.Keys(v)) {
			if within := s.within(name); within != nil {
				w.rules(v[name], within, field+name+".")
			}
		}
	case []any:
		for i, item := range v {
			w.rules(item, s.Items, fmt.Sprintf("%s[%d].", strings.TrimSuffix(field, "."), i))
		}
	}
}
