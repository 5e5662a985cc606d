package strictyaml

import (
	"slices"
	"strconv"
	"time"

	"go.yaml.in/yaml/v4"

	"github.com/kernosis/kernosis/detector/mistake"
)

// Pair is one key of a mapping with its value.
type Pair struct {
	Key   *yaml.Node
	Value *yaml.Node
}

// Map reads a mapping whose keys are free names, in file order. A key that is
// not a string or stands twice is a mistake.
func (f *File) Map(n *yaml.Node, field string) []Pair {
	if n.Kind != yaml.MappingNode {
		f.Errorf(n, field, "want a mapping (key: value), have %s", kindName(n))
		return nil
	}
	var pairs []Pair
	seen := make(map[string]int)
	for i := 0; i+1 < len(n.Content); i += 2 {
		k, v := n.Content[i], n.Content[i+1]
		if k.Kind != yaml.ScalarNode {
			f.Errorf(k, field, "want a name as key, have %s", kindName(k))
			continue
		}
		if line, dup := seen[k.Value]; dup {
			f.Errorf(k, field, "key %q stands twice, first on line %d", k.Value, line)
			continue
		}
		seen[k.Value] = k.Line
		pairs = append(pairs, Pair{k, v})
	}
	return pairs
}

// Object reads a mapping with a fixed set of keys. Other keys are mistakes.
// Keys with a null value count as absent.
func (f *File) Object(n *yaml.Node, field string, known ...string) map[string]*yaml.Node {
	out := make(map[string]*yaml.Node)
	for _, p := range f.Map(n, field) {
		if !slices.Contains(known, p.Key.Value) {
			f.Errorf(p.Key, field, "unknown key %q%s", p.Key.Value, mistake.Suggest(p.Key.Value, known))
			continue
		}
		if p.Value.Kind == yaml.ScalarNode && p.Value.ShortTag() == "!!null" {
			continue
		}
		out[p.Key.Value] = p.Value
	}
	return out
}

// List returns the items of a sequence.
func (f *File) List(n *yaml.Node, field string) []*yaml.Node {
	if n.Kind != yaml.SequenceNode {
		f.Errorf(n, field, "want a list, have %s", kindName(n))
		return nil
	}
	return n.Content
}

// String returns a scalar's text. Numbers and booleans are refused: an
// unquoted yes or 1e3 is seldom what was meant.
func (f *File) String(n *yaml.Node, field string) string {
	if n.Kind != yaml.ScalarNode || n.ShortTag() != "!!str" {
		f.Errorf(n, field, "want text, have %s", kindName(n))
		return ""
	}
	return n.Value
}

// Strings returns a list of texts. Their nodes are n.Content.
func (f *File) Strings(n *yaml.Node, field string) []string {
	var out []string
	for i, item := range f.List(n, field) {
		out = append(out, f.String(item, field+"["+strconv.Itoa(i)+"]"))
	}
	return out
}

// Bool returns true or false.
func (f *File) Bool(n *yaml.Node, field string) bool {
	if n.Kind != yaml.ScalarNode || n.ShortTag() != "!!bool" {
		f.Errorf(n, field, "want true or false, have %s", kindName(n))
		return false
	}
	return n.Value == "true" || n.Value == "True" || n.Value == "TRUE"
}

// Int returns an integer between low and high.
func (f *File) Int(n *yaml.Node, field string, low, high int) int {
	if n.Kind != yaml.ScalarNode || n.ShortTag() != "!!int" {
		f.Errorf(n, field, "want a whole number, have %s", kindName(n))
		return low
	}
	v, err := strconv.Atoi(n.Value)
	if err != nil || v < low || v > high {
		f.Errorf(n, field, "want a number from %d to %d, have %s", low, high, n.Value)
		return low
	}
	return v
}

// Duration returns a duration of at least low and at most high, written as in
// Go ("90s", "2m30s").
func (f *File) Duration(n *yaml.Node, field string, low, high time.Duration) time.Duration {
	if n.Kind != yaml.ScalarNode {
		f.Errorf(n, field, "want a duration such as 90s, have %s", kindName(n))
		return low
	}
	v, err := time.ParseDuration(n.Value)
	if err != nil {
		f.Errorf(n, field, "want a duration such as 90s or 2m30s, have %q", n.Value)
		return low
	}
	if v < low || v > high {
		f.Errorf(n, field, "want a duration from %v to %v, have %v", low, high, v)
		return low
	}
	return v
}

func kindName(n *yaml.Node) string {
	switch n.Kind {
	case yaml.MappingNode:
		return "a mapping"
	case yaml.SequenceNode:
		return "a list"
	case yaml.ScalarNode:
		switch n.ShortTag() {
		case "!!str":
			return "text"
		case "!!int", "!!float":
			return "the number " + n.Value
		case "!!bool":
			return "the boolean " + n.Value
		case "!!null":
			return "nothing"
		case "!!timestamp":
			return "a date"
		}
		return "a value of type " + n.ShortTag()
	}
	return "something else"
}
