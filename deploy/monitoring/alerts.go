package monitoring

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/kernosis/kernosis/collector/event"
	"github.com/kernosis/kernosis/detector"
	"github.com/kernosis/kernosis/detector/problem"
)

// Docs is the URL of the documentation. The chart replaces it with its configured one.
const Docs = "https://github.com/kernosis/kernosis/blob/main/docs/"

// The jobs of the chart's PodMonitors; Prometheus Operator may prefix the namespace.
const (
	DefaultAgentJob      = "(.*/)?kernosis-agent"
	DefaultControllerJob = "(.*/)?kernosis-controller"
)

// controllerGroup is the group of the alerts on the controller.
const controllerGroup = "kernosis-controller"

// AlertConfig configures the generated alerts.
type AlertConfig struct {
	// RunbookBase is prepended to a rule's doc, and to "runbooks/<Alert>" for alerts on Kernosis
	// itself. If it is empty, alerts have no runbook_url.
	RunbookBase string
	// DashboardBase is Grafana's URL, before "/d/UID". If it is empty, alerts have no
	// dashboard_url.
	DashboardBase string
	// AgentJob and ControllerJob match the job label of the scraped targets. If ControllerJob is
	// empty, there are no alerts on the controller.
	AgentJob, ControllerJob string
	// Doc returns the page of a rule. If it is nil, the rule's doc is used.
	Doc func(*detector.Rule) string
}

func (c *AlertConfig) doc(r *detector.Rule) string {
	if c.Doc == nil {
		return r.Doc
	}
	return c.Doc(r)
}

// AlertsOf returns the alerts on problems that the rules detect and those on Kernosis itself.
func AlertsOf(set *detector.RuleSet, cfg AlertConfig) (*AlertFile, error) {
	own, err := ownGroups(cfg)
	if err != nil {
		return nil, err
	}
	rules := set.Rules()
	conditions := conditionAlerts(rules, cfg)
	f := &AlertFile{Groups: []AlertGroup{
		{Name: "kernosis-conditions", Rules: append(conditions, otherConditions(set, cfg))},
		{Name: "kernosis-problems", Rules: problemAlerts(rules, conditions, cfg)},
	}}
	f.Groups = append(f.Groups, own...)
	f.Groups = slices.DeleteFunc(f.Groups, func(g AlertGroup) bool {
		return len(g.Rules) == 0 || g.Name == controllerGroup && cfg.ControllerJob == ""
	})
	return f, nil
}

// known collects the reasons of one condition and severity.
type known struct {
	name     string // of the alert
	severity problem.Severity
	reasons  []string // of the condition
	others   bool     // also match reasons that no rule names, such as those of checks
	rules    []string // rules whose problems may have this severity through severityWhen
	doc      string
}

func labels(s problem.Severity) map[string]string {
	return map[string]string{AppLabel: App, SeverityLabel: string(s)}
}

// summary names the node, the condition and its reason, unless the condition has only one reason,
// of the same name.
func (k *known) summary() string {
	if len(k.reasons) == 1 && k.reasons[0] == k.name && !k.others {
		return "{{ $labels.node }}: " + k.name
	}
	return "{{ $labels.node }}: " + k.name + ", reason {{ $labels.reason }}"
}

// severities returns the severities that problems of a rule may have, lowest first.
func severities(r *detector.Rule) []problem.Severity {
	return slices.DeleteFunc(problem.Severities(), func(s problem.Severity) bool {
		_, ok := r.SeverityWhen[s]
		return !ok && s != r.Severity
	})
}

// unscraped is how long an alert keeps firing while its agent is not scraped, for example while the
// agent's pod is replaced.
const unscraped = "5m"

// expr returns an expression that matches while the condition is True for one of the reasons, or
// while one of the rules has a problem of the severity.
func (k *known) expr(all []*known) string {
	var parts []string
	// Drop these labels: otherwise each new pod of the agent would cause another alert.
	const of = "max without (instance, pod, uid) (last_over_time(problem_gauge{type=%q%s}[" + unscraped + "])) == 1"
	if len(k.reasons) > 0 {
		parts = append(parts, fmt.Sprintf(of, k.name, k.matcher(all)))
	}
	if len(k.rules) > 0 {
		parts = append(parts, fmt.Sprintf(of+" and on (cluster, node, reason) last_over_time(kernosis_problem_info{rule=~%q, severity=%q}["+unscraped+"])", k.name, "", strings.Join(slices.Sorted(slices.Values(k.rules)), "|"), k.severity))
	}
	return strings.Join(parts, "\nor\n")
}

