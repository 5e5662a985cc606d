package detector

import (
	"regexp"
	"slices"
	"strings"

	"cel.dev/cel-go/cel"
	"go.yaml.in/yaml/v4"

	"github.com/kernosis/kernosis/collector/document"
	"github.com/kernosis/kernosis/collector/event"
	"github.com/kernosis/kernosis/detector/internal/form"
)

var (
	ruleName   = regexp.MustCompile(form.NamePattern)
	pascalCase = regexp.MustCompile(form.PascalPattern)
)

func checkReason(m *document.Mapping, key, reason string) {
	if reason != "" && !pascalCase.MatchString(reason) {
		m.Errorf(key, "reason %q is not PascalCase: want a form such as OOMKilling", reason)
	}
}

func checkConditionType(f *document.Reader, n *yaml.Node, name string) {
	switch {
	case event.KubernetesCondition(name):
		f.Errorf(n, "conditions."+name, "condition %s is reserved for Kubernetes, like all that end in Pressure", name)
	case !pascalCase.MatchString(name):
		f.Errorf(n, "conditions."+name, "condition %q is not PascalCase: want a form such as KernelDeadlock", name)
	}
}

// check validates what can be checked without other rules, and compiles the rule.
func (r *loadedRule) check(c *compiler) {
	r.Need("name", "events", "reason", "message")
	if r.Name != "" && !ruleName.MatchString(r.Name) {
		r.Errorf("name", "%q: want lower-case letters, digits and dashes (at most 63 characters)", r.Name)
	}
	if r.Keys["fault"] != nil && !ruleName.MatchString(r.Fault) {
		r.Errorf("fault", "%q: want lower-case letters, digits and dashes (at most 63 characters)", r.Fault)
	}
	checkReason(r.Mapping, "reason", r.Reason)
	if r.Severity != "" && r.Severity.Rank() == 0 {
		r.Errorf("severity", "%q: want one of info, warning, critical", r.Severity)
	}
	if len(r.Doc) > 256 {
		r.Errorf("doc", "has %d bytes, at most 256 are allowed", len(r.Doc))
	}
	r.checkEvents()
	c = r.checkPatterns(c)
	r.checkGroupBy(c)
	r.checkClearing()
	r.checkGauge()
	r.compileWhen(c)
	r.nameGauges(c)
	r.compileSeverityWhen(c)
	r.compileMessage(c)
	r.compileClearWhen(c)
	r.checkAbsence()
}

func (r *loadedRule) checkEvents() {
	known := event.Kinds()
	for i, k := range r.Events {
		switch {
		case !slices.Contains(known, k):
			r.item("events", i, "unknown event kind %q%s", k, document.Suggest(k, known))
		case slices.Index(r.Events, k) < i:
			r.item("events", i, "event kind %q is listed twice", k)
		}
		switch {
		case k == event.Log:
			r.named = append(r.named, newNamed(event.LogStem, r.Logs))
		case k == event.Check: // compileWhen may restrict it to some names
			r.named = append(r.named, newNamed(event.CheckStem, nil))
		case k == event.Gauge: // likewise
			r.named = append(r.named, newNamed(event.GaugeStem, nil))
		case !slices.Contains(r.stems, k.Stem()):
			r.stems = append(r.stems, k.Stem())
		}
	}
	if n := r.Keys["events"]; n != nil && n.Kind == yaml.SequenceNode && len(n.Content) == 0 {
		r.Errorf("events", "list is empty")
	}
}

func fieldNames() []string {
	var out []string
	for _, f := range event.Fields() {
		out = append(out, f.Name)
	}
	return out
}

// carried reports whether one of the kinds carries the field.
func carried(f *event.Field, kinds []event.Kind) bool { return slices.ContainsFunc(kinds, f.CarriedBy) }

func joined(kinds []event.Kind) string {
	var out []string
	for _, k := range kinds {
		out = append(out, string(k))
	}
	return strings.Join(out, ", ")
}

func (r *loadedRule) checkGroupBy(c *compiler) {
	const most = 8 // a group of more parts is unreadable
	if len(r.GroupBy) > most {
		r.Errorf("groupBy", "has %d fields, at most %d are allowed", len(r.GroupBy), most)
	}
	for i, name := range r.GroupBy {
		if f := r.groupField(c, name, func(format string, args ...any) { r.item("groupBy", i, format, args...) }); f != nil {
			r.groupBy = append(r.groupBy, f)
		}
	}
	if name := r.Threshold.Distinct; name != "" {
		r.distinct = r.groupField(c, name, func(format string, args ...any) { r.Errorf("threshold.distinct", format, args...) })
	}
}

func (r *loadedRule) groupField(c *compiler, name string, errorf func(string, ...any)) *event.Field {
	f := c.field(name)
	switch {
	case f == nil:
		errorf("%s", c.unknownField(name))
		return nil
	case !f.Groupable():
		errorf("field %s (%s) can't be used for grouping", name, f.Type)
	case r.kindsKnown() && !carried(f, r.Events):
		errorf("no event of this rule has field %s (events that have it: %s)", name, joined(f.Kinds))
	}
	return f
}

