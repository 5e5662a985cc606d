package ruletest

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"go.yaml.in/yaml/v4"

	"github.com/kernosis/kernosis/collector/document"
	"github.com/kernosis/kernosis/collector/event"
	"github.com/kernosis/kernosis/detector"
	"github.com/kernosis/kernosis/detector/internal/form"
	"github.com/kernosis/kernosis/detector/problem"
)

// Bounds of tests, so that a slip of the pen doesn't run for hours.
const (
	maxRepeat = 100_000
	maxOffset = 366 * 24 * time.Hour
	maxDepth  = 32
)

// parse reads a test file. Mistakes are in the file's Errors.
func parse(f File, rules *detector.RuleSet) (*document.Reader, []*test) {
	file, root := document.Read(f.Name, f.Data)
	if root == nil {
		return file, nil
	}
	p := &parser{file: file, rules: rules, like: make(map[string]map[string]any)}
	keys := file.Object(root, "", form.Keys[fileForm]()...)
	if n := keys["apiVersion"]; n == nil {
		file.Errorf(root, "apiVersion", "missing, want %s", detector.APIVersion)
		return file, nil
	} else if v := file.String(n, "apiVersion"); v != detector.APIVersion {
		file.Errorf(n, "apiVersion", "is %q, want %s", v, detector.APIVersion)
		return file, nil
	}
	if n := keys["templates"]; n != nil {
		for _, pair := range file.Map(n, "templates") {
			if v, ok := p.value(pair.Value, "templates."+pair.Key.Value, 0).(map[string]any); ok {
				p.like[pair.Key.Value] = v
			} else {
				file.Errorf(pair.Value, "templates."+pair.Key.Value, "want an event (a mapping)")
			}
		}
	}
	var tests []*test
	if n := keys["tests"]; n == nil {
		file.Errorf(root, "tests", "missing")
	} else {
		for i, item := range file.List(n, "tests") {
			tests = append(tests, p.test(item, fmt.Sprintf("tests[%d]", i)))
		}
	}
	return file, tests
}

type parser struct {
	file  *document.Reader
	rules *detector.RuleSet
	like  map[string]map[string]any
}

func (p *parser) test(n *yaml.Node, path string) *test {
	keys := p.file.Object(n, path, form.Keys[testForm]()...)
	t := &test{file: p.file, line: n.Line, sources: true}
	if k := keys["name"]; k == nil {
		p.file.Errorf(n, path, "name is missing")
	} else {
		t.name = p.file.String(k, path+".name")
	}
	if k := keys["rules"]; k != nil {
		t.rules = p.file.Strings(k, path+".rules")
		for i, r := range t.rules {
			p.rule(k.Content[i], path+".rules", r)
		}
	}
	if k := keys["sources"]; k != nil {
		t.sources = p.file.Bool(k, path+".sources")
	}
	if k := keys["events"]; k != nil {
		for i, item := range p.file.List(k, path+".events") {
			t.steps = append(t.steps, p.steps(item, fmt.Sprintf("%s.events[%d]", path, i))...)
		}
	}
	if k := keys["expect"]; k == nil {
		p.file.Errorf(n, path, "expect is missing: a test that expects nothing proves nothing")
	} else {
		for i, item := range p.file.List(k, path+".expect") {
			t.checks = append(t.checks, p.check(item, fmt.Sprintf("%s.expect[%d]", path, i)))
		}
	}
	slices.SortStableFunc(t.steps, func(a, b step) int { return int(a.at - b.at) })
	slices.SortStableFunc(t.checks, func(a, b check) int { return int(a.at - b.at) })
	return t
}

func (p *parser) rule(n *yaml.Node, path, name string) {
	if _, ok := p.rules.Rule(name); !ok {
		var names []string
		for _, r := range p.rules.Rules() {
			names = append(names, r.Name)
		}
		p.file.Errorf(n, path, "unknown rule %q%s", name, document.Suggest(name, names))
	}
}

