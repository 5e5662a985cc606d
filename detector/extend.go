package detector

import (
	"maps"
	"slices"

	"go.yaml.in/yaml/v4"

	"github.com/kernosis/kernosis/collector/document"
)

// extend gives a rule the keys that it does not have of the rule that it extends, which is of
// a layer below, so that there are no circles. It reports whether there is such a rule.
func (l *loader) extend(index int, f *document.Reader, rule *yaml.Node, path string, keys map[string]*yaml.Node) bool {
	at := keys["extends"]
	if at == nil {
		return true
	}
	for _, p := range f.Map(rule, path) {
		if p.Value.Kind == yaml.ScalarNode && p.Value.ShortTag() == "!!null" {
			f.Errorf(p.Value, path+"."+p.Key.Value, "a key of the extended rule can't be taken away: write the rule out, without extends")
		}
	}
	name := f.String(at, path+".extends")
	base := l.rules[name]
	switch {
	case name == "":
		return false
	case base == nil || base.layer == index:
		below := slices.DeleteFunc(slices.Sorted(maps.Keys(l.rules)), func(n string) bool { return l.rules[n].layer == index })
		f.Errorf(at, path+".extends", "no shipped rule is named %q%s", name, document.Suggest(name, below))
		return false
	}
	own := []string{"name", "extends"}
	if n := keys["name"]; n == nil || n.Value != name {
		own = append(own, "fault") // beside the other rule it is about something else
	}
	for _, key := range ruleKeys() {
		if n := base.keys[key]; n != nil && keys[key] == nil && !slices.Contains(own, key) {
			keys[key] = placed(n, at.Line)
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
