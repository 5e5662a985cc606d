package detector

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"go.yaml.in/yaml/v4"

	"github.com/kernosis/kernosis/collector/document"
	"github.com/kernosis/kernosis/collector/event"
	"github.com/kernosis/kernosis/collector/logpattern"
	"github.com/kernosis/kernosis/detector/internal/form"
	"github.com/kernosis/kernosis/detector/problem"
)

// loadedRule is a rule with the YAML nodes it was read from.
type loadedRule struct {
	*Rule
	*document.Mapping
	replaced *loadedRule // the rule of the same name in a lower layer; nil: there is none
}

// loadedCondition is a condition type with the YAML nodes it was read from.
type loadedCondition struct {
	ConditionSpec
	*document.Mapping
	layer int
}

// item records a mistake at an item of a list.
func (r *loadedRule) item(key string, i int, format string, args ...any) {
	r.Reader.Errorf(r.Keys[key].Content[i], fmt.Sprintf("%s[%d]", r.Field(key), i), format, args...)
}

func (l *loader) file(layer int, name string, data []byte) {
	f, root := document.Read(name, data)
	l.files = append(l.files, f)
	if root == nil {
		return
	}
	top := f.Object(root, "", form.Keys[form.RuleFile]()...)
	if !top.OfVersion(APIVersion) {
		return
	}
	for _, p := range top.Map("conditions") {
		l.condition(layer, f, p)
	}
	for _, m := range top.Objects("rules", form.Keys[form.Rule]()...) {
		if len(l.rules) >= MaxRules {
			f.Errorf(m.Node, "rules", "more than %d rules", MaxRules)
			return
		}
		l.rule(layer, m)
	}
}

func (l *loader) condition(layer int, f *document.Reader, p document.Pair) {
	name := p.Key.Value
	m := f.Object(p.Value, "conditions."+name, form.Keys[form.Healthy]()...)
	m.Node = p.Key
	checkConditionType(f, p.Key, name)
	m.Need("healthyReason", "healthyMessage")
	c := &loadedCondition{ConditionSpec{name, m.Text("healthyReason"), m.Text("healthyMessage")}, m, layer}
	checkReason(m, "healthyReason", c.HealthyReason)
	if len(c.HealthyMessage) > MaxMessage {
		m.Errorf("healthyMessage", "has %d bytes, at most %d are allowed", len(c.HealthyMessage), MaxMessage)
	}
	if old := l.conditions[name]; old != nil && old.layer == layer {
		f.Errorf(p.Key, m.Path, "condition is already registered at %s:%d", old.Reader.Name, old.Node.Line)
		return
	}
	l.conditions[name] = c
}

func (l *loader) rule(layer int, m *document.Mapping) {
	r := &loadedRule{Rule: &Rule{File: m.Reader.Name, Line: m.Node.Line, Layer: layer}, Mapping: m}
	if !l.extend(r) {
		return
	}
	r.readTexts()
	r.readBounds()
	if r.Fault == "" {
		r.Fault = r.Name
	}
	if r.Temporary() && r.ClearAfter == 0 && !r.Latched && !r.awaits() {
		r.ClearAfter = DefaultClearAfter
	}
	r.check(l.compiler)
	l.add(r)
}

// add adds a rule. It replaces a rule of the same name from a lower layer.
func (l *loader) add(r *loadedRule) {
	if r.Name == "" {
		return
	}
	old := l.rules[r.Name]
	switch {
	case old == nil:
		l.order = append(l.order, r.Name)
	case old.Layer == r.Layer:
		r.Errorf("name", "rule %q is already defined at %s:%d", r.Name, old.File, old.Line)
		return
	}
	r.replaced = old
	l.rules[r.Name] = r
}

// readTexts reads the texts of the rule: names, expressions, patterns and the message.
func (r *loadedRule) readTexts() {
	r.Name, r.Fault, r.Doc = r.Text("name"), r.Text("fault"), r.Text("doc")
	r.Condition, r.Reason, r.Message = r.Text("condition"), r.Text("reason"), r.Text("message")
	r.When, r.ClearWhen = r.Text("when"), r.Text("clearWhen")
	r.GroupBy, r.DependsOn = r.Texts("groupBy"), r.Texts("dependsOn")
	if r.Keys["equal"] != nil {
		r.Equal = make(map[string]string)
		for _, p := range r.Map("equal") {
			r.Equal[p.Key.Value] = r.Reader.String(p.Value, r.Field("equal."+p.Key.Value))
		}
	}
	for _, k := range r.Texts("events") {
		r.Events = append(r.Events, event.Kind(k))
	}
	r.level = len(r.Events) > 0 && !slices.ContainsFunc(r.Events, func(k event.Kind) bool { return k.EndedBy() == "" })
	r.Pattern, r.ClearPattern, r.Logs = r.Text("pattern"), r.Text("clearPattern"), r.Texts("logs")
	r.FallbackFor = r.Texts("fallbackFor")
}

// readBounds reads numbers, periods, severity and switches.
func (r *loadedRule) readBounds() {
	r.Lines = r.Int("lines", 1, logpattern.MaxLines)
	r.AnchorEnd, r.Latched = r.Bool("anchorEnd"), r.Bool("latched")
	r.For, r.ClearAfter, r.AbsentFor = r.period("for"), r.period("clearAfter"), r.period("absentFor")
	r.Severity = problem.Warning
	if r.Keys["severity"] != nil {
		r.Severity = problem.Severity(r.Text("severity"))
	}
	r.readSeverityWhen()
	r.MaxGroups = DefaultMaxGroups
	if r.Keys["maxGroups"] != nil {
		r.MaxGroups = r.Int("maxGroups", 1, maxMaxGroups)
	}
	r.readThreshold()
	r.readRateLimit()
}

func (r *loadedRule) period(key string) time.Duration {
	return r.Duration(key, time.Millisecond, maxPeriod)
}

func (r *loadedRule) readThreshold() {
	m := r.Object("threshold", form.Keys[form.Threshold]()...)
	if m == nil {
		return
	}
	m.Need("count", "within")
	r.Threshold.Count = m.Int("count", 2, maxThreshold)
	r.Threshold.Within = m.Duration("within", time.Millisecond, maxPeriod)
	if m.Keys["distinct"] != nil {
		r.Threshold.Distinct = strings.TrimSpace(m.Text("distinct"))
		r.Keys["threshold.distinct"] = m.Keys["distinct"]
	}
}

// readRateLimit reads the limit of a log rule. Without one, it sets the default limit unless the
// rule reads only kernel messages.
func (r *loadedRule) readRateLimit() {
	m := r.Object("rateLimit", form.Keys[form.RateLimit]()...)
	if m == nil {
		if r.Keys["pattern"] != nil && !slices.Equal(r.Logs, []string{event.KernelLogs}) {
			r.RateLimit = RateLimit{max(defaultLimitCount, limitOfThreshold*r.Threshold.Count), defaultLimitWithin}
		}
		return
	}
	m.Need("count", "within")
	r.RateLimit = RateLimit{m.Int("count", 1, maxLimitCount), m.Duration("within", time.Second, maxPeriod)}
	if r.RateLimit.Count > 0 && r.RateLimit.Count < r.Threshold.Count {
		m.Errorf("count", "%d is less than threshold.count (%d): that many events must be recorded before the problem fires", r.RateLimit.Count, r.Threshold.Count)
	}
}

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
	for _, key := range form.Keys[form.Rule]() {
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
