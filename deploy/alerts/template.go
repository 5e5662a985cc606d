package alerts

import (
	"github.com/kernosis/kernosis/collector/event"
	"github.com/kernosis/kernosis/detector"
	"github.com/kernosis/kernosis/detector/problem"
)

// Placeholders in [Templates] for values of a rule.
const (
	ConditionMark = "__CONDITION__"
	ReasonMark    = "__REASON__"
	RulesMark     = "__RULES__"
	DocMark       = "__DOC__"
	// DashboardMark is a [Config.DashboardBase] that the chart replaces.
	DashboardMark = "https://grafana.invalid"
)

// Templates is what the chart needs to generate alerts for the rules in its values. Helm can read
// this file, but not the shipped rules.
type Templates struct {
	// Condition and Problem are the alerts on permanent and temporary problems, by severity. ByRule
	// are those on temporary problems that are counted by rule name.
	Condition map[problem.Severity]Alert `yaml:"condition"`
	Problem   map[problem.Severity]Alert `yaml:"problem"`
	ByRule    map[problem.Severity]Alert `yaml:"byRule"`
	// OfRules are the expressions for permanent problems of rules that may have several severities.
	OfRules map[problem.Severity]string `yaml:"ofRules"`
	// Shipped are the shipped rules by name: rules in the values may extend them, and the problems
	// they report already have alerts.
	Shipped map[string]Inherited `yaml:"shipped"`
}

// Inherited holds the fields of a rule that determine its alert.
type Inherited struct {
	Events    []event.Kind     `yaml:"events,flow"`
	Condition string           `yaml:"condition,omitempty"`
	Reason    string           `yaml:"reason"`
	Severity  problem.Severity `yaml:"severity"`
	Doc       string           `yaml:"doc,omitempty"`
}

// TemplatesOf returns the templates that complement the alerts for a set of rules.
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

// Encode returns the templates as YAML.
func (t *Templates) Encode() ([]byte, error) { return encode(t) }
