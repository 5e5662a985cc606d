package alerts

import (
	"github.com/kernosis/kernosis/collector/event"
	"github.com/kernosis/kernosis/detector"
	"github.com/kernosis/kernosis/detector/problem"
)

// What stands in [Templates] for what a rule says.
const (
	ConditionMark = "__CONDITION__"
	ReasonMark    = "__REASON__"
	RulesMark     = "__RULES__"
	DocMark       = "__DOC__"
	// DashboardMark is a [Config.DashboardBase], for texts in which the chart replaces it.
	DashboardMark = "https://grafana.invalid"
)

// Templates is what the chart needs to make alerts of the rules in its values: Helm can read
// these, but has no shipped rules.
type Templates struct {
	// Condition and Problem are the alerts on permanent and temporary problems, by severity;
	// ByRule those on temporary ones that are counted by the names of their rules.
	Condition map[problem.Severity]Alert `yaml:"condition"`
	Problem   map[problem.Severity]Alert `yaml:"problem"`
	ByRule    map[problem.Severity]Alert `yaml:"byRule"`
	// OfRules are expressions for permanent problems of rules, of which some have a severity.
	OfRules map[problem.Severity]string `yaml:"ofRules"`
	// Shipped are the shipped rules by their names: other rules extend them, and what they
	// report has an alert already.
	Shipped map[string]Inherited `yaml:"shipped"`
}

// Inherited are the keys of a rule that its alert follows from.
type Inherited struct {
	Events    []event.Kind     `yaml:"events,flow"`
	Condition string           `yaml:"condition,omitempty"`
	Reason    string           `yaml:"reason"`
	Severity  problem.Severity `yaml:"severity"`
	Doc       string           `yaml:"doc,omitempty"`
}

// TemplatesOf returns the templates beside the alerts on a set of rules.
func TemplatesOf(set *detector.RuleSet, cfg Config) *Templates {
	t := &Templates{
		Condition: map[problem.Severity]Alert{}, Problem: map[problem.Severity]Alert{}, ByRule: map[problem.Severity]Alert{},
		OfRules: map[problem.Severity]string{}, Shipped: map[string]Inherited{},
	}
	for _, s := range problem.Severities() {
		permanent := &detector.Rule{Condition: ConditionMark, Reason: ReasonMark, Severity: s, Doc: DocMark}
		t.Condition[s] = conditionAlerts([]*detector.Rule{permanent}, cfg)[0]
		t.Problem[s] = problemAlert(ReasonMark, s, DocMark, cfg)
		t.OfRules[s] = (&known{name: ConditionMark, severity: s, rules: []string{RulesMark}}).expr(nil)
		t.ByRule[s] = problemAlertByRule(ReasonMark, s, []string{RulesMark}, DocMark, cfg)
	}
	for _, r := range set.Rules() {
		t.Shipped[r.Name] = Inherited{r.Events, r.Condition, r.Reason, r.Severity, cfg.doc(r)}
	}
	return t
}

// Encode writes the templates.
func (t *Templates) Encode() ([]byte, error) { return encode(t) }
