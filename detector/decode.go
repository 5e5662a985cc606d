package detector

import (
	"fmt"
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

// loadedRule is a rule with the nodes it was read from.
type loadedRule struct {
	*Rule
	layer int
	file  *document.Reader
	path  string // "rules[2]"
	node  *yaml.Node
	keys  map[string]*yaml.Node
}

// loadedCondition is a condition type with its origin.
type loadedCondition struct {
	ConditionSpec
	layer int
	file  *document.Reader
	node  *yaml.Node
}

// errorf records a mistake at a key of the rule, or at the rule where the key is absent.
func (r *loadedRule) errorf(key, format string, args ...any) {
	if n := r.keys[key]; n != nil {
		r.file.Errorf(n, r.path+"."+key, format, args...)
		return
	}
	r.file.Errorf(r.node, r.path, "%s: "+format, append([]any{key}, args...)...)
}

// item records a mistake at an item of a list.
func (r *loadedRule) item(key string, i int, format string, args ...any) {
	r.file.Errorf(r.keys[key].Content[i], fmt.Sprintf("%s.%s[%d]", r.path, key, i), format, args...)
}

func (l *loader) file(index int, name string, data []byte) {
	f, root := document.Read(name, data)
	l.files = append(l.files, f)
	if root == nil {
		return
	}
	keys := f.Object(root, "", form.Keys[ruleFileForm]()...)
	if n := keys["apiVersion"]; n == nil {
		f.Errorf(root, "apiVersion", "missing, want %s", APIVersion)
		return
	} else if v := f.String(n, "apiVersion"); v != APIVersion {
		f.Errorf(n, "apiVersion", "is %q, want %s", v, APIVersion)
		return // another version's keys would all be mistakes
	}
	if n := keys["conditions"]; n != nil {
		for _, p := range f.Map(n, "conditions") {
			l.condition(index, f, p)
		}
	}
	if n := keys["rules"]; n != nil {
		for i, item := range f.List(n, "rules") {
			if len(l.rules) >= MaxRules {
				f.Errorf(item, "rules", "more than %d rules", MaxRules)
				return
			}
			l.rule(index, f, item, fmt.Sprintf("rules[%d]", i))
		}
	}
}

func (l *loader) condition(index int, f *document.Reader, p document.Pair) {
	name := p.Key.Value
	path := "conditions." + name
	keys := f.Object(p.Value, path, form.Keys[conditionForm]()...)
	c := &loadedCondition{ConditionSpec: ConditionSpec{Type: name}, layer: index, file: f, node: p.Key}
	checkConditionType(f, p.Key, name)
	if n := keys["healthyReason"]; n == nil {
		f.Errorf(p.Key, path, "healthyReason is missing")
	} else {
		c.HealthyReason = f.String(n, path+".healthyReason")
		checkReason(f, n, path+".healthyReason", c.HealthyReason)
	}
	if n := keys["healthyMessage"]; n == nil {
		f.Errorf(p.Key, path, "healthyMessage is missing")
	} else if c.HealthyMessage = f.String(n, path+".healthyMessage"); len(c.HealthyMessage) > MaxMessage {
		f.Errorf(n, path+".healthyMessage", "has %d bytes, at most %d are allowed", len(c.HealthyMessage), MaxMessage)
	}
	if old := l.conditions[name]; old != nil && old.layer == index {
		f.Errorf(p.Key, path, "condition is registered already at %s:%d", old.file.Name, old.node.Line)
		return
	}
	l.conditions[name] = c
}

func (l *loader) rule(index int, f *document.Reader, n *yaml.Node, path string) {
	keys := f.Object(n, path, ruleKeys()...)
	if !l.extend(index, f, n, path, keys) {
		return
	}
	r := &loadedRule{Rule: &Rule{File: f.Name, Line: n.Line, Layer: index}, layer: index, file: f, path: path, node: n, keys: keys}
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

// add takes a rule of a layer, in place of one of the same name in a layer below.
func (l *loader) add(r *loadedRule) {
	if r.Name == "" {
		return
	}
	old := l.rules[r.Name]
	switch {
	case old == nil:
		l.order = append(l.order, r.Name)
	case old.layer == r.layer:
		r.errorf("name", "rule %q stands already at %s:%d", r.Name, old.file.Name, old.node.Line)
		return
	}
	l.rules[r.Name] = r
}

// readTexts reads what the rule matches and says.
func (r *loadedRule) readTexts() {
	r.Name, r.Fault, r.Doc = r.text("name"), r.text("fault"), r.text("doc")
	r.Condition, r.Reason, r.Message = r.text("condition"), r.text("reason"), r.text("message")
	r.When, r.ClearWhen = r.text("when"), r.text("clearWhen")
	r.GroupBy, r.DependsOn = r.texts("groupBy"), r.texts("dependsOn")
	if n := r.keys["equal"]; n != nil {
		r.Equal = make(map[string]string)
		for _, p := range r.file.Map(n, r.path+".equal") {
			r.Equal[p.Key.Value] = r.file.String(p.Value, r.path+".equal."+p.Key.Value)
		}
	}
	for _, k := range r.texts("events") {
		r.Events = append(r.Events, event.Kind(k))
	}
	r.level = len(r.Events) > 0 && !slices.ContainsFunc(r.Events, func(k event.Kind) bool { return k.EndedBy() == "" })
	r.Pattern, r.ClearPattern, r.Logs = r.text("pattern"), r.text("clearPattern"), r.texts("logs")
	r.FallbackFor = r.texts("fallbackFor")
}

// readBounds reads numbers, periods, severity and switches.
func (r *loadedRule) readBounds() {
	f := r.file
	if n := r.keys["lines"]; n != nil {
		r.Lines = f.Int(n, r.path+".lines", 1, logpattern.MaxLines)
	}
	if n := r.keys["anchorEnd"]; n != nil {
		r.AnchorEnd = f.Bool(n, r.path+".anchorEnd")
	}
	r.For, r.ClearAfter, r.AbsentFor = r.period("for"), r.period("clearAfter"), r.period("absentFor")
	r.Severity = problem.Warning
	if r.keys["severity"] != nil {
		r.Severity = problem.Severity(r.text("severity"))
	}
	r.readSeverityWhen(f)
	if n := r.keys["latched"]; n != nil {
		r.Latched = f.Bool(n, r.path+".latched")
	}
	r.MaxGroups = DefaultMaxGroups
	if n := r.keys["maxGroups"]; n != nil {
		r.MaxGroups = f.Int(n, r.path+".maxGroups", 1, maxMaxGroups)
	}
	if n := r.keys["threshold"]; n != nil {
		r.threshold(f, n, r.path+".threshold")
	}
	r.readRateLimit(f)
}

// text returns the value of a key; empty: it is not there.
func (r *loadedRule) text(key string) string {
	if n := r.keys[key]; n != nil {
		return r.file.String(n, r.path+"."+key)
	}
	return ""
}

func (r *loadedRule) texts(key string) []string {
	if n := r.keys[key]; n != nil {
		return r.file.Strings(n, r.path+"."+key)
	}
	return nil
}

func (r *loadedRule) period(key string) time.Duration {
	if n := r.keys[key]; n != nil {
		return r.file.Duration(n, r.path+"."+key, time.Millisecond, maxPeriod)
	}
	return 0
}

// ruleKeys are the keys of a rule.
func ruleKeys() []string { return form.Keys[ruleForm]() }

func (r *loadedRule) threshold(f *document.Reader, n *yaml.Node, path string) {
	keys := f.Object(n, path, form.Keys[thresholdForm]()...)
	if c := keys["count"]; c == nil {
		f.Errorf(n, path, "count is missing")
	} else {
		r.Threshold.Count = f.Int(c, path+".count", 2, maxThreshold)
	}
	if w := keys["within"]; w == nil {
		f.Errorf(n, path, "within is missing")
	} else {
		r.Threshold.Within = f.Duration(w, path+".within", time.Millisecond, maxPeriod)
	}
	if d := keys["distinct"]; d != nil {
		r.Threshold.Distinct = strings.TrimSpace(f.String(d, path+".distinct"))
		r.keys["threshold.distinct"] = d
	}
}

// readRateLimit reads the limit of a log rule, or takes that of all rules that don't read what
// the kernel has printed alone.
func (r *loadedRule) readRateLimit(f *document.Reader) {
	n := r.keys["rateLimit"]
	if n == nil {
		if r.keys["pattern"] != nil && !slices.Equal(r.Logs, []string{event.KernelLogs}) {
			r.RateLimit = RateLimit{max(defaultLimitCount, limitOfThreshold*r.Threshold.Count), defaultLimitWithin}
		}
		return
	}
	path := r.path + ".rateLimit"
	keys := f.Object(n, path, form.Keys[rateLimitForm]()...)
	if c := keys["count"]; c == nil {
		f.Errorf(n, path, "count is missing")
	} else {
		r.RateLimit.Count = f.Int(c, path+".count", 1, maxLimitCount)
		if r.RateLimit.Count > 0 && r.RateLimit.Count < r.Threshold.Count {
			f.Errorf(c, path+".count", "%d is less than threshold.count, %d: so many events have to be recorded before the problem fires", r.RateLimit.Count, r.Threshold.Count)
		}
	}
	if w := keys["within"]; w == nil {
		f.Errorf(n, path, "within is missing")
	} else {
		r.RateLimit.Within = f.Duration(w, path+".within", time.Second, maxPeriod)
	}
}