// matcher returns the label matcher for the condition's reasons.
func (k *known) matcher(all []*known) string {
	if !k.others {
		return fmt.Sprintf(", reason=~%q", strings.Join(k.reasons, "|"))
	}
	var not []string
	for _, o := range all {
		if o != k && o.name == k.name {
			not = append(not, o.reasons...)
		}
	}
	if len(not) == 0 {
		return ""
	}
	return fmt.Sprintf(", reason!~%q", strings.Join(not, "|"))
}

// conditionAlerts returns an alert for each condition type and severity of the rules. It fires
// while the gauge is 1 for a reason of that severity. A reason shared by several rules has the
// highest of their severities. With severityWhen a reason has the rule's lowest severity, and a
// higher one while a problem has it.
func conditionAlerts(rules []*detector.Rule, cfg AlertConfig) []Alert {
	type key struct{ condition, reason string }
	gravest, checked := map[key]*detector.Rule{}, map[key]bool{}
	docs := map[string]string{} // by condition, in case the most severe rule of a reason has none
	for _, r := range rules {
		if r.Temporary() {
			continue
		}
		k := key{r.Condition, r.Reason}
		if old := gravest[k]; old == nil || severities(old)[0].Rank() < severities(r)[0].Rank() {
			gravest[k] = r
		}
		// A reason reported by a check or a problem daemon replaces the rule's.
		checked[k] = checked[k] || slices.Contains(r.Events, event.Check)
		docs[r.Condition] = cmp.Or(docs[r.Condition], cfg.doc(r))
	}
	var all []*known
	of := func(r *detector.Rule, s problem.Severity) *known {
		i := slices.IndexFunc(all, func(o *known) bool { return o.name == r.Condition && o.severity == s })
		if i < 0 {
			i = len(all)
			all = append(all, &known{name: r.Condition, severity: s, doc: cmp.Or(cfg.doc(r), docs[r.Condition])})
		}
		return all[i]
	}
	for _, k := range slices.SortedFunc(maps.Keys(gravest), func(a, b key) int {
		return cmp.Or(cmp.Compare(a.condition, b.condition), cmp.Compare(a.reason, b.reason))
	}) {
		a := of(gravest[k], severities(gravest[k])[0])
		a.reasons = append(a.reasons, k.reason)
		a.others = a.others || checked[k]
	}
	for _, r := range rules {
		if r.Temporary() {
			continue
		}
		for _, s := range severities(r)[1:] {
			if s.Rank() > severities(gravest[key{r.Condition, r.Reason}])[0].Rank() {
				a := of(r, s)
				a.rules = append(a.rules, r.Name)
			}
		}
	}
	slices.SortStableFunc(all, func(a, b *known) int {
		return cmp.Or(cmp.Compare(a.name, b.name), cmp.Compare(b.severity.Rank(), a.severity.Rank()))
	})
	out := make([]Alert, 0, len(all))
	for _, k := range all {
		out = append(out, Alert{
			Alert: k.name, For: alertAfter(k.severity), Labels: labels(k.severity),
			Expr: k.expr(all),
			Annotations: cfg.ofNode(
				k.summary(),
				"The condition {{ $labels.type }} of node {{ $labels.node }} is True with reason {{ $labels.reason }}.",
				k.doc),
		})
	}
	return out
}

// alertAfter returns how long a condition must be True before its alert fires. Rules have
// thresholds and periods of their own; this only keeps a flapping condition from paging anybody.
func alertAfter(s problem.Severity) string {
	switch s {
	case problem.Critical:
		return "1m"
	case problem.Warning:
		return "5m"
	}
	return "15m"
}

// otherConditions returns the alert for conditions that no rule defines: those from
// node-problem-detector's files and from problem daemons.
func otherConditions(set *detector.RuleSet, cfg AlertConfig) Alert {
	var types []string
	for _, c := range set.Conditions() {
		types = append(types, c.Type)
	}
	return Alert{
		Alert: otherName, For: alertAfter(problem.Warning), Labels: labels(problem.Warning),
		Expr: fmt.Sprintf("max without (instance, pod, uid) (last_over_time(problem_gauge{type!~%q}["+unscraped+"])) == 1", strings.Join(types, "|")),
		Annotations: cfg.ofNode(
			"{{ $labels.node }}: {{ $labels.type }}, reason {{ $labels.reason }}",
			"The condition {{ $labels.type }} of node {{ $labels.node }}, set by another problem daemon or a file of node-problem-detector, is True with reason {{ $labels.reason }}.",
			"runbooks/"+otherName),
	}
}

