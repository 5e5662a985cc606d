package ruletest

import (
	"bytes"
	"cmp"
	"encoding/json"
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

// Bounds of tests, so that a typo doesn't make a test run for hours.
const (
	maxRepeat = 100_000
	maxOffset = 366 * 24 * time.Hour
	maxDepth  = 32
)

// parse reads a test file. Mistakes are in the returned Reader's Errors.
func parse(f File, rules *detector.RuleSet) (*document.Reader, []*test) {
	file, root := document.Read(f.Name, f.Data)
	if root == nil {
		return file, nil
	}
	p := &parser{file: file, rules: rules, like: make(map[string]map[string]any)}
	top := file.Object(root, "", form.Keys[form.TestFile]()...)
	if !top.OfVersion(detector.APIVersion) {
		return file, nil
	}
	for _, pair := range top.Map("templates") {
		path := "templates." + pair.Key.Value
		if v, ok := p.value(pair.Value, path, 0).(map[string]any); ok {
			p.like[pair.Key.Value] = v
		} else {
			file.Errorf(pair.Value, path, "want an event (a mapping)")
		}
	}
	if top.Keys["tests"] == nil {
		file.Errorf(root, "tests", "missing")
	}
	var tests []*test
	for _, m := range top.Objects("tests", form.Keys[form.Test]()...) {
		tests = append(tests, p.test(m))
	}
	return file, tests
}

type parser struct {
	file  *document.Reader
	rules *detector.RuleSet
	like  map[string]map[string]any
}

func (p *parser) test(m *document.Mapping) *test {
	m.Need("name")
	t := &test{file: p.file, line: m.Node.Line, name: m.Text("name"), rules: m.Texts("rules"), sources: m.Keys["sources"] == nil || m.Bool("sources")}
	for i, r := range t.rules {
		p.rule(m.Keys["rules"].Content[i], m.Field("rules"), r)
	}
	for _, step := range m.Objects("events", form.Keys[form.Step]()...) {
		t.steps = append(t.steps, p.steps(step)...)
	}
	if m.Keys["expect"] == nil {
		p.file.Errorf(m.Node, m.Path, "expect is missing: a test that expects nothing proves nothing")
	}
	for _, expected := range m.Objects("expect", form.Keys[form.Check]()...) {
		t.checks = append(t.checks, p.check(expected))
	}
	slices.SortStableFunc(t.steps, func(a, b step) int { return cmp.Compare(a.at, b.at) })
	slices.SortStableFunc(t.checks, func(a, b check) int { return cmp.Compare(a.at, b.at) })
	return t
}

func (p *parser) rule(n *yaml.Node, path, name string) {
	if _, ok := p.rules.Rule(name); !ok {
		p.file.Errorf(n, path, "unknown rule %q%s", name, document.Suggest(name, p.rules.Names()))
	}
}

// offset reads the time of an event or expectation.
func (p *parser) offset(m *document.Mapping) time.Duration {
	m.Need("at")
	return m.Duration("at", 0, maxOffset)
}

func (p *parser) steps(m *document.Mapping) []step {
	first := step{at: p.offset(m), restart: m.Bool("restart")}
	if m.Keys["restart"] != nil {
		return []step{first}
	}
	doc := make(map[string]any)
	if m.Keys["like"] != nil {
		name := m.Text("like")
		if base, ok := p.like[name]; ok {
			merge(doc, base)
		} else {
			m.Errorf("like", "unknown template %q", name)
		}
	}
	where := m.Node
	if n := m.Keys["event"]; n != nil {
		where = n
		if v, ok := p.value(n, m.Field("event"), 0).(map[string]any); ok {
			merge(doc, v)
		} else {
			m.Errorf("event", "want a mapping")
		}
	}
	first.event = p.event(where, m.Path, doc)
	if first.event == nil {
		return nil
	}
	_, first.set.time = doc["time"]
	_, first.set.boot = doc["bootTime"]
	out := make([]step, max(1, m.Int("repeat", 1, maxRepeat)))
	every := m.Duration("every", 0, maxOffset)
	for i := range out {
		out[i] = first
		out[i].at += time.Duration(i) * every
	}
	return out
}

// event decodes an event from its JSON form and rejects unknown keys.
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
		p.file.Errorf(n, path, "unknown event kind %q%s", ev.Kind, document.Suggest(ev.Kind, event.Kinds()))
		return nil
	}
	return ev
}