func (p *parser) offset(n *yaml.Node, parent *yaml.Node, path string) time.Duration {
	if n == nil {
		p.file.Errorf(parent, path, "at is missing")
		return 0
	}
	return p.file.Duration(n, path+".at", 0, maxOffset)
}

func (p *parser) steps(n *yaml.Node, path string) []step {
	keys := p.file.Object(n, path, form.Keys[stepForm]()...)
	first := step{at: p.offset(keys["at"], n, path)}
	if k := keys["restart"]; k != nil {
		first.restart = p.file.Bool(k, path+".restart")
		return []step{first}
	}
	doc := make(map[string]any)
	where := n
	if k := keys["like"]; k != nil {
		name := p.file.String(k, path+".like")
		if base, ok := p.like[name]; ok {
			merge(doc, base)
		} else {
			p.file.Errorf(k, path+".like", "unknown template %q", name)
		}
	}
	if k := keys["event"]; k != nil {
		where = k
		if v, ok := p.value(k, path+".event", 0).(map[string]any); ok {
			merge(doc, v)
		} else {
			p.file.Errorf(k, path+".event", "want a mapping")
		}
	}
	first.event = p.event(where, path, doc)
	if first.event == nil {
		return nil
	}
	_, first.set.time = doc["time"]
	_, first.set.boot = doc["bootTime"]
	repeat, every := 1, time.Duration(0)
	if k := keys["repeat"]; k != nil {
		repeat = p.file.Int(k, path+".repeat", 1, maxRepeat)
	}
	if k := keys["every"]; k != nil {
		every = p.file.Duration(k, path+".every", 0, maxOffset)
	}
	out := make([]step, repeat)
	for i := range out {
		out[i] = first
		out[i].at += time.Duration(i) * every
	}
	return out
}

// event decodes an event from its JSON form, unknown keys refused.
func (p *parser) event(n *yaml.Node, path string, doc map[string]any) *event.Event {
	b, err := json.Marshal(doc)
	if err != nil {
		p.file.Errorf(n, path, "event: %v", err)
		return nil
	}
	ev := new(event.Event)
	d := json.NewDecoder(bytes.NewReader(b))
	d.DisallowUnknownFields()
	if err := d.Decode(ev); err != nil {
		p.file.Errorf(n, path, "event: %s", strings.TrimPrefix(err.Error(), "json: "))
		return nil
	}
	if !slices.Contains(event.Kinds(), ev.Kind) {
		var names []string
		for _, k := range event.Kinds() {
			names = append(names, string(k))
		}
		p.file.Errorf(n, path, "unknown event kind %q%s", ev.Kind, document.Suggest(string(ev.Kind), names))
		return nil
	}
	return ev
}

// merge lays src over dst, mapping by mapping.
func merge(dst, src map[string]any) {
	for k, v := range src {
		sub, ok := v.(map[string]any)
		if !ok {
			dst[k] = v
			continue
		}
		into, ok := dst[k].(map[string]any)
		copied := make(map[string]any, len(into)+len(sub))
		if ok {
			merge(copied, into)
		}
		merge(copied, sub)
		dst[k] = copied
	}
}

// value turns a node into what encoding/json would give.
func (p *parser) value(n *yaml.Node, path string, depth int) any {
	if depth > maxDepth {
		p.file.Errorf(n, path, "nested more than %d levels", maxDepth)
		return nil
	}
	switch n.Kind {
	case yaml.MappingNode:
		out := make(map[string]any)
		for _, pair := range p.file.Map(n, path) {
			out[pair.Key.Value] = p.value(pair.Value, path+"."+pair.Key.Value, depth+1)
		}
		return out
	case yaml.SequenceNode:
		out := make([]any, 0, len(n.Content))
		for _, c := range n.Content {
			out = append(out, p.value(c, path, depth+1))
		}
		return out
	}
	switch n.ShortTag() {
	case "!!null":
		return nil
	case "!!bool":
		return p.file.Bool(n, path)
	case "!!int":
		if v, err := strconv.ParseInt(n.Value, 0, 64); err == nil {
			return v
		}
		if v, err := strconv.ParseUint(n.Value, 0, 64); err == nil {
			return v
		}
		p.file.Errorf(n, path, "%s is not a 64-bit number", n.Value)
		return nil
	}
	return n.Value
}

