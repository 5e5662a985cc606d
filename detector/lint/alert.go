package lint

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	"go.yaml.in/yaml/v4"

	"github.com/kernosis/kernosis/collector/document"
	"github.com/kernosis/kernosis/collector/event"
	"github.com/kernosis/kernosis/detector"
)

// Alert is a Prometheus alerting or recording rule.
type Alert struct {
	File      string
	Line      int // of its expression
	Name      string
	selectors []selector
}

// maxAlerts bounds the rules of a file.
const maxAlerts = 5000

// ParseAlerts reads a file of Prometheus rules (groups) or a PrometheusRule object
// (spec.groups). It ignores other content, which Prometheus checks.
func ParseAlerts(name string, data []byte) ([]Alert, error) {
	f, root := document.Read(name, data)
	if root == nil {
		return nil, f.Errors
	}
	groups := document.Child(root, "groups")
	if groups == nil {
		groups = document.Child(document.Child(root, "spec"), "groups")
	}
	if groups == nil || groups.Kind != yaml.SequenceNode {
		return nil, detector.Errors{{File: name, Line: root.Line, Msg: "no groups: this is not a Prometheus rule file"}}
	}
	var out []Alert
	for _, g := range groups.Content {
		rules := document.Child(g, "rules")
		if rules == nil {
			continue
		}
		for _, r := range rules.Content {
			expr := document.Child(r, "expr")
			if expr == nil || expr.Kind != yaml.ScalarNode {
				continue
			}
			if len(out) == maxAlerts {
				return nil, detector.Errors{{File: name, Line: r.Line, Msg: fmt.Sprintf("more than %d rules", maxAlerts)}}
			}
			a := Alert{File: name, Line: expr.Line, selectors: selectors(expr.Value)}
			for _, k := range []string{"alert", "record"} {
				if n := document.Child(r, k); n != nil {
					a.Name = n.Value
				}
			}
			out = append(out, a)
		}
	}
	return out, nil
}

// alerts reports alerts that can't fire because of the names they select.
func (in *Input) alerts() []Finding {
	var out []Finding
	for _, a := range in.Alerts {
		for _, s := range a.selectors {
			for _, f := range in.selector(s) {
				f.File, f.Line, f.Message = a.File, a.Line, a.Name+": "+f.Message
				out = append(out, f)
			}
		}
	}
	return out
}

func (in *Input) selector(s selector) []Finding {
	var out []Finding
	var types, reasons []string
	for _, m := range s.matchers {
		for _, v := range m.values(in) {
			switch s.metric + "/" + m.label {
			case "problem_gauge/type", "kube_node_status_condition/condition", "kernosis_condition/type":
				types = append(types, v)
				out = append(out, in.alertType(s.metric, m.label, v)...)
			case "problem_gauge/reason", "problem_counter/reason", "problem_counter_total/reason",
				"kernosis_problem_transitions_total/reason", "kernosis_problem_occurrences_total/reason":
				reasons = append(reasons, v)
				out = append(out, in.alertReason(s.metric, v)...)
			}
		}
	}
	// Both names may exist although no rule sets that condition for that reason.
	if len(out) == 0 && len(types) == 1 && len(reasons) == 1 && !slices.ContainsFunc(in.Rules, func(r Rule) bool {
		return r.Condition == types[0] && (r.Reason == reasons[0] || r.Healthy == reasons[0])
	}) {
		out = append(out, Finding{Level: Error, Code: AlertCombination, Message: fmt.Sprintf("no rule sets condition %s with reason %s", types[0], reasons[0])})
	}
	return out
}

func (in *Input) alertType(metric, label, v string) []Finding {
	for _, c := range in.Conditions {
		if c.Type == v {
			return nil
		}
	}
	if metric == "kube_node_status_condition" && event.KubernetesCondition(v) {
		return nil
	}
	for _, r := range in.Rules {
		if r.Reason == v && r.Condition != "" {
			return []Finding{{Level: Error, Code: AlertReason, Message: fmt.Sprintf("%s{%s=%q}: %s is a reason; the condition is %s", metric, label, v, v, r.Condition)}}
		}
	}
	return []Finding{{Level: Warning, Code: AlertUnknown, Message: fmt.Sprintf("%s{%s=%q}: no rule has a condition %s%s", metric, label, v, v, document.Suggest(v, in.types()))}}
}

func (in *Input) types() []string {
	var out []string
	for _, c := range in.Conditions {
		out = append(out, c.Type)
	}
	return out
}

func (in *Input) alertReason(metric, v string) []Finding {
	var reasons []string
	for _, r := range in.Rules {
		if r.Reason == v || metric == "problem_gauge" && r.Healthy == v {
			return nil
		}
		reasons = append(reasons, r.Reason)
	}
	for _, r := range in.Rules {
		if r.Condition == v {
			return []Finding{{Level: Error, Code: AlertCondition, Message: fmt.Sprintf("%s{reason=%q}: %s is a condition; its reason is %s", metric, v, v, r.Reason)}}
		}
	}
	return []Finding{{Level: Warning, Code: AlertUnknown, Message: fmt.Sprintf("%s{reason=%q}: no rule has a reason %s%s", metric, v, v, document.Suggest(v, reasons))}}
}

// values returns the names that a matcher selects. For a regular expression, these are
// its plain alternatives, or the expression itself if it matches no known name.
func (m matcher) values(in *Input) []string {
	if m.op == "=" && m.value != "" {
		return []string{m.value}
	}
	if m.op != "=~" {
		return nil
	}
	parts := strings.Split(strings.TrimSuffix(strings.TrimPrefix(m.value, "("), ")"), "|")
	if !slices.ContainsFunc(parts, func(p string) bool { return p == "" || regexp.QuoteMeta(p) != p }) {
		return parts
	}
	re, err := regexp.Compile("^(?:" + m.value + ")$")
	if err != nil {
		return nil // Prometheus reports it
	}
	if slices.ContainsFunc(in.types(), re.MatchString) {
		return nil
	}
	for _, r := range in.Rules {
		if re.MatchString(r.Reason) || re.MatchString(r.Healthy) {
			return nil
		}
	}
	return []string{m.value}
}
