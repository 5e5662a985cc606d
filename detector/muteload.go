package detector

import (
	"cmp"
	"fmt"
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

// maxMuteReason bounds a mute's reason, in bytes: a sentence.
const maxMuteReason = 256

// ParseMutes reads a file of mutes (docs/rules.md has its form). The error joins every mistake of
// the file as [Errors]; no mutes come with it. A rule that is not in the set, and a field that its
// groupBy doesn't have, are no mistakes of the file: the rule may have gone with an upgrade, which
// must not end the other mutes. Such a mute is returned too, and unknown has it. Without rules
// (nil) names and fields are taken as they are.
func ParseMutes(name string, data []byte, rules *RuleSet) (list []problem.Mute, unknown Errors, err error) {
	file, root := document.Read(name, data)
	l := &muteLoader{file: file, unknown: &document.Reader{Name: name}, rules: rules}
	if root != nil {
		l.root(root)
	}
	l.file.Errors.Sort()
	l.unknown.Errors.Sort()
	if err := l.file.Errors.Err(); err != nil {
		return nil, nil, err
	}
	return l.mutes, l.unknown.Errors, nil
}

type muteLoader struct {
	file    *document.Reader
	unknown *document.Reader // its Errors are those of rules and fields that are not in the set
	rules   *RuleSet
	mutes   []problem.Mute
}

func (l *muteLoader) root(root *yaml.Node) {
	keys := l.file.Object(root, "", form.Keys[muteFileForm]()...)
	if n := keys["apiVersion"]; n == nil {
		l.file.Errorf(root, "apiVersion", "missing, want %s", APIVersion)
		return
	} else if v := l.file.String(n, "apiVersion"); v != APIVersion {
		l.file.Errorf(n, "apiVersion", "is %q, want %s", v, APIVersion)
		return
	}
	n := keys["mutes"]
	if n == nil {
		return // none is in force
	}
	for i, item := range l.file.List(n, "mutes") {
		if i >= MaxMutes {
			l.file.Errorf(item, "mutes", "more than %d mutes", MaxMutes)
			return
		}
		l.mute(item, fmt.Sprintf("mutes[%d]", i))
	}
}

func (l *muteLoader) mute(n *yaml.Node, path string) {
	keys := l.file.Object(n, path, form.Keys[muteForm]()...)
	var m problem.Mute
	for _, key := range []string{"rule", "until", "reason"} {
		if keys[key] == nil {
			l.file.Errorf(n, path, "%s is missing", key)
		}
	}
	var rule *Rule
	if k := keys["rule"]; k != nil {
		m.Rule = l.file.String(k, path+".rule")
		rule = l.rule(k, path+".rule", m.Rule)
	}
	if k := keys["until"]; k != nil {
		var err error
		if m.Until, err = time.Parse(time.RFC3339, k.Value); k.Kind != yaml.ScalarNode || err != nil {
			l.file.Errorf(k, path+".until", "want a time with its zone such as 2026-03-01T18:00:00Z, have %q", k.Value)
		} else if m.Until.UTC().Year() > 9999 {
			l.file.Errorf(k, path+".until", "is beyond the year 9999") // which no snapshot can hold
		}
	}
	if k := keys["reason"]; k != nil {
		m.Reason = l.file.String(k, path+".reason")
		if m.Reason = strings.TrimSpace(m.Reason); m.Reason == "" && k.ShortTag() == "!!str" {
			l.file.Errorf(k, path+".reason", "is empty: want the reason of the mute, which is shown wherever it is")
		} else if len(m.Reason) > maxMuteReason {
			l.file.Errorf(k, path+".reason", "has %d bytes, at most %d are allowed", len(m.Reason), maxMuteReason)
		}
		m.Reason = display.Safe(m.Reason, 10*maxMuteReason) // it is shown; an escape has up to ten bytes
	}
	if k := keys["where"]; k != nil {
		m.Where = make(map[string]string)
		for _, p := range l.file.Map(k, path+".where") {
			m.Where[p.Key.Value] = l.value(p, path+".where."+p.Key.Value, rule)
		}
		if len(m.Where) == 0 && k.Kind == yaml.MappingNode {
			l.file.Errorf(k, path+".where", "is empty: leave it out for all problems of the rule")
		}
	}
	l.mutes = append(l.mutes, m)
}

func (l *muteLoader) rule(n *yaml.Node, path, name string) *Rule {
	if l.rules == nil {
		return nil
	}
	r, ok := l.rules.Rule(name)
	if !ok && name != "" {
		var names []string
		for _, r := range l.rules.rules {
			names = append(names, r.Name)
		}
		l.unknown.Errorf(n, path, "unknown rule %q%s", name, document.Suggest(name, names))
	}
	return r
}

// value reads what a field must be, as it is written in groups.
func (l *muteLoader) value(p document.Pair, path string, rule *Rule) string {
	n := p.Value
	if n.Kind != yaml.ScalarNode || n.ShortTag() == "!!null" {
		l.file.Errorf(n, path, "want text, a number or a boolean")
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
			l.file.Errorf(n, path, "want a number, have %q", n.Value)
		}
		return strconv.FormatInt(v, 10)
	case event.TypeBool:
		v, err := strconv.ParseBool(strings.ToLower(n.Value))
		if err != nil {
			l.file.Errorf(n, path, "want true or false, have %q", n.Value)
		}
		return strconv.FormatBool(v)
	}
	return n.Value
}