// kindsKnown reports whether all event kinds are valid. If not, the fields that
// the events carry are unknown.
func (r *loadedRule) kindsKnown() bool {
	known := event.Kinds()
	return len(r.Events) > 0 && !slices.ContainsFunc(r.Events, func(k event.Kind) bool { return !slices.Contains(known, k) })
}

func (r *loadedRule) checkClearing() {
	cleared := r.Keys["clearAfter"] != nil || r.Keys["clearWhen"] != nil || r.Keys["clearPattern"] != nil
	ways := [2]string{"clearAfter, clearWhen", "clearAfter and clearWhen"}
	if r.isLog() {
		ways = [2]string{"clearAfter, clearWhen, clearPattern", "clearAfter, clearWhen and clearPattern"}
	}
	switch {
	case r.Condition != "" && r.Latched && cleared:
		r.Errorf("latched", "a latched problem never clears: remove %s", ways[1])
	case r.Condition != "" && !r.Latched && !cleared && !r.awaits() && !r.isGauge():
		r.Errorf("condition", "a rule with a condition needs %s or latched: true", ways[0])
	case r.Condition == "" && r.Latched:
		r.Errorf("latched", "only a rule with a condition can be latched")
	}
	if r.For == 0 {
		return
	}
	for i, k := range r.Events {
		if k.EndedBy() == "" && slices.Contains(event.Kinds(), k) {
			signals := slices.DeleteFunc(event.Kinds(), func(k event.Kind) bool { return k.EndedBy() == "" })
			r.item("events", i, "for works only with level signals (%s): %s has no end", joined(signals), k)
		}
	}
	if r.Keys["clearWhen"] == nil {
		r.Errorf("for", "requires clearWhen, which ends the signal")
	}
	if r.Threshold.Count > 0 {
		r.Errorf("for", "for and threshold can't be combined")
	}
}

func (r *loadedRule) compileWhen(c *compiler) {
	r.when = r.compileBool(c, "when", r.When)
	if r.when != nil {
		r.checkCarried("when", r.when.fields, r.Events)
		r.nameChecks(c)
		r.nameServices(c)
	}
}

// compileBool compiles the expression of a key. It returns nil if there is none or it is invalid.
func (r *loadedRule) compileBool(c *compiler, key, source string) *expr {
	if r.Keys[key] == nil {
		return nil
	}
	x, errs := c.compile(source)
	for _, e := range errs {
		r.ErrorAt(key, e.offset, "%s", e.msg)
	}
	if x == nil {
		return nil
	}
	if !x.out.IsExactType(cel.BoolType) {
		r.Errorf(key, "has type %s, want bool", cel.FormatCELType(x.out))
		return nil
	}
	for _, l := range x.compared[kindField] {
		if k := event.Kind(l.text); !slices.Contains(event.Kinds(), k) {
			r.ErrorAt(key, l.offset, "unknown event kind %q%s", k, document.Suggest(k, event.Kinds()))
		}
	}
	return x
}

func (r *loadedRule) compileMessage(c *compiler) {
	n := r.Keys["message"]
	if n == nil || n.Kind != yaml.ScalarNode {
		return
	}
	if len(r.Message) > 4*MaxMessage {
		r.Errorf("message", "has %d bytes, at most %d are allowed", len(r.Message), 4*MaxMessage)
		return
	}
	m, errs := c.parseMessage(r.Message)
	for _, e := range errs {
		r.ErrorAt("message", e.offset, "%s", e.msg)
	}
	r.message = m
	r.checkCarried("message", m.fields(), r.Events)
}

func (r *loadedRule) checkCarried(key string, used []*event.Field, by []event.Kind) {
	if !r.kindsKnown() {
		return
	}
	for _, f := range used {
		if !carried(f, by) {
			r.Errorf(key, "no event of this rule has field %s (events that have it: %s)", f.Name, joined(f.Kinds))
		}
	}
}

// compileClearWhen compiles clearWhen and finds which event kinds can clear: if the expression uses
// event.kind, the kinds for which it can be true, else the rule's own kinds.
func (r *loadedRule) compileClearWhen(c *compiler) {
	x := r.compileBool(c, "clearWhen", r.ClearWhen)
	if x == nil {
		return
	}
	r.clearWhen, r.clearKinds = x, r.Events
	if slices.ContainsFunc(x.fields, func(f *event.Field) bool { return f.Name == kindField }) {
		r.clearKinds = possible(r, c, "clearWhen", kindField, event.Kinds(), nil)
	}
	if len(r.clearKinds) == 0 {
		r.Errorf("clearWhen", "is false for every event kind")
		return
	}
	if !r.isLog() && !slices.Contains(r.Events, event.Log) {
		// Only rules with a pattern get log lines.
		if r.clearKinds = slices.DeleteFunc(slices.Clone(r.clearKinds), isLogKind); len(r.clearKinds) == 0 {
			r.Errorf("clearWhen", "log lines can end only problems of log rules (use clearPattern)")
			return
		}
	}
	r.checkCarried("clearWhen", x.fields, r.clearKinds)
	for _, f := range r.groupBy {
		for _, k := range r.clearKinds {
			if r.kindsKnown() && !f.CarriedBy(k) {
				r.Errorf("clearWhen", "events of kind %s have no field %s, so they match no problem's group: restrict event.kind", k, f.Name)
			}
		}
	}
}
