package document

import (
	"strconv"
	"time"

	"go.yaml.in/yaml/v4"
)

// Pair is one key of a mapping with its value.
type Pair struct {
	Key   *yaml.Node
	Value *yaml.Node
}

// Map reads a mapping whose keys are arbitrary names, in file order. A key that is not a string or
// occurs twice is a mistake.
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

// List returns the items of a sequence.
func (r *Reader) List(n *yaml.Node, field string) []*yaml.Node {
	if n.Kind != yaml.SequenceNode {
		r.Errorf(n, field, "want a list, have %s", Kind(n))
		return nil
	}
	return n.Content
}

// String returns a scalar's text. Numbers and booleans are refused: an unquoted yes or 1e3 is
// rarely intended.
func (r *Reader) String(n *yaml.Node, field string) string {
	if n.Kind != yaml.ScalarNode || n.ShortTag() != "!!str" {
		r.Errorf(n, field, "want text, have %s", Kind(n))
		return ""
	}
	return n.Value
}

// Strings returns a list of texts. Their nodes are n.Content.
func (r *Reader) Strings(n *yaml.Node, field string) []string {
	var out []string
	for i, item := range r.List(n, field) {
		out = append(out, r.String(item, field+"["+strconv.Itoa(i)+"]"))
	}
	return out
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

// Duration returns a duration from low to high, in Go's format ("90s", "2m30s").
func (r *Reader) Duration(n *yaml.Node, field string, low, high time.Duration) time.Duration {
	if n.Kind != yaml.ScalarNode {
		r.Errorf(n, field, "want a duration such as 90s, have %s", Kind(n))
		return low
	}
	v, err := time.ParseDuration(n.Value)
	if err != nil {
		r.Errorf(n, field, "want a duration such as 90s or 2m30s, have %q", n.Value)
		return low
	}
	if v < low || v > high {
		r.Errorf(n, field, "want a duration from %v to %v, have %v", low, high, v)
		return low
	}
	return v
}
