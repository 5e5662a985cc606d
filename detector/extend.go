package detector

import (
	"maps"
	"slices"

	"go.yaml.in/yaml/v4"

	"github.com/kernosis/kernosis/collector/document"
)

// extend gives a rule the keys that it does not have of the rule that it extends, which is of
// a layer below, so that there are no circles. It reports whether there is such a rule.
func (l *loader) extend(r *loadedRule) bool {
	at := r.Keys["extends"]
	if at == nil {
		return true
	}
	for _, p := range r.Reader.Map(r.Node, r.Path) {
		if document.IsNull(p.Value) {
			r.Reader.Errorf(p.Value, r.Field(p.Key.Value), "a key of the extended rule can't be taken away: write the rule out, without extends")
		}
	}
	name := r.Text("extends")
	base := l.rules[name]
	switch {
	case name == "":
		return false
	case base == nil || base.Layer == r.Layer:
		below := slices.DeleteFunc(slices.Sorted(maps.Keys(l.rules)), func(n string) bool { return l.rules[n].Layer == r.Layer })
		r.Errorf("extends", "no shipped rule is named %q%s", name, document.Suggest(name, below))
		return false
	}
	own := []string{"name", "extends"}
	if n := r.Keys["name"]; n == nil || n.Value != name {
		own = append(own, "fault") // beside the other rule it is about something else
	}
	for _, key := range ruleKeys() {
		if n := base.Keys[key]; n != nil && r.Keys[key] == nil && !slices.Contains(own, key) {
			r.Keys[key] = placed(n, at.Line)
		}
	}
	return true
}

// placed returns a copy of a node of another file whose mistakes are reported at a line of this one.
func placed(n *yaml.Node, line int) *yaml.Node {
	c := *n
	c.Line, c.Column = line, 0
	c.Content = make([]*yaml.Node, len(n.Content))
	for i, child := range n.Content {
		c.Content[i] = placed(child, line)
	}
	return &c
}
