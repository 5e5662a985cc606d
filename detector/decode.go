package detector

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"go.yaml.in/yaml/v4"

	"github.com/kernosis/kernosis/collector/event"
	"github.com/kernosis/kernosis/collector/logpattern"
	"github.com/kernosis/kernosis/detector/internal/form"
	"github.com/kernosis/kernosis/detector/internal/strictyaml"
	"github.com/kernosis/kernosis/detector/problem"
)

// loadedRule is a rule with the nodes it was read from.
type loadedRule struct {
	*Rule
	layer int
	file  *strictyaml.File
	path  string // "rules[2]"
	node  *yaml.Node
	keys  map[string]*yaml.Node
}

// loadedCondition is a condition type with its origin.
type loadedCondition struct {
	ConditionSpec
	layer int
	file  *strictyaml.File
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
	f, root := strictyaml.Parse(name, data)
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

func (l *loader) condition(index int, f *strictyaml.File, p strictyaml.Pair) {
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

func (l *loader) rule(index int, f *strictyaml.File, n *yaml.Node, path string) {
	keys := f.Object(n, path, ruleKeys()...)
	if !l.extend(index, f, n, path, keys) {
		return
	}
	r := &loadedRule{Rule: &Rule{File: f.Name, Line: n.Line, Layer: index}, layer: index, file: f, path: path, node: n, keys: keys}
	str := func(key string) string {
		if n := keys[key]; n != nil {
			return f.String(n, path+"."+key)
		}
		return ""
	}
	strs := func(key string) []string {
		if n := keys[key]; n != nil {
			return f.Strings(n, path+"."+key)
		}
		return nil
	}
	period := func(key string) time.Duration {
		if n := keys[key]; n != nil {
			return f.Duration(n, path+"."+key, time.Millisecond, maxPeriod)
		}
		return 0
	}
	r.Name, r.Fault, r.Doc = str("name"), str("fault"), str("doc")
	r.Condition, r.Reason, r.Message = str("condition"), str("reason"), str("message")
	r.When, r.ClearWhen = str("when"), str("clearWhen")
	r.GroupBy, r.DependsOn = strs("groupBy"), strs("dependsOn")
	if n := keys["equal"]; n != nil {
		r.Equal = make(map[string]string)
		for _, p := range f.Map(n, path+".equal") {
			r.Equal[p.Key.Value] = f.String(p.Value, path+".equal."+p.Key.Value)
		}
	}
	for _, k := range strs("events") {
		r.Events = append(r.Events, event.Kind(k))
	}
	r.Pattern, r.ClearPattern, r.Logs = str("pattern"), str("clearPattern"), strs("logs")
	r.FallbackFor = strs("fallbackFor")
	if n := keys["lines"]; n != nil {
		r.Lines = f.Int(n, path+".lines", 1, logpattern.MaxLines)
	}
	if n := keys["anchorEnd"]; n != nil {
		r.AnchorEnd = f.Bool(n, path+".anchorEnd")
	}
	r.For, r.ClearAfter, r.AbsentFor = period("for"), period("clearAfter"), period("absentFor")
	r.Severity = problem.Warning
	if keys["severity"] != nil {
		r.Severity = problem.Severity(str("severity"))
	}
	r.readSeverityWhen(f)
	if n := keys["latched"]; n != nil {
		r.Latched = f.Bool(n, path+".latched")
	}
	r.MaxGroups = DefaultMaxGroups
	if n := keys["maxGroups"]; n != nil {
		r.MaxGroups = f.Int(n, path+".maxGroups", 1, maxMaxGroups)
	}
	if n := keys["threshold"]; n != nil {
		r.threshold(f, n, path+".threshold")
	}
	r.readRateLimit(f)
	if r.Fault == "" {
		r.Fault = r.Name
	}
	if r.Temporary() && r.ClearAfter == 0 && !r.Latched && !r.awaits() {
		r.ClearAfter = DefaultClearAfter
	}
	r.check(l.compiler)
	if r.Name == "" {
		return
	}
	old := l.rules[r.Name]
	switch {
	case old == nil:
		l.order = append(l.order, r.Name)
	case old.layer == index:
		r.errorf("name", "rule %q stands already at %s:%d", r.Name, old.file.Name, old.node.Line)
		return
	}
	l.rules[r.Name] = r
}

// ruleKeys are the keys of a rule.
func ruleKeys() []string { return form.Keys[ruleForm]() }

func (r *loadedRule) threshold(f *strictyaml.File, n *yaml.Node, path string) {
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
func (r *loadedRule) readRateLimit(f *strictyaml.File) {
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