const otherName = "KernosisOtherCondition"

// often returns how many occurrences of a temporary problem cause its alert, and within which time.
func often(s problem.Severity) (times int, within string) {
	switch s {
	case problem.Critical:
		return 1, "15m"
	case problem.Warning:
		return 5, "15m" // a single one is an Event on its pod; five within the time point to the node
	}
	return 20, "1h"
}

// problemAlerts returns the alerts for each reason of temporary problems, with the highest severity
// of its rules. If a problem daemon reports a reason, it replaces the rule's reason. So problems of
// such rules are counted by rule name, with one alert per severity, and so are problems whose severity
// depends on the event.
func problemAlerts(rules []*detector.Rule, taken []Alert, cfg AlertConfig) []Alert {
	by := map[string][]*detector.Rule{}
	for _, r := range rules {
		if r.Temporary() {
			by[r.Reason] = append(by[r.Reason], r)
		}
	}
	var out []Alert
	for _, reason := range slices.Sorted(maps.Keys(by)) {
		names := map[problem.Severity][]string{}
		doc, byRule := "", false
		for _, r := range by[reason] {
			for _, s := range severities(r) {
				names[s] = append(names[s], r.Name)
			}
			doc = cmp.Or(doc, cfg.doc(r))
			byRule = byRule || slices.Contains(r.Events, event.Check) || len(r.SeverityWhen) > 0
		}
		for _, s := range slices.Backward(problem.Severities()) {
			if len(names[s]) == 0 {
				continue
			}
			a := problemAlert(reason, s, doc, cfg)
			if byRule {
				a = problemAlertByRule(reason, s, names[s], doc, cfg)
			}
			if slices.ContainsFunc(taken, func(o Alert) bool { return o.Alert == a.Alert && o.Labels[SeverityLabel] == string(s) }) {
				a.Alert += "Repeated" // an alert for the condition of that name exists already
			}
			out = append(out, a)
			if !byRule {
				break
			}
		}
	}
	return out
}

// problemAlert returns the alert for problems of one reason. The comparison is >=, because increase()
// extrapolates to more than was counted. A counter is new if it had no sample within an hour: a single
// one may be missing after a failed scrape.
func problemAlert(reason string, s problem.Severity, doc string, cfg AlertConfig) Alert {
	times, within := often(s)
	expr := fmt.Sprintf("sum without (instance, pod, uid) (increase(problem_counter{reason=%q}[%s])) >= %d", reason, within, times)
	if times == 1 {
		expr += fmt.Sprintf("\nor\nsum without (instance, pod, uid) (problem_counter{reason=%[1]q} unless last_over_time(problem_counter{reason=%[1]q}[1h] offset %[2]s)) >= %[3]d", reason, within, times)
	}
	return Alert{Alert: reason, Labels: labels(s), Expr: expr, Annotations: cfg.ofProblem(reason, within, doc)}
}

// problemAlertByRule returns the alert for problems of some rules, regardless of their reasons. Unlike
// problem_counter, their series start with the first occurrence, which increase() does not count.
func problemAlertByRule(reason string, s problem.Severity, rules []string, doc string, cfg AlertConfig) Alert {
	times, within := often(s)
	series := fmt.Sprintf("kernosis_problem_occurrences_total{rule=~%q, severity=%q}", strings.Join(slices.Sorted(slices.Values(rules)), "|"), s)
	return Alert{
		Alert: reason, Labels: labels(s),
		Expr: fmt.Sprintf("sum without (instance, pod, uid, rule, severity) (increase(%[1]s[%[2]s])) >= %[3]d\nor\n"+
			"sum without (instance, pod, uid, rule, severity) (%[1]s unless last_over_time(%[1]s[1h] offset %[2]s)) >= %[3]d", series, within, times),
		Annotations: cfg.ofProblem("{{ $labels.reason }}", within, doc),
	}
}

func (c *AlertConfig) ofProblem(reason, within, doc string) map[string]string {
	return c.ofNode(
		"{{ $labels.node }}: "+reason,
		fmt.Sprintf(`The problem {{ $labels.reason }} occurred {{ $value | printf "%%.0f" }} times within %s on node {{ $labels.node }}.`, within),
		doc)
}
