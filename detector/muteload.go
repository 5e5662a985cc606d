package detector

import (
	"cmp"
	"slices"
	"strconv"
	"strings"
	"time"

	"go.yaml.in/yaml/v4"

	"github.com/kernosis/kernosis/collector/display"
	"github.com/kernosis/kernosis/collector/document"
	"github.com/kernosis/kernosis/collector/event"
	"github.com/kernosis/kernosis/detector/internal/form"
	"github.com/kernosis/kernosis/detector/problem"
)

// maxMuteReason bounds a mute's reason, in bytes: enough for a sentence.
const maxMuteReason = 256

// ParseMutes reads a file of mutes (docs/rules.md describes the format). The error joins all
// mistakes of the file as [Errors]; then no mutes are returned. An unknown rule, or a field that is
// not in its groupBy, is not an error: an upgrade may have removed the rule, and that must not end
// the other mutes. ParseMutes returns such a mute too, and unknown describes it. If rules is nil,
// names and fields are not checked.
func ParseMutes(name string, data []byte, rules *RuleSet) (list []problem.Mute, unknown Errors, err error) {
	file, root := document.Read(name, data)
	l := &muteLoader{unknown: &document.Reader{Name: name}, rules: rules}
	if root != nil {
		l.root(file.Object(root, "", form.Keys[form.MuteFile]()...))
	}
	file.Errors.Sort()
	l.unknown.Errors.Sort()
	if err := file.Errors.Err(); err != nil {
		return nil, nil, err
	}
	return l.mutes, l.unknown.Errors, nil
}

type muteLoader struct {
	unknown *document.Reader // collects errors on rules and fields that are not in the set
	rules   *RuleSet
	mutes   []problem.Mute
}

func (l *muteLoader) root(top *document.Mapping) {
	if !top.OfVersion(APIVersion) {
		return
	}
	for i, m := range top.Objects("mutes", form.Keys[form.Mute]()...) {
		if i >= MaxMutes {
			top.Reader.Errorf(m.Node, "mutes", "more than %d mutes", MaxMutes)
			return
		}
		l.mute(m)
	}
}

func (l *muteLoader) mute(m *document.Mapping) {
	m.Need("rule", "until", "reason")
	out := problem.Mute{Rule: m.Text("rule"), Reason: strings.TrimSpace(m.Text("reason"))}
	rule := l.rule(m.Keys["rule"], m.Field("rule"), out.Rule)
	if n := m.Keys["until"]; n != nil {
		var err error
		if out.Until, err = time.Parse(time.RFC3339, n.Value); n.Kind != yaml.ScalarNode || err != nil {
			m.Errorf("until", "want a time with its zone such as 2026-03-01T18:00:00Z, have %q", n.Value)
		} else if out.Until.UTC().Year() > 9999 {
			m.Errorf("until", "is after the year 9999") // JSON can't represent it, so no snapshot could
		}
	}
	if n := m.Keys["reason"]; n != nil && out.Reason == "" && n.ShortTag() == "!!str" {
		m.Errorf("reason", "is empty: want the reason for the mute, which is shown with it")
	} else if len(out.Reason) > maxMuteReason {
		m.Errorf("reason", "has %d bytes, at most %d are allowed", len(out.Reason), maxMuteReason)
	}
	out.Reason = display.Safe(out.Reason, 10*maxMuteReason) // make it safe to display; an escape has up to ten bytes
	if n := m.Keys["where"]; n != nil {
		out.Where = make(map[string]string)
		for _, p := range m.Map("where") {
			out.Where[p.Key.Value] = l.value(m.Reader, p, m.Field("where."+p.Key.Value), rule)
		}
		if len(out.Where) == 0 && n.Kind == yaml.MappingNode {
			m.Errorf("where", "is empty: omit it to mute all problems of the rule")
		}
	}
	l.mutes = append(l.mutes, out)
}

func (l *muteLoader) rule(n *yaml.Node, path, name string) *Rule {
	if l.rules == nil || name == "" {
		return nil
	}
	r, ok := l.rules.Rule(name)
	if !ok {
		l.unknown.Errorf(n, path, "unknown rule %q%s", name, document.Suggest(name, l.rules.Names()))
	}
	return r
}

// value reads the value that a field must have, in the form that groups use.
func (l *muteLoader) value(file *document.Reader, p document.Pair, path string, rule *Rule) string {
	n := p.Value
	if n.Kind != yaml.ScalarNode || document.IsNull(n) {
		file.Errorf(n, path, "want text, a number or a boolean")
		return ""
	}
	if rule == nil {
		return n.Value
	}
	i := slices.Index(rule.GroupBy, p.Key.Value)
	if i < 0 {
		l.unknown.Errorf(p.Key, path, "rule %s has no such field in its groupBy (it has %s)%s", rule.Name,
			cmp.Or(strings.Join(rule.GroupBy, ", "), "none"), document.Suggest(p.Key.Value, rule.GroupBy))
		return n.Value
	}
	switch rule.groupBy[i].Type { //nolint:exhaustive // the rest can't stand in groupBy
	case event.TypeInt:
		v, err := strconv.ParseInt(n.Value, 0, 64)
		if err != nil {
			file.Errorf(n, path, "want a number, have %q", n.Value)
		}
		return strconv.FormatInt(v, 10)
	case event.TypeBool:
		v, err := strconv.ParseBool(strings.ToLower(n.Value))
		if err != nil {
			file.Errorf(n, path, "want true or false, have %q", n.Value)
		}
		return strconv.FormatBool(v)
	}
	return n.Value
}