func (p *parser) check(n *yaml.Node, path string) check {
	keys := p.file.Object(n, path, form.Keys[checkForm]()...)
	c := check{at: p.offset(keys["at"], n, path), line: n.Line}
	if k := keys["problems"]; k != nil {
		c.hasProblems = true
		for i, item := range p.file.List(k, path+".problems") {
			c.problems = append(c.problems, p.problem(item, fmt.Sprintf("%s.problems[%d]", path, i)))
		}
	}
	if k := keys["conditions"]; k != nil {
		for _, pair := range p.file.Map(k, path+".conditions") {
			c.conditions = append(c.conditions, p.condition(pair, path+".conditions."+pair.Key.Value))
		}
	}
	if k := keys["transitions"]; k != nil {
		c.transitions = make(map[string]int)
		for _, pair := range p.file.Map(k, path+".transitions") {
			p.rule(pair.Key, path+".transitions", pair.Key.Value)
			c.transitions[pair.Key.Value] = p.file.Int(pair.Value, path+".transitions."+pair.Key.Value, 0, 10*maxRepeat)
		}
	}
	if !c.hasProblems && c.conditions == nil && c.transitions == nil {
		p.file.Errorf(n, path, "expects nothing: give problems, conditions or transitions")
	}
	return c
}

func (p *parser) problem(n *yaml.Node, path string) wantProblem {
	texts := []string{"rule", "group", "reason", "message", "subject", "severity", "suppressedBy"}
	keys := p.file.Object(n, path, form.Keys[problemForm]()...)
	w := wantProblem{node: n, text: make(map[string]string), state: problem.Firing, count: -1}
	for _, t := range texts {
		if k := keys[t]; k != nil {
			w.text[t] = p.file.String(k, path+"."+t)
		}
	}
	if keys["rule"] == nil {
		p.file.Errorf(n, path, "rule is missing")
	} else {
		p.rule(keys["rule"], path+".rule", w.text["rule"])
	}
	if k := keys["state"]; k != nil {
		w.state = problem.State(p.file.String(k, path+".state"))
		if w.state != problem.Pending && w.state != problem.Firing && w.state != problem.Resolved {
			p.file.Errorf(k, path+".state", "%q is not pending, firing or resolved", w.state)
		}
	}
	if k := keys["count"]; k != nil {
		w.count = p.file.Int(k, path+".count", 0, 10*maxRepeat)
	}
	return w
}

// condition reads "Type: True" or "Type: {status: True, reason: …, message: …}".
// The status may be written without quotes although YAML takes it for a boolean.
func (p *parser) condition(pair document.Pair, path string) wantCondition {
	w := wantCondition{node: pair.Value, typ: pair.Key.Value}
	if !slices.ContainsFunc(p.rules.Conditions(), func(c detector.ConditionSpec) bool { return c.Type == w.typ }) {
		p.file.Errorf(pair.Key, path, "unknown condition %q", w.typ)
	}
	status := pair.Value
	if pair.Value.Kind == yaml.MappingNode {
		keys := p.file.Object(pair.Value, path, form.Keys[conditionForm]()...)
		status = keys["status"]
		if k := keys["reason"]; k != nil {
			w.reason, w.hasReason = p.file.String(k, path+".reason"), true
		}
		if k := keys["message"]; k != nil {
			w.message, w.hasMessage = p.file.String(k, path+".message"), true
		}
	}
	if status == nil {
		return w
	}
	for _, s := range []problem.Status{problem.True, problem.False, problem.Unknown} {
		if status.Kind == yaml.ScalarNode && strings.EqualFold(status.Value, string(s)) {
			w.status = s
		}
	}
	if w.status == "" {
		p.file.Errorf(status, path, "%q is not True, False or Unknown", status.Value)
	}
	return w
}
