package alerts

import (
	"cmp"
	"slices"

	"github.com/kernosis/kernosis/collector/event"
	"github.com/kernosis/kernosis/detector"
	"github.com/kernosis/kernosis/detector/problem"
)

// What stands in [Templates] for what a rule says.
const (
	ConditionMark = "__CONDITION__"
	ReasonMark    = "__REASON__"
	DocMark       = "__DOC__"
	// DashboardMark is a [Config.DashboardBase], for texts in which the chart replaces it.
	DashboardMark = "https://grafana.invalid"
)

// Templates is what the chart needs to make alerts of the rules in its values: Helm can read
// these, but has no shipped rules.
type Templates struct {
	// Condition and Problem are the alerts on permanent and temporary problems, by severity.
	Condition map[problem.Severity]Alert `yaml:"condition"`
	Problem   map[problem.Severity]Alert `yaml:"problem"`
	// Shipped are the shipped rules by their names: other rules extend them, and what they
	// report has an alert already.
	Shipped map[string]Inherited `yaml:"shipped"`
	// AnyReason are conditions whose alert covers reasons that no rule names.
	AnyReason []string `yaml:"anyReason"`
}

// Inherited are the keys of a rule that its alert follows from.
type Inherited struct {
	Condition string           `yaml:"condition,omitempty"`
	Reason    string           `yaml:"reason"`
	Severity  problem.Severity `yaml:"severity"`
	Doc       string           `yaml:"doc,omitempty"`
}

// TemplatesOf returns the templates beside the alerts on a set of rules.
func TemplatesOf(set *detector.RuleSet, cfg Config) *Templates {
	t := &Templates{
		Condition: map[problem.Severity]Alert{}, Problem: map[problem.Severity]Alert{}, Shipped: map[string]Inherited{}, AnyReason: []string{},
	}
	for _, s := range problem.Severities() {
		permanent := &detector.Rule{Condition: ConditionMark, Reason: ReasonMark, Severity: s, Doc: DocMark}
		temporary := &detector.Rule{Reason: ReasonMark, Severity: s, Doc: DocMark}
		t.Condition[s] = conditionAlerts([]*detector.Rule{permanent}, cfg)[0]
		t.Problem[s] = problemAlerts([]*detector.Rule{temporary}, nil, cfg)[0]
	}
	for _, r := range set.Rules() {
		t.Shipped[r.Name] = Inherited{r.Condition, r.Reason, cmp.Or(r.Severity, problem.Warning), cfg.doc(r)}
		if !r.Temporary() && slices.Contains(r.Events, event.Check) && !slices.Contains(t.AnyReason, r.Condition) {
			t.AnyReason = append(t.AnyReason, r.Condition)
		}
	}
	return t
}

// Encode writes the templates.
func (t *Templates) Encode() ([]byte, error) { return encode(t) }