// merge merges src into dst recursively. Values of src take precedence.
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

// value converts a node to the types that encoding/json uses.
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

func (p *parser) check(m *document.Mapping) check {
	c := check{at: p.offset(m), line: m.Node.Line, hasProblems: m.Keys["problems"] != nil}
	for _, expected := range m.Objects("problems", form.Keys[form.Problem]()...) {
		c.problems = append(c.problems, p.problem(expected))
	}
	for _, pair := range m.Map("conditions") {
		c.conditions = append(c.conditions, p.condition(pair, m.Field("conditions."+pair.Key.Value)))
	}
	if m.Keys["transitions"] != nil {
		c.transitions = make(map[string]int)
		for _, pair := range m.Map("transitions") {
			p.rule(pair.Key, m.Field("transitions"), pair.Key.Value)
			c.transitions[pair.Key.Value] = p.file.Int(pair.Value, m.Field("transitions."+pair.Key.Value), 0, 10*maxRepeat)
		}
	}
	if !c.hasProblems && c.conditions == nil && c.transitions == nil {
		p.file.Errorf(m.Node, m.Path, "expects nothing: give problems, conditions or transitions")
	}
	return c
}

func (p *parser) problem(m *document.Mapping) wantProblem {
	m.Need("rule")
	w := wantProblem{line: m.Node.Line, text: make(map[string]string), state: problem.Firing, count: -1}
	for _, key := range []string{"rule", "group", "reason", "message", "subject", "severity", "suppressedBy"} {
		if m.Keys[key] != nil {
			w.text[key] = m.Text(key)
		}
	}
	if n := m.Keys["rule"]; n != nil {
		p.rule(n, m.Field("rule"), w.text["rule"])
	}
	if m.Keys["state"] != nil {
		w.state = problem.State(m.Text("state"))
		if w.state != problem.Pending && w.state != problem.Firing && w.state != problem.Resolved {
			m.Errorf("state", "%q: want one of pending, firing, resolved", w.state)
		}
	}
	if m.Keys["count"] != nil {
		w.count = m.Int("count", 0, 10*maxRepeat)
	}
	return w
}

// condition reads "Type: True" or "Type: {status: True, reason: …, message: …}".
// The status may be unquoted, although YAML reads it as a boolean.
func (p *parser) condition(pair document.Pair, path string) wantCondition {
	w := wantCondition{line: pair.Value.Line, typ: pair.Key.Value}
	if !slices.ContainsFunc(p.rules.Conditions(), func(c detector.ConditionSpec) bool { return c.Type == w.typ }) {
		p.file.Errorf(pair.Key, path, "unknown condition %q", w.typ)
	}
	status := pair.Value
	if status.Kind == yaml.MappingNode {
		m := p.file.Object(status, path, form.Keys[form.ConditionState]()...)
		status = m.Keys["status"]
		w.reason, w.hasReason = m.Text("reason"), m.Keys["reason"] != nil
		w.message, w.hasMessage = m.Text("message"), m.Keys["message"] != nil
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
		p.file.Errorf(status, path, "%q: want one of True, False, Unknown", status.Value)
	}
	return w
}

// File is a test file to run.
type File struct {
	Name string // shown in reports
	Data []byte
}

// test is one case of a file.
type test struct {
	name    string
	file    *document.Reader
	line    int
	rules   []string // rules whose problems are compared; empty: all
	sources bool     // all sources are up from the start
	steps   []step
	checks  []check
}

// step is an event or a restart at a time.
type step struct {
	at      time.Duration
	event   *event.Event
	restart bool
	set     struct{ time, boot bool } // whether the test sets these, not the runner
}

// check holds the expectations at a time, after all steps up to then.
type check struct {
	at          time.Duration
	line        int
	hasProblems bool
	problems    []wantProblem
	conditions  []wantCondition
	transitions map[string]int // how often each rule fired until then
}

// wantProblem is an expected problem. Fields that are not set are not compared.
type wantProblem struct {
	line  int
	text  map[string]string // rule, group, reason, message, subject, severity, suppressedBy
	state problem.State
	count int // -1: not compared
}

// wantCondition is an expected condition.
type wantCondition struct {
	line                  int
	typ                   string
	status                problem.Status
	reason, message       string
	hasReason, hasMessage bool
}
