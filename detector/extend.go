package detector

import (
	"maps"
	"slices"

	"go.yaml.in/yaml/v4"

	"github.com/kernosis/kernosis/collector/document"
)

// extend copies the keys that a rule does not set from the rule that it extends. That rule must be
// in a lower layer, so that there are no cycles. extend returns false if there is no such rule.
func (l *loader) extend(r *loadedRule) bool {
	at := r.Keys["extends"]
	if at == nil {
		return true
	}
	for i := 0; i+1 < len(r.Node.Content); i += 2 {
		if key, value := r.Node.Content[i], r.Node.Content[i+1]; document.IsNull(value) {
			r.Reader.Errorf(value, r.Field(key.Value), "a key of the extended rule can't be removed: write the whole rule, without extends")
		}
	}
	name := r.Text("extends")
	base := l.below(name, r.Layer)
	switch {
	case name == "":
		return false
	case base == nil:
		below := slices.DeleteFunc(slices.Sorted(maps.Keys(l.rules)), func(n string) bool { return l.below(n, r.Layer) == nil })
		r.Errorf("extends", "no shipped rule is named %q%s", name, document.Suggest(name, below))
		return false
	}
	own := []string{"name", "extends"}
	if n := r.Keys["name"]; n == nil || n.Value != name {
		own = append(own, "fault") // the base rule stays, so this rule needs its own fault
	}
	for _, key := range ruleKeys() {
		if n := base.Keys[key]; n != nil && r.Keys[key] == nil && !slices.Contains(own, key) {
			r.Keys[key] = placed(n, at.Line)
		}
	}
	return true
}

// below returns the rule of that name in the layers under a layer, or nil.
func (l *loader) below(name string, layer int) *loadedRule {
	r := l.rules[name]
	if r != nil && r.Layer == layer {
		return r.replaced
	}
	return r
}

// placed returns a copy of another file's node with its position set to a line of this file, so that
// its mistakes are reported there.
func placed(n *yaml.Node, line int) *yaml.Node {
	c := *n
	c.Line, c.Column = line, 0
	c.Content = make([]*yaml.Node, len(n.Content))
	for i, child := range n.Content {
		c.Content[i] = placed(child, line)
	}
	return &c
}
